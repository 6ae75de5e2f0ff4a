//! What each step must fulfil before a token of it is trained.

use crate::step::{LOGPROB_FLOOR, Step, TOKENS_MAX};
use thiserror::Error;

/// Log-probabilities of exactly zero in a row that only an engine reports that drafts tokens without
/// scoring them.
const ZEROS_MAX: usize = 16;
/// Rounding may lift the log-probability of a certain token above zero by this much.
const ABOVE_ZERO_MAX: f32 = 1e-6;

/// Why a step can't be trained.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Fault {
    /// The engine reported no ids of the prompt.
    #[error("the prompt is empty: the engine reported no ids of it")]
    NoPrompt,
    /// Nothing was sampled.
    #[error("the output is empty")]
    Empty,
    /// The step is longer than any context.
    #[error("the step has {0} tokens, more than {TOKENS_MAX}")]
    TooLong(usize),
    /// An id is negative or not in the vocabulary.
    #[error("token id {id} is outside of the vocabulary of {vocabulary} tokens")]
    Id {
        /// The id.
        id: i32,
        /// Size of the vocabulary.
        vocabulary: i32,
    },
    /// Ids and log-probabilities differ in number.
    #[error("{logprobs} log-probabilities for {tokens} tokens")]
    Logprobs {
        /// Number of log-probabilities.
        logprobs: usize,
        /// Number of sampled tokens.
        tokens: usize,
    },
    /// The engine counted other numbers of tokens than it reported ids.
    #[error("the engine counted {counted} {what} tokens and reported {ids} ids")]
    Count {
        /// `prompt` or `output`.
        what: &'static str,
        /// What the usage says.
        counted: u64,
        /// Number of ids.
        ids: usize,
    },
    /// A log-probability is not one: not finite, positive, or the mark of a missing one.
    #[error("the log-probability of output token {0} is missing or not finite")]
    Value(usize),
    /// A row of zeros from an engine that drafts tokens.
    #[error("{ZEROS_MAX} log-probabilities in a row are exactly 0: the engine did not score them")]
    Zeros,
    /// The version spans do not cover the output in order.
    #[error("the version spans do not cover the output once, in order")]
    Spans,
    /// Positions of media are not ascending within the prompt.
    #[error("the positions of media are not ascending within the prompt")]
    Media,
}

/// Checks a step against itself, against the engine's own counts if it gave any, and against the
/// size of the model's vocabulary if that is known.
///
/// # Errors
/// The first [`Fault`] that is found.
pub fn check(step: &Step, vocabulary: Option<i32>) -> Result<(), Fault> {
    if step.output.is_empty() {
        return Err(Fault::Empty);
    }
    if step.prompt.is_empty() {
        return Err(Fault::NoPrompt);
    }
    if step.context_len() > TOKENS_MAX {
        return Err(Fault::TooLong(step.context_len()));
    }
    let vocabulary = vocabulary.unwrap_or(i32::MAX);
    if let Some(id) = step.context().find(|id| !(0..vocabulary).contains(id)) {
        return Err(Fault::Id { id, vocabulary });
    }
    count("prompt", step.prompt_tokens, step.prompt.len())?;
    count("output", step.output_tokens, step.output.len())?;
    logprobs(step)?;
    if !spans_cover(step) {
        return Err(Fault::Spans);
    }
    let ordered = step.media.is_sorted_by(|a, b| a.position < b.position);
    let inside = step
        .media
        .last()
        .is_none_or(|m| m.position < step.prompt.len());
    if ordered && inside {
        Ok(())
    } else {
        Err(Fault::Media)
    }
}

fn count(what: &'static str, counted: Option<u64>, ids: usize) -> Result<(), Fault> {
    match counted {
        Some(counted) if counted != ids as u64 => Err(Fault::Count { what, counted, ids }),
        _ => Ok(()),
    }
}

fn logprobs(step: &Step) -> Result<(), Fault> {
    let (logprobs, tokens) = (step.logprobs.len(), step.output.len());
    if logprobs != tokens {
        return Err(Fault::Logprobs { logprobs, tokens });
    }
    let is_value = |p: &f32| p.is_finite() && *p > LOGPROB_FLOOR && *p <= ABOVE_ZERO_MAX;
    if let Some(position) = step.logprobs.iter().position(|p| !is_value(p)) {
        return Err(Fault::Value(position));
    }
    Ok(())
}

/// Checks that an engine that drafts tokens scored them. Others report zeros for tokens that a grammar
/// forces.
///
/// # Errors
/// [`Fault::Zeros`] if it did not.
pub(crate) fn check_scored(logprobs: &[f32]) -> Result<(), Fault> {
    let mut zeros = logprobs.chunk_by(|a, b| *a == 0.0 && *b == 0.0);
    if zeros.any(|row| row.len() >= ZEROS_MAX) {
        return Err(Fault::Zeros);
    }
    Ok(())
}

/// Without spans the version is unknown, which is not a fault.
fn spans_cover(step: &Step) -> bool {
    let mut covered = 0;
    let in_order = step.versions.iter().all(|span| {
        let follows = span.start == covered && span.end > span.start;
        covered = span.end;
        follows
    });
    in_order && (covered == 0 || covered == step.output.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Medium, Span};

    fn step() -> Step {
        Step {
            prompt: vec![1, 2, 3],
            output: vec![4, 5],
            logprobs: vec![-0.5, 0.0],
            ..Step::default()
        }
    }

    fn fault(change: impl FnOnce(&mut Step)) -> Fault {
        let mut step = step();
        change(&mut step);
        check(&step, Some(100)).expect_err("the step has a fault")
    }

    #[test]
    fn a_step_passes_with_the_counts_of_its_engine() {
        let counted = Step {
            prompt_tokens: Some(3),
            output_tokens: Some(2),
            ..step()
        };
        assert_eq!(check(&counted, Some(6)), Ok(()));
        assert_eq!(check(&step(), None), Ok(()));
    }

    #[test]
    fn each_fault_is_named() {
        assert_eq!(fault(|s| s.output.clear()), Fault::Empty);
        assert_eq!(fault(|s| s.prompt.clear()), Fault::NoPrompt);
        assert_eq!(
            fault(|s| s.output[0] = 100),
            Fault::Id {
                id: 100,
                vocabulary: 100
            }
        );
        assert_eq!(
            fault(|s| s.prompt[0] = -1),
            Fault::Id {
                id: -1,
                vocabulary: 100
            }
        );
        let short = Fault::Logprobs {
            logprobs: 1,
            tokens: 2,
        };
        assert_eq!(fault(|s| s.logprobs.truncate(1)), short);
        for value in [f32::NAN, f32::NEG_INFINITY, 0.1, LOGPROB_FLOOR] {
            assert_eq!(fault(|s| s.logprobs[1] = value), Fault::Value(1));
        }
        let span = |start, end| Span {
            start,
            end,
            version: 7,
            newest: 7,
        };
        for spans in [
            vec![span(0, 1)],
            vec![span(1, 2)],
            vec![span(0, 1), span(0, 2)],
        ] {
            assert_eq!(fault(|s| s.versions = spans), Fault::Spans);
        }
        let medium = |position| Medium {
            position,
            digest: [0; 32],
        };
        for media in [vec![medium(3)], vec![medium(1), medium(1)]] {
            assert_eq!(fault(|s| s.media = media), Fault::Media);
        }
        let counted = Fault::Count {
            what: "output",
            counted: 3,
            ids: 2,
        };
        assert_eq!(fault(|s| s.output_tokens = Some(3)), counted);
    }
}
