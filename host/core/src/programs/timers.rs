//! Deadlines: one enum and one table.

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
    /// A step that waits too long.
    StepWait(StepId),
    /// A program that may be idle; the handler checks again.
    ProgramIdle(ProgramId),
    /// New programs have been gathered long enough.
    Gather,
    /// The question which programs should be elsewhere.
    Migrate,
    /// A transfer that takes too long.
    Transfer(ProgramId),
    /// A link that offloads may use again.
    Link,
}

/// The pending deadlines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timers {
    pending: BTreeSet<(Timestamp, Timer)>,
}

impl Timers {
    /// Adds a deadline.
    pub fn arm(&mut self, at: Timestamp, timer: Timer) {
        self.pending.insert((at, timer));
    }

    /// Takes a deadline back.
    pub fn disarm(&mut self, at: Timestamp, timer: Timer) {
        self.pending.remove(&(at, timer));
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Timestamp> {
        self.pending.first().map(|(at, _)| *at)
    }

    /// Takes out the earliest deadline that has passed at `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.pending.pop_first().map(|(_, timer)| timer)
    }

    /// True if the deadline is pending.
    pub fn contains(&self, at: Timestamp, timer: Timer) -> bool {
        self.pending.contains(&(at, timer))
    }
}
