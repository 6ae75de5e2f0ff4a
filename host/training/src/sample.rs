//! Samples that clients send: steps with tokens, checked and merged into sequences.

use serde::Deserialize;
use std::collections::BTreeMap;
use treadle_samples::{
    Assembly, Delivery, Excluded, Exclusion, Sampled, Scored, Sequence, Span, Step, VersionRange,
    assemble,
};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Steps of a sample.
const STEPS_MAX: usize = 10_000;

/// The tokens of a member.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleRequest {
    /// Its steps, in order; at most 10,000.
    steps: Vec<StepRequest>,
    /// Size of the model's vocabulary, which ids are checked against.
    vocabulary: Option<i32>,
}

/// A step of a sample.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StepRequest {
    /// Ids of the prompt's tokens.
    prompt: Vec<i32>,
    /// Ids of the sampled tokens, the stop token included.
    output: Vec<i32>,
    /// Log-probability of each sampled token.
    logprobs: Vec<f32>,
    /// Version of the weights that sampled it; by default the one in service when the member began.
    version: Option<u64>,
    /// Versions of ranges of the output, in order, if they changed in between.
    #[serde(default)]
    versions: Vec<SpanRequest>,
    /// Another model than the job's sampled it: context only.
    #[serde(default)]
    foreign: bool,
}

/// A range of output tokens and the version that sampled it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SpanRequest {
    /// First token, counted from the start of the output.
    start: usize,
    /// One past the last.
    end: usize,
    /// The version.
    version: u64,
}

/// A sample that can be trained.
pub(crate) struct Checked {
    /// Its sequences; versions are numbers.
    pub sequences: Vec<Scored>,
    /// Tokens to train.
    pub tokens: u64,
    /// Steps.
    pub turns: u32,
    /// Versions of its oldest and its newest token.
    pub versions: Option<(u64, u64)>,
    /// Steps that continue no earlier one, by why they don't.
    pub breaks: BTreeMap<Box<str>, u32>,
    /// Steps that are not trained.
    pub excluded: Vec<Excluded>,
}

impl SampleRequest {
    /// Merges the steps; `begun` is the version in service when the member began.
    ///
    /// # Errors
    /// A step can't be trained.
    pub(crate) fn check(self, begun: u64) -> Result<Checked, ErrorBody> {
        if self.steps.len() > STEPS_MAX {
            let message = format!("{} steps; send at most {STEPS_MAX}", self.steps.len());
            return Err(invalid(message));
        }
        let turns = self.steps.len() as u32;
        let steps = self.steps.into_iter().enumerate();
        let steps: Vec<Step> = steps
            .map(|(number, step)| step.into_step(number, begun))
            .collect();
        let assembly = assemble(&steps, self.vocabulary);
        Checked::of(assembly, &steps, turns).map_err(invalid)
    }
}

impl Checked {
    /// The version of its oldest token.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.versions.map(|(oldest, _)| oldest)
    }

    /// The sequences of steps, which are numbered by their places.
    ///
    /// # Errors
    /// A step can't be trained, or there is nothing to train.
    pub(crate) fn of(assembly: Assembly, steps: &[Step], turns: u32) -> Result<Self, String> {
        for (number, exclusion) in &assembly.excluded {
            if let Exclusion::Fault(fault) = exclusion {
                return Err(format!("step {number} can't be trained: {fault}"));
            }
        }
        let mut breaks = BTreeMap::new();
        for (_, kind) in &assembly.breaks {
            *breaks.entry(Box::from(kind.name())).or_default() += 1;
        }
        let excluded = assembly.excluded.iter();
        let excluded = excluded.map(|(step, reason)| Excluded {
            step: *step,
            reason: reason.to_string(),
        });
        let excluded: Vec<Excluded> = excluded.collect();
        let sequences = assembly.sequences.into_iter();
        let sequences: Vec<Scored> = sequences.map(|sequence| scored(sequence, steps)).collect();
        let ranges = sequences.iter().flat_map(|scored| &scored.sequence.sampled);
        let tokens = ranges.map(|range| range.end - range.start).sum::<usize>() as u64;
        if tokens == 0 {
            let others = assembly.excluded.iter();
            let foreign = others.filter(|(_, why)| *why == Exclusion::Foreign).count();
            return Err(if foreign > 0 {
                format!(
                    "the sample has no token to train: other models sampled {foreign} of its \
                     {turns} steps; compare `model` of the job with that of the requests"
                )
            } else {
                "the sample has no token to train; leave it out".to_owned()
            });
        }
        let used = sequences.iter().flat_map(|scored| &scored.versions);
        let used = used.map(|range| range.version as u64);
        let versions = used.clone().min().zip(used.max());
        Ok(Self {
            sequences,
            tokens,
            turns,
            versions,
            breaks,
            excluded,
        })
    }
}

impl StepRequest {
    fn into_step(self, number: usize, begun: u64) -> Step {
        let spans = self.versions.into_iter().map(|span| Span {
            start: span.start,
            end: span.end,
            version: span.version,
            newest: span.version,
        });
        let mut versions: Vec<Span> = spans.collect();
        if versions.is_empty() {
            let version = self.version.unwrap_or(begun);
            versions.push(Span::whole(&self.output, version));
        }
        Step {
            number: number as u64,
            prompt: self.prompt,
            output: self.output,
            logprobs: self.logprobs,
            versions,
            delivery: Delivery::Complete,
            foreign: self.foreign,
            ..Step::default()
        }
    }
}

/// A sequence with what the steps that it trains say of their tokens.
fn scored(sequence: Sequence, steps: &[Step]) -> Scored {
    let mut logprobs = Vec::new();
    let mut ranges: Vec<VersionRange> = Vec::new();
    for &Sampled { step, start, .. } in &sequence.sampled {
        let step = &steps[step as usize];
        logprobs.extend(&step.logprobs);
        let spans = step.versions.iter().map(|span| VersionRange {
            start: start + span.start,
            end: start + span.end,
            version: span.version as usize,
            newest: (span.newest > span.version).then_some(span.newest),
        });
        ranges.extend(spans);
    }
    Scored {
        sequence,
        logprobs,
        versions: ranges,
    }
}

fn invalid(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::SampleInvalid, message).with_param("sample")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(steps: &Value) -> Result<Checked, ErrorBody> {
        let request: SampleRequest =
            serde_json::from_value(json!({"steps": steps, "vocabulary": 100})).expect("a request");
        request.check(3)
    }

    #[test]
    fn steps_become_one_sequence_with_their_versions() {
        let checked = check(&json!([
            {"prompt": [1, 2], "output": [3, 4], "logprobs": [-0.1, -0.2]},
            {"prompt": [1, 2, 3, 4, 5], "output": [6], "logprobs": [-0.3], "version": 4},
        ]));
        let checked = checked.expect("it can be trained");
        let [scored] = &checked.sequences[..] else {
            panic!("{} sequences", checked.sequences.len());
        };
        assert_eq!(scored.sequence.ids, [1, 2, 3, 4, 5, 6]);
        assert_eq!(scored.logprobs, [-0.1, -0.2, -0.3]);
        let versions = scored.versions.iter().map(|r| (r.start, r.end, r.version));
        assert_eq!(versions.collect::<Vec<_>>(), [(2, 4, 3), (5, 6, 4)]);
        assert_eq!((checked.tokens, checked.turns), (3, 2));
        assert_eq!(checked.versions, Some((3, 4)));
        assert!(checked.breaks.is_empty());
    }

    #[test]
    fn steps_that_continue_no_earlier_one_are_counted_by_why() {
        let step = |prompt: &[u32]| json!({"prompt": prompt, "output": [9], "logprobs": [-0.1]});
        let [long, edited]: [Vec<u32>; 2] = [1, 2].map(|id| [vec![5; 40], vec![id; 40]].concat());
        let checked = check(&json!([step(&long), step(&edited), step(&[7, 7])]));
        let breaks = checked.expect("it can be trained").breaks;
        let counted: Vec<(&str, u32)> = breaks.iter().map(|(kind, n)| (&**kind, *n)).collect();
        assert_eq!(counted, [("edited", 1), ("other", 1)]);
    }

    #[test]
    fn what_cannot_be_trained_is_refused_with_its_step() {
        let good = json!({"prompt": [1], "output": [2], "logprobs": [-0.1]});
        for (step, cause) in [
            (
                json!({"prompt": [1], "output": [100], "logprobs": [-0.1]}),
                "vocabulary",
            ),
            (
                json!({"prompt": [1], "output": [-2], "logprobs": [-0.1]}),
                "-2",
            ),
            (
                json!({"prompt": [1], "output": [2], "logprobs": []}),
                "0 log-probabilities",
            ),
            (
                json!({"prompt": [1], "output": [2], "logprobs": [0.5]}),
                "log-probability",
            ),
            (
                json!({"prompt": [], "output": [2], "logprobs": [-0.1]}),
                "prompt is empty",
            ),
            (
                json!({"prompt": [1], "output": [2], "logprobs": [-0.1],
                       "versions": [{"start": 1, "end": 1, "version": 0}]}),
                "spans",
            ),
        ] {
            let error = check(&json!([good, step])).err().expect(cause);
            assert_eq!(error.code, ErrorCode::SampleInvalid);
            assert!(error.message.contains("step 1"), "{}", error.message);
            assert!(error.message.contains(cause), "{}", error.message);
        }
    }
}
