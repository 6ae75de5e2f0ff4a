//! Operations on the engine's memory: querying its prefix cache, importing blocks, and failing.

use super::blocks::BlockPool;
use super::request::{FinishReason, Finished};
use super::{Engine, Sequence};

impl Engine {
    /// Removes all unreferenced cached blocks.
    pub fn reset_prefix_cache(&mut self) {
        self.pool.forget_free();
        self.tier.clear();
        self.memory_changed();
    }

    /// Number of leading tokens of a context with these block hashes that are cached now: those
    /// that a step need not compute, and that a move would transfer.
    pub fn cached_prefix_tokens(&self, blocks: &[u64]) -> u64 {
        let found = blocks
            .iter()
            .take_while(|hash| self.pool.lookup(**hash).is_some())
            .count();
        found as u64 * u64::from(self.profile.block_tokens)
    }

    /// Imports blocks from another engine into the prefix cache, as if a request with them had just
    /// ended: the least recently used unreferenced blocks are evicted for them. Returns how many
    /// leading blocks the cache has now; fewer than all if sequences use the rest of memory.
    pub fn import(&mut self, now_us: u64, blocks: &[u64]) -> u32 {
        self.now_us = self.now_us.max(now_us);
        let mut held = Vec::with_capacity(blocks.len());
        for hash in blocks {
            if let Some(index) = self.pool.lookup(*hash) {
                self.pool.hold(index);
                held.push(index);
            } else if let Some(index) = self.pool.allocate(&mut self.tier) {
                self.pool.register(index, *hash);
                self.counters.imported_blocks += 1;
                held.push(index);
            } else {
                break;
            }
        }
        let count = held.len() as u32;
        self.pool.release_all(&mut held);
        self.memory_changed();
        count
    }

    /// Simulates a failure: all requests end as aborted, in order of service, and memory is lost.
    /// The engine accepts requests again at once; a driver that models the restart time must wait
    /// before sending any.
    pub fn fail(&mut self, now_us: u64) -> Vec<Finished> {
        self.now_us = self.now_us.max(now_us);
        // While it only waits for blocks from host memory it computes nothing.
        let computes = self.running.iter().any(|each| each.scheduled_tokens > 0);
        let lost_us = self.iteration_end_us.take().filter(|_| computes);
        let lost_us = lost_us.map_or(0, |end_us| end_us.saturating_sub(self.now_us));
        self.counters.busy_us -= lost_us;
        self.counters.evicted_blocks += self.pool.evicted();
        self.pool = BlockPool::new(self.pool.total());
        self.tier.clear();
        self.memory_changed();
        self.keys.clear();
        let mut all: Vec<Sequence> = std::mem::take(&mut self.running);
        all.extend(std::mem::take(&mut self.waiting).into_values());
        all.sort_by_key(|each| each.key);
        self.counters.aborted_requests += all.len() as u64;
        all.iter()
            .map(|each| each.finish(self.now_us, FinishReason::Aborted))
            .collect()
    }

    fn memory_changed(&mut self) {
        self.blocked = None;
        self.leap = None;
    }
}
