//! Timers of programs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use treadle_model::{AskId, ProgramId, StepId, Timestamp};

/// What a deadline is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Timer {
    /// The periodic check for thrashing.
    Tick,
    /// A question without an answer.
    Ask(AskId),
    /// A step that has waited up to the limit.
    StepWait(StepId),
    /// A program that may be idle; the handler checks again.
    ProgramIdle(ProgramId),
    /// New programs have been gathered long enough.
    Gather,
    /// The migration question is due.
    Migrate,
    /// A transfer that takes too long.
    Transfer(ProgramId),
    /// A link becomes available to offloads again.
    Link,
}

/// The pending deadlines of programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timers {
    all: treadle_machine::Timers<Timer>,
    /// Kinds of deadlines with one pending at most.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    single: BTreeSet<Timer>,
}

impl Timers {
    /// Adds a deadline.
    pub(crate) fn arm(&mut self, at: Timestamp, timer: Timer) {
        self.all.arm(at, timer);
    }

    /// Adds a deadline, unless one of its kind is pending.
    pub(crate) fn arm_single(&mut self, at: Timestamp, timer: Timer) {
        if self.single.insert(timer) {
            self.all.arm(at, timer);
        }
    }

    /// True if a deadline of this kind is pending.
    pub(crate) fn has_single(&self, timer: Timer) -> bool {
        self.single.contains(&timer)
    }

    /// Removes a deadline.
    pub(crate) fn disarm(&mut self, at: Timestamp, timer: Timer) {
        self.all.disarm(at, timer);
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.all.next()
    }

    /// Removes and returns the earliest deadline that has passed at `now`.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        let timer = self.all.pop_due(now)?;
        self.single.remove(&timer);
        Some(timer)
    }

    /// True if the deadline is pending.
    pub(crate) fn contains(&self, at: Timestamp, timer: Timer) -> bool {
        self.all.contains(at, timer)
    }
}
