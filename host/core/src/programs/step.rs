//! A step: one LLM call of a program, from its arrival to its end.

use crate::programs::worker::QueuedStep;
use crate::programs::{PromptText, StepTokens};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use treadle_model::{ProgramId, Span, StepId, Timestamp, WorkerId};

/// The state of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum StepState {
    /// In the queue.
    Waiting,
    /// At an engine.
    Running {
        /// The engine.
        worker: WorkerId,
        /// When it was sent.
        since: Timestamp,
    },
}

impl StepState {
    /// Its engine, if it is at one.
    pub fn worker(self) -> Option<WorkerId> {
        match self {
            Self::Waiting => None,
            Self::Running { worker, .. } => Some(worker),
        }
    }
}

/// Whether a running step is preempted. It counts as running until its gateway reports that it was
/// interrupted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum GivesWay {
    /// No preemption was requested.
    #[default]
    Unasked,
    /// Its gateway was asked to take it back from its engine.
    Asked,
    /// It can't be preempted: it runs to its end.
    Never,
}

/// Where a step's prompt is computed before it goes to its own worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefill {
    /// The prefill worker.
    pub worker: WorkerId,
    /// How long that may take, after which the step's own worker computes the prompt.
    pub within: Span,
}

/// The part of a step that a prefill worker does: it computes the prompt before the step's own
/// worker generates the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PrefillLeg {
    /// The prefill worker.
    pub worker: WorkerId,
    /// Tokens that the step's own worker has to fetch.
    pub moved_tokens: u64,
    /// How long it may take.
    pub within: Span,
    /// When the prompt was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Timestamp>,
    /// Tokens of the prompt that the prefill worker had in its cache.
    #[serde(default)]
    pub cached_tokens: u64,
}

/// One step that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its program.
    pub program: ProgramId,
    /// When it arrived.
    pub arrived_at: Timestamp,
    /// When its wait began, moved forward by the time spent at engines, and by the time for which
    /// its wait was suspended.
    #[serde(default)]
    pub waits_since: Timestamp,
    /// Since when its wait is suspended: all workers that could take it are fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// Where it is.
    pub state: StepState,
    /// Prompt tokens, counted or estimated.
    pub prompt_tokens: u64,
    /// The prompt's tokens are estimated: no step is refused because of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Size of the prompt.
    pub prompt_bytes: u64,
    /// Details of a prompt that came as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PromptText>,
    /// Output tokens reserved in advance: 0 if they are observed as they come, as others make room
    /// meanwhile.
    #[serde(alias = "output_tokens_expected")]
    pub output_tokens_reserved: u64,
    /// Output tokens observed.
    pub output_tokens: u64,
    /// When the first output token was observed.
    pub first_token_at: Option<Timestamp>,
    /// The summed time of all steps at its worker when it was sent there, or when its first token
    /// was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_time_before: Option<Span>,
    /// When it was first sent to an engine.
    pub dispatched_at: Option<Timestamp>,
    /// How often it was sent to an engine.
    pub attempts: u32,
    /// Its prompt is computed, or was, by a prefill worker in its present attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<PrefillLeg>,
    /// The prefill worker that failed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_failed: Option<WorkerId>,
    /// Its priority; the greater goes first.
    #[serde(default)]
    pub priority: i32,
    /// A policy chose its worker; it only waits for a slot there.
    #[serde(default)]
    pub routed: bool,
    /// Whether it is preempted, while it runs.
    #[serde(default)]
    pub gives_way: GivesWay,
    /// Its member was cut while it ran: its gateway was asked to end it, and no engine gets it
    /// again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl Step {
    /// Its entry in a run queue.
    pub(crate) fn queued_step(&self, step: StepId) -> QueuedStep {
        QueuedStep {
            priority: Reverse(self.priority),
            since: self.waits_since,
            step,
        }
    }

    /// The prefill worker that is to compute its prompt, until it has.
    pub fn prefill_to_come(&self) -> Option<Prefill> {
        let leg = self.prefill.filter(|leg| leg.done_at.is_none())?;
        Some(Prefill {
            worker: leg.worker,
            within: leg.within,
        })
    }

    /// How long it has waited, without time at engines and time for which its wait was suspended.
    pub fn waited(&self, now: Timestamp) -> Span {
        let until = self.suspended_since.unwrap_or(now);
        until.since(self.waits_since)
    }

    /// When it is refused: once it has waited for this long, or its wait has been suspended for as
    /// long in one go.
    pub(crate) fn wait_deadline(&self, most: Span) -> Timestamp {
        self.suspended_since.unwrap_or(self.waits_since) + most
    }

    /// Tokens that the program's placement must hold for this step.
    pub fn demand_tokens(&self) -> u64 {
        let output = self.output_tokens.max(self.output_tokens_reserved);
        self.prompt_tokens.saturating_add(output)
    }

    /// Tokens of its prompt once it has ended: the engine's count, otherwise the estimate.
    pub fn prompt_of(&self, tokens: StepTokens) -> u64 {
        match tokens.prompt {
            0 => self.prompt_tokens,
            counted => counted,
        }
    }

    /// Tokens that it has produced so far, prompt included.
    pub fn context_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }
}

/// Converts a score to the integer priority that engines want: the order of scores is kept to one
/// part in a million, whatever their size.
pub fn priority_of(score: f64) -> i32 {
    // Adding zero turns -0 into 0.
    (in_order((score + 0.0).to_bits().cast_signed()) >> 32) as i32
}

/// The score of a priority, to one part in a million.
pub fn score_of(priority: i32) -> f64 {
    f64::from_bits(in_order(i64::from(priority) << 32).cast_unsigned())
}

/// Makes integer order match float order: the bits of negative numbers rise as the numbers fall, so
/// they are inverted.
fn in_order(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

#[cfg(test)]
mod tests {
    use super::{priority_of, score_of};

    const SCORES: [f64; 14] = [
        -1e300, -1e30, -5e9, -2.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 1.001, 40_000.0, 40_001.0,
        1e30,
    ];

    #[test]
    fn priorities_are_in_the_order_of_scores() {
        let rises = |pair: &[f64]| priority_of(pair[0]) < priority_of(pair[1]);
        assert!(SCORES.windows(2).all(rises));
        assert_eq!(priority_of(-0.0), priority_of(0.0));
    }

    #[test]
    fn a_priority_gives_back_its_score() {
        for score in SCORES {
            let told = score_of(priority_of(score));
            assert!(
                (told - score).abs() <= score.abs() * 1e-5,
                "{score}: {told}"
            );
        }
    }
}
