//! Records which worker holds a group's prompt: the one that got its first program.

use std::collections::{BTreeMap, VecDeque};

/// Maximum number of groups; the oldest are forgotten.
const GROUPS_MAX: usize = 65_536;

/// Groups and their workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    workers: usize,
    by_group: BTreeMap<u64, u32>,
    oldest: VecDeque<u64>,
}

impl Groups {
    /// Forgets everything if the number of workers has changed, as their rows may have changed.
    pub(crate) fn of_workers(&mut self, workers: usize) {
        if self.workers != workers {
            *self = Self {
                workers,
                ..Self::default()
            };
        }
    }

    /// The worker that holds the group's prompt.
    pub(crate) fn worker(&self, group: u64) -> Option<u32> {
        self.by_group.get(&group).copied()
    }

    /// Records where the group's first program was placed.
    pub(crate) fn record(&mut self, group: u64, worker: u32) {
        if self.by_group.contains_key(&group) {
            return;
        }
        self.by_group.insert(group, worker);
        self.oldest.push_back(group);
        if self.oldest.len() > GROUPS_MAX
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.by_group.remove(&oldest);
        }
    }
}
