//! Preemption by priority: a waiting request preempts one that it outranks.
//!
//! Heddle's Algorithm 1 (§4.2), as SGLang runs it: whenever the first in the queue outranks the
//! lowest in service and cannot run beside it, that one is evicted, its blocks stay in the prefix
//! cache, and it queues again. Ties never preempt. Admission is strictly in order, so a preempted
//! request comes back only after the one that preempted it was served: no two requests can preempt
//! each other in turn, and a request is preempted at most once for each that outranks it.

use super::schedule::fits;
use super::sequence::ServiceKey;
use super::{Engine, Output};

impl Engine {
    /// Frees slots and memory for waiting requests that outrank running ones.
    pub(super) fn yield_to_priority(&mut self, start_us: u64, outputs: &mut Vec<Output>) {
        if !self.profile.preempt_by_priority {
            return;
        }
        while self.first_waiting_outranks_last_running() && !self.has_room_for_first_waiting() {
            self.preempt_last(start_us, outputs);
            self.counters.priority_preemptions += 1;
        }
    }

    pub(super) fn first_waiting_outranks_last_running(&self) -> bool {
        let first = self.waiting.first_key_value();
        first.is_some_and(|(key, _)| self.outranks_last_running(*key))
    }

    pub(super) fn outranks_last_running(&self, key: ServiceKey) -> bool {
        self.profile.preempt_by_priority
            && self.running.last().is_some_and(|last| key.0 < last.key.0)
    }

    /// Whether slots and memory suffice for it in addition to what running requests need in the
    /// next iteration. A used-up token budget is no reason to preempt.
    fn has_room_for_first_waiting(&mut self) -> bool {
        let block_tokens = self.profile.block_tokens;
        if self.running.len() >= self.slots() {
            return false;
        }
        let mut budget = self.profile.batched_tokens_max.max(1);
        let mut wanted = 0;
        for sequence in &self.running {
            let tokens = (sequence.total_tokens() - sequence.computed_tokens).min(budget);
            wanted += sequence.blocks_wanted(tokens, block_tokens);
            budget -= tokens;
        }
        let Some(free) = self.pool.free().checked_sub(wanted) else {
            return false;
        };
        let Some((_, first)) = self.waiting.first_key_value() else {
            return true;
        };
        if budget == 0 {
            return true;
        }
        let hit = first.find_prefix(&self.pool, &self.tier, block_tokens, &mut self.prefix);
        let tokens = (first.total_tokens() - hit.all_blocks() * block_tokens).min(budget);
        fits(hit, tokens, block_tokens, free)
    }
}
