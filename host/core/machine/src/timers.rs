//! Deadlines of a machine: what each is for, by when it passes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use treadle_model::Timestamp;

/// The pending deadlines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timers<T: Ord> {
    pending: BTreeSet<(Timestamp, T)>,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Self {
        Self {
            pending: BTreeSet::new(),
        }
    }
}

impl<T: Ord> Timers<T> {
    /// Adds a deadline.
    pub fn arm(&mut self, at: Timestamp, timer: T) {
        self.pending.insert((at, timer));
    }

    /// Removes a deadline.
    pub fn disarm(&mut self, at: Timestamp, timer: T) {
        self.pending.remove(&(at, timer));
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Timestamp> {
        self.pending.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest deadline that has passed at `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.pending.pop_first().map(|(_, timer)| timer)
    }

    /// True if the deadline is pending.
    pub fn contains(&self, at: Timestamp, timer: T) -> bool {
        self.pending.contains(&(at, timer))
    }

    /// Number of pending deadlines.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// True without deadlines.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
