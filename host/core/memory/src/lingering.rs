//! Caches of programs that have left a worker, as far as its engine still has them.
//!
//! Engines with paged memory evict the least recently used cache, and know nothing of placements: a
//! program that left after a late last step has a more recent cache than one that has been in a
//! tool call for longer, and whose cache is to be kept. So a kept cache is safe only while
//! everything that was used after it fits beside it.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Timestamp};

/// The caches that linger at one worker.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Lingering {
    /// Tokens and last use of each cache.
    caches: BTreeMap<ProgramId, (Timestamp, u64)>,
    /// The caches by last use, the least recently used first.
    by_use: BTreeSet<(Timestamp, ProgramId)>,
    /// Tokens of all caches.
    tokens: u64,
}

impl Lingering {
    /// True if none lingers.
    pub(super) fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }

    /// Tokens of all caches.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Adds the cache of a program that left. Beyond the capacity the oldest caches count as
    /// evicted.
    pub(super) fn leave(
        &mut self,
        program: ProgramId,
        used_at: Timestamp,
        tokens: u64,
        capacity_tokens: u64,
    ) {
        self.come_back(program);
        self.caches.insert(program, (used_at, tokens));
        self.by_use.insert((used_at, program));
        self.tokens = self.tokens.saturating_add(tokens);
        while self.tokens > capacity_tokens {
            let Some((_, oldest)) = self.by_use.first().copied() else {
                return;
            };
            self.come_back(oldest);
        }
    }

    /// Removes a cache that was evicted or belongs to a placed program again.
    pub(super) fn come_back(&mut self, program: ProgramId) {
        if let Some((used_at, tokens)) = self.caches.remove(&program) {
            self.by_use.remove(&(used_at, program));
            self.tokens = self.tokens.saturating_sub(tokens);
        }
    }

    /// Removes caches that are evicted before any cache that is to be kept: those used no later
    /// than `than`, or all if none is to be kept.
    pub(super) fn forget_older(&mut self, than: Option<Timestamp>) {
        while let Some((used_at, program)) = self.by_use.first().copied() {
            if than.is_some_and(|than| used_at > than) {
                return;
            }
            self.come_back(program);
        }
    }

    /// Recomputes its sums; for tests.
    pub(super) fn assert_sums(&self) {
        let sum: u64 = self.caches.values().map(|(_, tokens)| *tokens).sum();
        assert_eq!(sum, self.tokens, "tokens of what lingers");
        let by_use = self.caches.iter().map(|(program, (at, _))| (*at, *program));
        let by_use: BTreeSet<_> = by_use.collect();
        assert_eq!(by_use, self.by_use, "what lingers, by its last use");
    }
}

#[cfg(test)]
mod tests {
    use super::Lingering;
    use treadle_model::{ProgramId, Timestamp};

    fn three() -> Lingering {
        let mut all = Lingering::default();
        for (program, at) in [(1, 10), (2, 30), (3, 20)] {
            all.leave(ProgramId(program), Timestamp(at), 100, 1_000);
        }
        all.assert_sums();
        all
    }

    #[test]
    fn what_is_older_than_anything_kept_does_not_matter() {
        let mut all = three();
        all.forget_older(Some(Timestamp(20)));
        assert_eq!(all.tokens(), 100, "only what was used later precedes it");
        all.forget_older(None);
        assert!(all.is_empty());
        all.assert_sums();
    }

    #[test]
    fn a_full_engine_has_evicted_the_oldest() {
        let mut all = three();
        all.leave(ProgramId(4), Timestamp(40), 100, 250);
        assert_eq!(all.tokens(), 200);
        all.come_back(ProgramId(4));
        all.come_back(ProgramId(1));
        assert_eq!(all.tokens(), 100, "the newest of the others is left");
        all.assert_sums();
    }

    #[test]
    fn a_program_that_leaves_twice_lingers_once() {
        let mut all = three();
        all.leave(ProgramId(1), Timestamp(50), 300, 1_000);
        assert_eq!(all.tokens(), 500);
        all.assert_sums();
    }
}
