//! The groups' information about programs when they were asked about, so that the regression learns
//! from what it could know then, and not from what has become known since.

use std::collections::{BTreeMap, VecDeque};

use crate::features::GroupView;

/// Looks that are remembered: more than the steps of a rollout's live programs.
const LOOKS_MAX: usize = 65_536;

/// Views by the digest of program and step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looks {
    known: BTreeMap<u64, GroupView>,
    by_age: VecDeque<u64>,
}

impl Looks {
    /// The information when this program was last asked about after this step.
    pub(crate) fn get(&self, digest: u64) -> Option<&GroupView> {
        self.known.get(&digest)
    }

    /// Remembers a view. Beyond a bound the oldest is forgotten.
    pub(crate) fn put(&mut self, digest: u64, view: GroupView) {
        if self.known.insert(digest, view).is_none() {
            self.by_age.push_back(digest);
        }
        if self.by_age.len() > LOOKS_MAX
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
