//! Host memory of an engine, to which evicted blocks are offloaded and from which they are loaded.
//!
//! Models what vLLM's CPU offloading and `SGLang`'s `HiCache` have in common: blocks that the pool
//! evicts go to host memory, from which the least recently used ones are evicted in turn, and a
//! request whose prefix continues there waits until those blocks are loaded, while others run.
//! Copies to the host are assumed to cost nothing, as they overlap with the engine's work. Loads
//! share one link, first come, first served.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use super::blocks::HashedKey;

/// The blocks in host memory, and the link.
#[derive(Clone, Default)]
pub(super) struct HostTier {
    capacity_blocks: u64,
    /// The order number of each block, and the block with each number.
    held: HashMap<u64, u64, BuildHasherDefault<HashedKey>>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    /// Time at which the link becomes free, in microseconds.
    link_free_us: u64,
}

impl HostTier {
    pub(super) fn new(capacity_blocks: u64) -> Self {
        Self {
            capacity_blocks,
            ..Self::default()
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.capacity_blocks == 0
    }

    pub(super) fn holds(&self, hash: u64) -> bool {
        self.held.contains_key(&hash)
    }

    /// Stores a block that the pool has evicted.
    pub(super) fn store(&mut self, hash: u64) {
        if self.is_absent() {
            return;
        }
        self.uses += 1;
        if let Some(before) = self.held.insert(hash, self.uses) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, hash);
        while self.held.len() as u64 > self.capacity_blocks {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.held.remove(&oldest);
        }
    }

    /// Removes a block that is loaded by the pool.
    pub(super) fn take(&mut self, hash: u64) {
        if let Some(at) = self.held.remove(&hash) {
            self.by_use.remove(&at);
        }
    }

    /// The end of a load that begins at `now_us`, in microseconds.
    pub(super) fn load(&mut self, now_us: u64, tokens: u64, tokens_per_s: u64) -> u64 {
        let takes_us = (tokens * 1_000_000).div_ceil(tokens_per_s.max(1));
        self.link_free_us = self.link_free_us.max(now_us) + takes_us;
        self.link_free_us
    }

    /// Removes all blocks.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.capacity_blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::HostTier;

    #[test]
    fn the_block_that_came_first_makes_room() {
        let mut tier = HostTier::new(2);
        for hash in [1, 2, 1, 3] {
            tier.store(hash);
        }
        assert_eq!([1, 2, 3].map(|hash| tier.holds(hash)), [true, false, true]);
        tier.take(1);
        tier.store(4);
        assert!(tier.holds(3) && tier.holds(4));
    }

    #[test]
    fn loads_follow_each_other_on_the_link() {
        let mut tier = HostTier::new(1);
        assert_eq!(tier.load(1_000, 100, 100_000), 2_000);
        assert_eq!(tier.load(1_500, 100, 100_000), 3_000);
        assert_eq!(tier.load(9_000, 100, 100_000), 10_000);
    }
}
