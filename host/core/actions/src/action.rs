//! An action from its submission to its end.

use crate::event::Outcome;
use crate::resource::{Grant, Instance};
use crate::spec::ActionSpec;
use serde::{Deserialize, Serialize};
use treadle_model::{PolicyRef, Span, Timestamp};

/// An action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// What was submitted.
    pub spec: Box<ActionSpec>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Number of attempts so far.
    pub attempt: u32,
    /// Number of quota refusals so far.
    pub refusals: u32,
    /// Its current stage.
    pub stage: Stage,
    /// When it must have left this stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// The stages of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// It waits for its resources.
    Waiting {
        /// Its position among the waiting actions.
        rank: Rank,
        /// The least units of its key resource times the microseconds that it is expected to hold
        /// them.
        work: u64,
    },
    /// It holds its resources.
    Started(Started),
    /// It is over.
    Ended(Ended),
}

/// The order in which waiting actions are served: the smallest rank first, among equals the earlier
/// submission.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Rank {
    /// 0: in order of arrival; 1: its program holds engine memory that others need; 2: host memory;
    /// 3: any other.
    pub class: u8,
    /// Smaller for more memory held, and for programs with more left to do.
    pub length: u64,
}

/// An attempt that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// When its units were granted.
    pub since: Timestamp,
    /// When it began to run.
    pub begun: Option<Timestamp>,
    /// The resources that it holds.
    pub grants: Vec<Grant>,
    /// Units of its key resource.
    pub units: u64,
    /// When it is expected to end; none if unknown.
    pub expected: Option<Timestamp>,
    /// The instance that must be loaded onto its devices before it begins.
    pub loads: Option<Instance>,
    /// The run of the daemon in which it was last reported.
    pub run: u64,
    /// The outcome it gets when it ends, once it is being stopped.
    pub stopping: Option<Outcome>,
    /// The policy that chose its units; none if there was no choice.
    pub policy: Option<PolicyRef>,
}

/// The end of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// Digest of its output, if it has any.
    pub output: Option<Box<str>>,
    /// When the last attempt was started.
    pub started: Option<Timestamp>,
    /// When it began to run.
    pub begun: Option<Timestamp>,
    /// Units of its key resource that it held.
    pub units: u64,
}

impl Action {
    /// Its position in the queue, if it waits.
    pub fn rank(&self) -> Option<Rank> {
        match &self.stage {
            Stage::Waiting { rank, .. } => Some(*rank),
            Stage::Started(_) | Stage::Ended(_) => None,
        }
    }

    /// The current attempt, if it has not ended.
    pub fn started(&self) -> Option<&Started> {
        match &self.stage {
            Stage::Started(started) => Some(started),
            Stage::Waiting { .. } | Stage::Ended(_) => None,
        }
    }

    /// The current attempt, mutably.
    pub(crate) fn started_mut(&mut self) -> Option<&mut Started> {
        match &mut self.stage {
            Stage::Started(started) => Some(started),
            Stage::Waiting { .. } | Stage::Ended(_) => None,
        }
    }

    /// Its end, if it has ended.
    pub fn ended(&self) -> Option<&Ended> {
        match &self.stage {
            Stage::Ended(ended) => Some(ended),
            Stage::Waiting { .. } | Stage::Started(_) => None,
        }
    }

    /// How long it waited for its units, how long it then took to begin, and how long it ran.
    pub fn times(&self, now: Timestamp) -> (Span, Span, Span) {
        let (started, begun, end) = match &self.stage {
            Stage::Waiting { .. } => (None, None, now),
            Stage::Started(s) => (Some(s.since), s.begun, now),
            Stage::Ended(e) => (e.started, e.begun, e.at),
        };
        let started_at = started.unwrap_or(end);
        let begun_at = begun.unwrap_or(end).max(started_at);
        (
            started_at - self.submitted,
            begun_at - started_at,
            end - begun_at,
        )
    }

    /// Whether it may be run again if it is unknown whether it ran.
    pub(crate) fn may_run_again(&self, attempts_max: u32) -> bool {
        let stops = self.started().is_some_and(|s| s.stopping.is_some());
        self.spec.idempotent && self.attempt < attempts_max && !stops
    }
}

/// What the order of actions depends on in a program.
#[allow(clippy::struct_field_names, reason = "the unit comes last in a name")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RankInputs {
    /// Size of its cache, if that is on an engine whose memory is short or has programs waiting for
    /// it.
    pub held_up_tokens: u64,
    /// Size of its cache in host memory, if that has no room for another of this size.
    pub host_tokens: u64,
    /// Predicted number of tokens still to generate; 0 without a prediction.
    pub remaining_tokens: u64,
}
