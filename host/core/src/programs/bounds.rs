//! Bounds of the numbers in events, so that no sum overflows and every store can hold them.

use crate::memory::{Capacity, PrefixSegment};
use crate::programs::{ProgramEvent, StepArrival, StepTokens};
use treadle_model::{
    BYTES_MAX, CLASS_BYTES_MAX, NAME_BYTES_MAX, REWARD_MILLIONTHS_MAX, Span, TOKENS_MAX,
    WEIGHTS_BYTES_MAX,
};

/// Longest time for which an engine is considered busy.
const BUSY_MAX: Span = Span::from_secs(60);
/// Maximum number of additional model names of a worker.
const OTHER_MODELS_MAX: usize = 1_024;

impl ProgramEvent {
    /// The event with each external number clamped to its bound.
    #[must_use]
    pub(crate) fn within_bounds(mut self) -> Self {
        match &mut self {
            Self::WorkerAdded { capacity, .. } | Self::WorkerCapacityRead { capacity, .. } => {
                cut_capacity(capacity);
            }
            Self::WorkerUseRead {
                untracked_tokens, ..
            } => cut(untracked_tokens, TOKENS_MAX),
            Self::WorkerSpeedRead {
                prefill_tokens_per_s,
                token_us,
                step_us,
                ..
            } => {
                cut(prefill_tokens_per_s, TOKENS_MAX);
                cut(token_us, TOKENS_MAX);
                cut(step_us, TOKENS_MAX);
            }
            // A truncated name would identify another model.
            Self::WorkerModelRead { model, .. } if model.len() > NAME_BYTES_MAX => {
                *model = "".into();
            }
            Self::WorkerOtherModelsRead { models, .. } => {
                models.retain(|model| !model.is_empty() && model.len() <= NAME_BYTES_MAX);
                models.truncate(OTHER_MODELS_MAX);
            }
            Self::WorkerClassSet { class, .. } => {
                class.take_if(|class| class.is_empty() || class.len() > CLASS_BYTES_MAX);
            }
            Self::PromptCounted { size, tokens, .. } => {
                cut(&mut size.bytes, BYTES_MAX);
                cut(tokens, TOKENS_MAX);
            }
            Self::StepArrived(arrival) => cut_arrival(arrival),
            Self::StepFailed { failure, .. } => {
                failure.busy = failure.busy.map(|busy| busy.min(BUSY_MAX));
            }
            Self::StepPrefilled {
                prompt_tokens,
                cached_tokens,
                ..
            } => {
                cut(prompt_tokens, TOKENS_MAX);
                cut_some(cached_tokens);
            }
            Self::StepProgressed { output_tokens, .. } => cut(output_tokens, TOKENS_MAX),
            Self::StepFinished {
                tokens, weights, ..
            } => {
                cut_tokens(tokens);
                weights.take_if(|version| version.len() > WEIGHTS_BYTES_MAX);
            }
            Self::ProgramOffloaded { tokens, bytes, .. } => {
                cut(tokens, TOKENS_MAX);
                cut(bytes, BYTES_MAX);
            }
            Self::ProgramRewarded {
                reward_millionths, ..
            } => {
                let bound = REWARD_MILLIONTHS_MAX;
                *reward_millionths = (*reward_millionths).clamp(-bound, bound);
            }
            _ => {}
        }
        self
    }
}

fn cut(number: &mut u64, max: u64) {
    *number = max.min(*number);
}

fn cut_some(number: &mut Option<u64>) {
    if let Some(number) = number {
        cut(number, TOKENS_MAX);
    }
}

fn cut_capacity(capacity: &mut Capacity) {
    cut_some(&mut capacity.tokens);
    cut_some(&mut capacity.context_tokens_max);
}

fn cut_arrival(arrival: &mut StepArrival) {
    arrival.model.take_if(|model| model.len() > NAME_BYTES_MAX);
    cut(&mut arrival.prompt_tokens, TOKENS_MAX);
    cut(&mut arrival.prompt_bytes, BYTES_MAX);
    cut_some(&mut arrival.output_tokens_max);
    for PrefixSegment { tokens, .. } in &mut arrival.prefix {
        cut(tokens, TOKENS_MAX);
    }
    for bytes in arrival
        .text
        .iter_mut()
        .flat_map(|text| &mut text.prefix_bytes)
    {
        cut(bytes, BYTES_MAX);
    }
}

fn cut_tokens(tokens: &mut StepTokens) {
    cut(&mut tokens.prompt, TOKENS_MAX);
    cut(&mut tokens.output, TOKENS_MAX);
    cut_some(&mut tokens.cached);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::StepFailure;
    use crate::{Core, CoreConfig};
    use treadle_model::{EngineKind, FinishReason, ProgramId, StepId, Timestamp, WorkerId};

    /// Every event that has external numbers, all of them at their maximum.
    fn largest() -> Vec<ProgramEvent> {
        let capacity = Capacity {
            tokens: Some(u64::MAX),
            context_tokens_max: Some(u64::MAX),
            slots: None,
            gpus: Some(u32::MAX),
            offloads: true,
        };
        let (worker, step) = (WorkerId(0), StepId(1));
        let segment = PrefixSegment {
            hash: u64::MAX,
            tokens: u64::MAX,
        };
        vec![
            ProgramEvent::WorkerAdded {
                worker,
                url: "http://w".into(),
                engine: EngineKind::Vllm,
                capacity,
                role: None,
            },
            ProgramEvent::WorkerCapacityRead {
                worker,
                engine: EngineKind::Vllm,
                capacity,
            },
            ProgramEvent::StepArrived(StepArrival {
                step,
                program: "p".into(),
                job: "j".into(),
                prompt_tokens: u64::MAX,
                exact: true,
                prompt_bytes: u64::MAX,
                text: None,
                output_tokens_max: Some(u64::MAX),
                prefix: vec![segment; 3],
                one_shot: false,
                inferred: false,
                parent: None,
                group: None,
                model: None,
            }),
            longest_busy(step),
            largest_speed(worker, true),
            largest_speed(worker, false),
            largest_prefilled(step),
            ProgramEvent::StepProgressed {
                step,
                output_tokens: u64::MAX,
            },
            ProgramEvent::StepFinished {
                step,
                tokens: StepTokens {
                    prompt: u64::MAX,
                    output: u64::MAX,
                    cached: Some(u64::MAX),
                },
                finish: FinishReason::Stop,
                weights: None,
            },
            ProgramEvent::ProgramOffloaded {
                program: ProgramId(1),
                copy: "c".into(),
                tokens: u64::MAX,
                bytes: u64::MAX,
            },
            rewarded(i64::MAX),
            rewarded(i64::MIN),
        ]
    }

    #[test]
    fn a_model_has_a_name_or_none() {
        for (bytes, kept) in [(NAME_BYTES_MAX, NAME_BYTES_MAX), (NAME_BYTES_MAX + 1, 0)] {
            let (worker, model) = (WorkerId(0), "m".repeat(bytes).into());
            let event = ProgramEvent::WorkerModelRead { worker, model }.within_bounds();
            let ProgramEvent::WorkerModelRead { model, .. } = event else {
                panic!("{event:?}");
            };
            assert_eq!(model.len(), kept);
        }
    }

    fn largest_prefilled(step: StepId) -> ProgramEvent {
        ProgramEvent::StepPrefilled {
            step,
            prompt_tokens: u64::MAX,
            cached_tokens: Some(u64::MAX),
        }
    }

    fn longest_busy(step: StepId) -> ProgramEvent {
        let failure = StepFailure {
            cause: "busy".into(),
            retryable: true,
            rejected: false,
            busy: Some(Span(u64::MAX)),
        };
        ProgramEvent::StepFailed { step, failure }
    }

    fn largest_speed(worker: WorkerId, declared: bool) -> ProgramEvent {
        ProgramEvent::WorkerSpeedRead {
            worker,
            prefill_tokens_per_s: u64::MAX,
            token_us: u64::MAX,
            step_us: u64::MAX,
            declared,
        }
    }

    fn rewarded(reward_millionths: i64) -> ProgramEvent {
        ProgramEvent::ProgramRewarded {
            program: "p".into(),
            reward_millionths,
        }
    }

    #[test]
    fn no_number_from_outside_is_beyond_its_bound() {
        for event in largest() {
            let said = format!("{:?}", event.within_bounds());
            // The hash is treadle's own and may be any number.
            let said = said.replace(&format!("hash: {}", u64::MAX), "");
            let beyond = [u64::MAX.into(), i64::MAX.into(), i128::from(i64::MIN)];
            for number in beyond {
                assert!(!said.contains(&number.to_string()), "{said}");
            }
        }
    }

    #[test]
    fn sums_of_the_largest_numbers_do_not_overflow() {
        let mut core = Core::new(CoreConfig::default());
        for round in 0..100 {
            for event in largest() {
                core.handle(
                    Timestamp(round * 86_400_000_000),
                    &event.within_bounds().into(),
                );
                while core.poll_command().is_some() {}
            }
        }
        assert!(core.programs().counters.prompt_tokens < i64::MAX as u64);
    }
}
