//! What was measured, and which iterations of the engine model it corresponds to.

use serde::Serialize;
use treadle_engine_model::engine::{EngineProfile, IterationLoad};

/// One measurement: the median of its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// What was done.
    pub what: Measured,
    /// How long it took, in microseconds.
    pub us: f64,
}

/// What a measurement was of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Measured {
    /// From a request's sending to its first token, on an idle engine.
    Prefill {
        /// Prompt tokens that the engine had in its cache.
        cached_tokens: u64,
        /// All prompt tokens.
        prompt_tokens: u64,
    },
    /// One iteration in which sequences decode and nothing else happens.
    Decode {
        /// How many sequences.
        sequences: u64,
        /// Their contexts, added up, in tokens.
        context_tokens: u64,
        /// The longest of them, in tokens.
        longest_tokens: u64,
        /// Groups of neighbouring slots that they use: llama.cpp computes each separately.
        rows: u64,
    },
    /// The iterations of a decoding sequence in which a prompt is computed beside it.
    Mixed {
        /// Tokens of that prompt, none of them cached.
        prompt_tokens: u64,
        /// The context of the sequence that decodes, in tokens.
        context_tokens: u64,
    },
}

impl Measured {
    /// Requests whose overhead the time includes.
    pub(super) fn requests(self) -> u64 {
        u64::from(matches!(self, Self::Prefill { .. }))
    }

    /// The iterations whose lengths add up to the time, where one computes `batched_tokens_max`.
    pub(super) fn loads(self, batched_tokens_max: u32) -> Vec<IterationLoad> {
        let budget = u64::from(batched_tokens_max.max(1));
        match self {
            Self::Prefill {
                cached_tokens,
                prompt_tokens,
            } => chunks(cached_tokens, prompt_tokens, budget),
            Self::Decode {
                sequences,
                context_tokens,
                rows,
                ..
            } => vec![IterationLoad {
                decode_sequences: sequences,
                decode_context_tokens: context_tokens,
                passes_milli: 1_000 * rows,
                ..IterationLoad::default()
            }],
            Self::Mixed {
                prompt_tokens,
                context_tokens,
            } => {
                let room = budget.saturating_sub(1).max(1);
                let mut loads = chunks(0, prompt_tokens, room);
                for load in &mut loads {
                    load.decode_sequences = 1;
                    load.decode_context_tokens = context_tokens;
                    load.passes_milli += 1_000;
                }
                loads
            }
        }
    }

    /// The profile's prediction of it, in microseconds.
    pub(super) fn predicted_us(self, profile: &EngineProfile) -> u64 {
        let loads = self.loads(profile.batched_tokens_max);
        let iterations: u64 = loads.iter().map(|load| profile.iteration_us(*load)).sum();
        self.requests() * profile.request_overhead_us + iterations
    }

    /// The same as text.
    pub(super) fn words(self) -> String {
        match self {
            Self::Prefill {
                cached_tokens: 0,
                prompt_tokens,
            } => format!("first token of {prompt_tokens} prompt tokens"),
            Self::Prefill {
                cached_tokens,
                prompt_tokens,
            } => format!("first token of {prompt_tokens} prompt tokens, {cached_tokens} cached"),
            Self::Decode {
                sequences,
                context_tokens,
                longest_tokens,
                rows,
            } => {
                let mean = context_tokens / sequences.max(1);
                let apart = if rows > 1 { ", slots apart" } else { "" };
                format!(
                    "token of {sequences} sequences at {mean} tokens, at most {longest_tokens}{apart}"
                )
            }
            Self::Mixed { prompt_tokens, .. } => {
                format!("prompt of {prompt_tokens} tokens beside a sequence")
            }
        }
    }
}

/// The prompt's iterations; the last cached token is computed at least.
fn chunks(cached_tokens: u64, prompt_tokens: u64, budget: u64) -> Vec<IterationLoad> {
    let mut loads: Vec<IterationLoad> = Vec::new();
    let mut before = cached_tokens.min(prompt_tokens.saturating_sub(1));
    while before < prompt_tokens {
        let prefill_tokens = (prompt_tokens - before).min(budget);
        let mut load = IterationLoad::default();
        load.add_chunk(before, prefill_tokens);
        loads.push(load);
        before += prefill_tokens;
    }
    loads
}

/// The median; `None` of nothing. Of an even number it is the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[middle - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_pass_over_outliers() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 1.0, 500.0]), Some(9.0));
        assert_eq!(median(vec![1.0, f64::NAN, 3.0]), Some(2.0));
    }

    #[test]
    fn a_sample_is_predicted_as_the_model_runs_it() {
        use treadle_engine_model::engine::{Engine, Output, RequestSpec};
        let profile = EngineProfile {
            batched_tokens_max: 512,
            prefill_per_kilotoken_context_ps: 900_000,
            iteration_overhead_us: 300,
            pass_us: 250,
            ..EngineProfile::qwen3_8b_h100()
        };
        let mut engine = Engine::new(profile.clone());
        let spec = RequestSpec {
            id: 1,
            prompt_tokens: 1_300,
            output_tokens: 1,
            blocks: Vec::new().into(),
            priority: 0,
        };
        engine.submit(0, spec).unwrap();
        let mut outputs = Vec::new();
        while let Some(at_us) = engine.next_event_at() {
            engine.advance(at_us, &mut outputs);
        }
        let Some(Output::Finished(finished)) = outputs.last() else {
            panic!("{outputs:?}");
        };
        let what = Measured::Prefill {
            cached_tokens: 0,
            prompt_tokens: 1_300,
        };
        assert_eq!(what.predicted_us(&profile), finished.at_us);
    }
}
