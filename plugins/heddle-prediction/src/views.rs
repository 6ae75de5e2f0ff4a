//! The group features of programs at the time of their predictions, so that the regression learns
//! from what it could know then, not from what became known later.

use std::collections::{BTreeMap, VecDeque};

use crate::features::GroupView;

/// Maximum number of views: more than the steps of a rollout's live programs.
const VIEWS_MAX: usize = 65_536;

/// Group features by the digest of program and step.
#[derive(Debug, Clone, Default)]
pub(crate) struct ViewHistory {
    known: BTreeMap<u64, GroupView>,
    by_age: VecDeque<u64>,
}

impl ViewHistory {
    /// The features when this program was last predicted after this step.
    pub(crate) fn get(&self, digest: u64) -> Option<&GroupView> {
        self.known.get(&digest)
    }

    /// Stores a view. Beyond the limit the oldest is forgotten.
    pub(crate) fn put(&mut self, digest: u64, view: GroupView) {
        if self.known.insert(digest, view).is_none() {
            self.by_age.push_back(digest);
        }
        if self.by_age.len() > VIEWS_MAX
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// All, the oldest first.
    pub(crate) fn oldest_first(&self) -> impl ExactSizeIterator<Item = (u64, &GroupView)> {
        self.by_age
            .iter()
            .map(|digest| (*digest, &self.known[digest]))
    }
}
