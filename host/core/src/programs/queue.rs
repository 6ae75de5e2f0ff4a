//! The global waiting queue (`ThunderAgent` §4.3.2): unplaced programs that have a step waiting, in
//! the order in which those steps arrived.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use treadle_model::{ProgramId, Timestamp};

/// Maximum number of programs whose needs are added up.
const NEEDS_SUMMED: usize = 1_024;

/// Programs waiting for placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    by_wait: BTreeSet<(Timestamp, ProgramId)>,
    by_need: BTreeSet<(u64, ProgramId)>,
}

impl Queue {
    /// Adds a program that waits since `since` and needs `need_tokens`.
    pub(crate) fn insert(&mut self, since: Timestamp, need_tokens: u64, program: ProgramId) {
        self.by_wait.insert((since, program));
        self.by_need.insert((need_tokens, program));
    }

    /// Removes a program; the arguments are those it was added with.
    pub(crate) fn remove(&mut self, since: Timestamp, need_tokens: u64, program: ProgramId) {
        self.by_wait.remove(&(since, program));
        self.by_need.remove(&(need_tokens, program));
    }

    /// Programs waiting.
    pub fn len(&self) -> usize {
        self.by_wait.len()
    }

    /// True if no program waits.
    pub fn is_empty(&self) -> bool {
        self.by_wait.is_empty()
    }

    /// The smallest need of any waiting program, in tokens.
    pub fn least_need_tokens(&self) -> Option<u64> {
        self.by_need.first().map(|(need, _)| *need)
    }

    /// The needs of those waiting programs that match, in tokens; with very many programs only the
    /// smallest needs are summed.
    pub fn need_tokens(&self, of: impl Fn(&ProgramId) -> bool) -> u64 {
        let needs = self
            .by_need
            .iter()
            .take(NEEDS_SUMMED)
            .filter(|(_, program)| of(program))
            .map(|(need, _)| *need);
        needs.fold(0, u64::saturating_add)
    }

    /// Waiting programs, the longest waiting first.
    pub fn oldest(&self) -> impl Iterator<Item = (Timestamp, ProgramId)> + '_ {
        self.by_wait.iter().copied()
    }

    /// Waiting programs, the smallest need first.
    pub fn smallest(&self) -> impl Iterator<Item = ProgramId> + '_ {
        self.by_need.iter().map(|(_, program)| *program)
    }

    /// True if the program waits with this wait and need.
    pub fn contains(&self, since: Timestamp, need_tokens: u64, program: ProgramId) -> bool {
        self.by_wait.contains(&(since, program)) && self.by_need.contains(&(need_tokens, program))
    }
}
