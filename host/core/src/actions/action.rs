//! An action from its submission to its end.

use crate::actions::event::Outcome;
use crate::actions::resource::{Grant, Instance};
use crate::actions::spec::ActionSpec;
use serde::{Deserialize, Serialize};
use treadle_model::{ActionId, PolicyRef, Span, Timestamp};

/// An action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// What was submitted.
    pub spec: Box<ActionSpec>,
    /// When.
    pub submitted: Timestamp,
    /// How often it was started.
    pub attempt: u32,
    /// How often a quota refused it.
    pub refusals: u32,
    /// How far it is.
    pub stage: Stage,
    /// When it must have gone on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// How far an action is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// It waits for what it draws from.
    Waiting {
        /// Its position among those that wait.
        rank: Rank,
        /// The least units of its key resource times the microseconds that it is expected to have
        /// them.
        work: u64,
    },
    /// It has that.
    Started(Started),
    /// It is over.
    Ended(Ended),
}

/// Where a waiting action is served: the least first, and of equals the one that came first.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Rank {
    /// 0 served as it came, 1 its program holds up memory of an engine that others need, 2 host
    /// memory, 3 any other.
    pub class: u8,
    /// Less for more memory that is held up, and for what has longer to go after it.
    pub length: u64,
}

/// An attempt that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// When its units were given to it.
    pub since: Timestamp,
    /// When it began to run.
    pub begun: Option<Timestamp>,
    /// What it has.
    pub grants: Vec<Grant>,
    /// How much of its key resource.
    pub units: u64,
    /// When it is expected to end; none where that is not known.
    pub expected: Option<Timestamp>,
    /// The instance that its devices are to get before it begins.
    pub loads: Option<Instance>,
    /// The run of the daemon in which it was last heard of.
    pub run: u64,
    /// What it ends as, once it is to stop.
    pub stopping: Option<Outcome>,
    /// The policy that chose its units; none where there was no choice.
    pub policy: Option<PolicyRef>,
}

/// An end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// Digest of its output, where it has any.
    pub output: Option<Box<str>>,
    /// When the last attempt was started, and when it began to run.
    pub started: Option<Timestamp>,
    /// When it began to run.
    pub begun: Option<Timestamp>,
    /// How much it had of its key resource.
    pub units: u64,
}

impl Action {
    /// The position that it waits at.
    pub fn rank(&self) -> Option<Rank> {
        match &self.stage {
            Stage::Waiting { rank, .. } => Some(*rank),
            Stage::Started(_) | Stage::Ended(_) => None,
        }
    }

    /// The attempt that has not ended.
    pub fn started(&self) -> Option<&Started> {
        match &self.stage {
            Stage::Started(started) => Some(started),
            Stage::Waiting { .. } | Stage::Ended(_) => None,
        }
    }

    /// The same.
    pub(crate) fn started_mut(&mut self) -> Option<&mut Started> {
        match &mut self.stage {
            Stage::Started(started) => Some(started),
            Stage::Waiting { .. } | Stage::Ended(_) => None,
        }
    }

    /// Its end.
    pub fn ended(&self) -> Option<&Ended> {
        match &self.stage {
            Stage::Ended(ended) => Some(ended),
            Stage::Waiting { .. } | Stage::Started(_) => None,
        }
    }

    /// The end, how long it waited for its units, until it began, and how long it ran.
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

    /// Whether it may be run again though nobody knows whether it ran.
    pub(crate) fn may_run_again(&self, attempts_max: u32) -> bool {
        let stops = self.started().is_some_and(|s| s.stopping.is_some());
        self.spec.idempotent && self.attempt < attempts_max && !stops
    }
}

/// Something about an action that its program's cache depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notice {
    pub(crate) program: Box<str>,
    pub(crate) action: ActionId,
    pub(crate) kind: Box<str>,
    pub(crate) what: Noticed,
}

/// What is noticed of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Noticed {
    /// It is expected to begin then, or began; when it ends, where its client says so.
    Expected {
        begins: Timestamp,
        ends: Option<Timestamp>,
    },
    /// It is over. Since when it ran, if it did: without its wait, or with it where waits are not
    /// expected.
    Over {
        ok: bool,
        ran_since: Option<Timestamp>,
    },
}

/// What the order of actions depends on of a program.
#[allow(clippy::struct_field_names, reason = "the unit comes last in a name")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Standing {
    /// Its cache, if that is on an engine whose memory is short, or for whose memory others wait.
    pub(crate) held_up_tokens: u64,
    /// The same of a cache in host memory, if that has no room for another like it.
    pub(crate) host_tokens: u64,
    /// Tokens that it is predicted to generate yet; 0 without a prediction.
    pub(crate) remaining_tokens: u64,
}
