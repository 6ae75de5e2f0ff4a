//! One iteration: which sequences take part, which are preempted, and what is generated.

use super::blocks::BlockPool;
use super::request::{FinishReason, Output};
use super::sequence::{PrefixHit, Sequence, ServiceKey};
use super::{Engine, IterationLoad};

/// Interval at which an engine that only waits for blocks checks for new requests, in microseconds.
const LOOK_US: u64 = 5_000;

/// Why the first waiting request did not fit, so that the next iterations need not walk its prefix
/// again.
#[derive(Clone, Copy)]
pub(super) struct Blocked {
    key: ServiceKey,
    pub(super) hit_blocks: u32,
    free_blocks: u32,
    budget_tokens: u32,
}

impl Blocked {
    /// The request stays blocked while no block became free, the token budget did not shrink (a
    /// smaller chunk needs less), and its prefix is unchanged: not longer, and none of it evicted.
    /// A shorter prefix can mean a chunk that is cut and takes less; and a block that was evicted
    /// and computed again by another sequence is held, although it was free.
    pub(super) fn still_holds(
        &self,
        sequence: &Sequence,
        pool: &BlockPool,
        budget_tokens: u32,
    ) -> bool {
        let next_block = sequence.hash_at(self.hit_blocks);
        self.key == sequence.key
            && pool.free() <= self.free_blocks
            && budget_tokens >= self.budget_tokens
            && !pool.watch_broken()
            && next_block.is_none_or(|hash| pool.lookup(hash).is_none())
    }
}

/// An iteration that has begun.
pub(super) struct Begun {
    /// Its end, in microseconds.
    pub(super) end_us: u64,
    /// What it computes.
    pub(super) load: IterationLoad,
    /// Tokens that it could have computed in addition.
    budget_tokens: u32,
}

impl Engine {
    /// Plans an iteration, and those that can follow it, and returns its end, or when to check for
    /// blocks again; `None` if there is nothing to compute.
    pub(super) fn start_iteration(
        &mut self,
        start_us: u64,
        outputs: &mut Vec<Output>,
    ) -> Option<u64> {
        let Some(begun) = self.begin_iteration(start_us, outputs) else {
            return self.next_look_for_loads(start_us);
        };
        self.plan_leap(begun.end_us, begun.load, begun.budget_tokens);
        Some(begun.end_us)
    }

    /// Plans one iteration; `None` if there is nothing to compute.
    pub(super) fn begin_iteration(
        &mut self,
        start_us: u64,
        outputs: &mut Vec<Output>,
    ) -> Option<Begun> {
        let mut load = IterationLoad::default();
        let mut budget = self.profile.batched_tokens_max.max(1);
        self.leap = None;
        self.yield_to_priority(start_us, outputs);
        let preempted = self.schedule_running(start_us, &mut budget, &mut load, outputs);
        if !preempted {
            self.admit_waiting(start_us, &mut budget, &mut load);
        }
        if load == IterationLoad::default() {
            return None;
        }
        load.passes_milli += self.profile.decode_passes_milli(load.decode_sequences);
        let length_us = self.profile.iteration_us(load);
        self.counters.iterations += 1;
        self.counters.busy_us += length_us;
        self.counters.prefilled_tokens += load.prefill_tokens;
        Some(Begun {
            end_us: start_us + length_us,
            load,
            budget_tokens: budget,
        })
    }

    /// Time of the next check while nothing can be computed before blocks are loaded.
    pub(super) fn next_look_for_loads(&self, start_us: u64) -> Option<u64> {
        let loads = self.running.iter().map(|each| each.loading_until_us);
        let first = loads.filter(|until_us| *until_us > start_us).min()?;
        Some(first.min(start_us + LOOK_US))
    }

    fn schedule_running(
        &mut self,
        start_us: u64,
        budget: &mut u32,
        load: &mut IterationLoad,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let block_tokens = self.profile.block_tokens;
        let mut preempted = false;
        let mut place = 0;
        while place < self.running.len() {
            let sequence = &mut self.running[place];
            let tokens = (sequence.total_tokens() - sequence.computed_tokens).min(*budget);
            if tokens == 0 || sequence.loading_until_us > start_us {
                place += 1;
                continue;
            }
            if let Some(again) =
                sequence.schedule(&mut self.pool, &mut self.tier, tokens, block_tokens)
            {
                add_to_load(load, sequence, tokens);
                self.counters.recomputed_tokens += u64::from(again);
                *budget -= tokens;
                place += 1;
            } else {
                // The last in order is preempted, even if it is this one: those before it are
                // scheduled.
                self.preempt_last(start_us, outputs);
                self.counters.preemptions += 1;
                preempted = true;
            }
        }
        preempted
    }

    /// Preempts the last in order: it loses its memory and waits at its old position.
    pub(super) fn preempt_last(&mut self, at_us: u64, outputs: &mut Vec<Output>) {
        let Some(mut victim) = self.running.pop() else {
            return;
        };
        victim.release(&mut self.pool);
        victim.preemptions += 1;
        outputs.push(Output::Preempted {
            id: victim.id,
            at_us,
        });
        self.waiting.insert(victim.key, victim);
    }

    fn admit_waiting(&mut self, start_us: u64, budget: &mut u32, load: &mut IterationLoad) {
        let block_tokens = self.profile.block_tokens;
        while *budget > 0 && self.running.len() < self.slots() {
            let Some(first) = self.waiting.first_entry() else {
                return;
            };
            let sequence = first.get();
            let blocked = self.blocked;
            // The content of host memory changes with every eviction.
            let known = blocked.filter(|_| self.tier.is_absent());
            if known.is_some_and(|each| each.still_holds(sequence, &self.pool, *budget)) {
                return;
            }
            let hit = sequence.find_prefix(&self.pool, &self.tier, block_tokens, &mut self.prefix);
            let rest = sequence.total_tokens() - hit.all_blocks() * block_tokens;
            let tokens = rest.min(*budget);
            if !fits(hit, tokens, block_tokens, self.pool.free()) {
                self.blocked = Some(Blocked {
                    key: sequence.key,
                    hit_blocks: hit.blocks,
                    free_blocks: self.pool.free(),
                    budget_tokens: *budget,
                });
                self.pool.watch(&self.prefix);
                return;
            }
            self.blocked = None;
            let sequence = first.remove();
            *budget -= self.admit(start_us, sequence, hit, tokens, load);
        }
    }

    /// Allocates a request's memory, and returns how many of the iteration's tokens it takes.
    fn admit(
        &mut self,
        start_us: u64,
        mut sequence: Sequence,
        hit: PrefixHit,
        tokens: u32,
        load: &mut IterationLoad,
    ) -> u32 {
        let block_tokens = self.profile.block_tokens;
        if sequence.cached_tokens.is_none() {
            self.counters.prefix_queries_tokens += u64::from(sequence.prompt_tokens);
            self.counters.prefix_hits_tokens += u64::from(hit.all_blocks() * block_tokens);
            self.counters.host_hits_tokens += u64::from(hit.host_blocks * block_tokens);
        }
        sequence.take_prefix(&mut self.pool, &self.prefix, block_tokens);
        let place = self.running.partition_point(|each| each.key < sequence.key);
        if hit.host_blocks > 0 {
            self.load_from_host(start_us, &mut sequence, hit.host_blocks);
            self.running.insert(place, sequence);
            return 0;
        }
        sequence
            .cached_tokens
            .get_or_insert(sequence.computed_tokens);
        let again = sequence.schedule(&mut self.pool, &mut self.tier, tokens, block_tokens);
        debug_assert!(again.is_some(), "admission checked the memory");
        self.counters.recomputed_tokens += u64::from(again.unwrap_or(0));
        add_to_load(load, &sequence, tokens);
        self.running.insert(place, sequence);
        tokens
    }

    fn load_from_host(&mut self, start_us: u64, sequence: &mut Sequence, blocks: u32) {
        let block_tokens = self.profile.block_tokens;
        sequence.take_from_host(&mut self.pool, &mut self.tier, blocks, block_tokens);
        sequence
            .cached_tokens
            .get_or_insert(sequence.computed_tokens);
        let tokens = u64::from(blocks * block_tokens);
        self.counters.loaded_tokens += tokens;
        let speed = self.profile.host_tokens_per_s;
        sequence.loading_until_us = self.tier.load(start_us, tokens, speed);
    }

    /// Ends the iteration: one token for each sequence whose tokens are all computed.
    pub(super) fn complete_iteration(&mut self, at_us: u64, outputs: &mut Vec<Output>) {
        self.now_us = self.now_us.max(at_us);
        self.iteration_end_us = None;
        let mut running = std::mem::take(&mut self.running);
        running.retain_mut(|sequence| {
            let took_part = std::mem::take(&mut sequence.scheduled_tokens) > 0;
            if !took_part || sequence.computed_tokens < sequence.total_tokens() {
                return true;
            }
            self.counters.generation_tokens += 1;
            sequence.generated_tokens += 1;
            report_token(
                sequence,
                at_us,
                self.profile.stream_interval_tokens,
                outputs,
            );
            if sequence.is_complete() {
                self.finish(sequence, at_us, outputs);
                return false;
            }
            true
        });
        self.running = running;
    }

    fn finish(&mut self, sequence: &mut Sequence, at_us: u64, outputs: &mut Vec<Output>) {
        sequence.release(&mut self.pool);
        self.keys.remove(&sequence.id);
        self.counters.finished_requests += 1;
        self.counters.prompt_tokens += u64::from(sequence.prompt_tokens);
        outputs.push(Output::Finished(
            sequence.finish(at_us, FinishReason::Generated),
        ));
    }
}

pub(super) fn fits(hit: PrefixHit, tokens: u32, block_tokens: u32, free_blocks: u32) -> bool {
    let end = (hit.all_blocks() * block_tokens + tokens).div_ceil(block_tokens);
    end - hit.blocks + hit.free_blocks <= free_blocks
}

fn add_to_load(load: &mut IterationLoad, sequence: &Sequence, tokens: u32) {
    let decodes = tokens == 1
        && sequence.generated_tokens > 0
        && sequence.computed_tokens == sequence.total_tokens();
    if decodes {
        load.decode_sequences += 1;
        load.decode_context_tokens += u64::from(sequence.computed_tokens);
    } else {
        let tokens = u64::from(tokens);
        load.add_chunk(u64::from(sequence.computed_tokens) - tokens, tokens);
    }
}

fn report_token(
    sequence: &mut Sequence,
    at_us: u64,
    interval_tokens: u32,
    outputs: &mut Vec<Output>,
) {
    let id = sequence.id;
    if sequence.first_token_at_us.is_none() {
        sequence.first_token_at_us = Some(at_us);
        let cached_tokens = sequence.cached_tokens.unwrap_or(0);
        outputs.push(Output::FirstToken {
            id,
            at_us,
            cached_tokens,
        });
        return;
    }
    sequence.unreported_tokens += 1;
    if interval_tokens == u32::MAX {
        return;
    }
    if sequence.unreported_tokens >= interval_tokens || sequence.is_complete() {
        let count = std::mem::take(&mut sequence.unreported_tokens);
        outputs.push(Output::Tokens { id, at_us, count });
    }
}
