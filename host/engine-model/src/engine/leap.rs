//! Runs many iterations at once while sequences only decode and nothing is visible outside.
//!
//! While an iteration is in progress in which every running sequence decodes one token, the engine
//! computes how many more such iterations can follow before anything becomes visible: a report, a
//! finish, an admission, a preemption. They are then run together. The result is the same as one by
//! one: times are added up individually, because each is rounded, and blocks are taken and made
//! findable in the same order.

use super::{Engine, IterationLoad};

/// Iterations that can follow the current one before anything becomes visible.
#[derive(Clone, Debug)]
pub(super) struct Leap {
    /// Their number, at least one.
    iterations: u32,
    /// Load of the current iteration.
    load: IterationLoad,
    /// End of the last of them, in microseconds.
    pub(super) end_us: u64,
}

impl Engine {
    /// Plans the leap after the iteration that was just started.
    pub(super) fn plan_leap(&mut self, end_us: u64, load: IterationLoad, budget_tokens: u32) {
        if load.prefill_tokens > 0 || load.decode_sequences < self.running.len() as u64 {
            return;
        }
        let interval = self.profile.stream_interval_tokens;
        let mut report = u32::MAX;
        for sequence in &self.running {
            if !sequence.just_decodes() {
                return;
            }
            report = report.min(sequence.tokens_to_report(interval));
            if report <= 1 {
                return;
            }
        }
        let Some(iterations) = self.limit_by_waiting(report - 1, budget_tokens) else {
            return;
        };
        if iterations == 0 {
            return;
        }
        let mut leap = Leap {
            iterations,
            load,
            end_us,
        };
        let without_ns = self.profile.without_context_ns(load);
        let mut context_tokens = load.decode_context_tokens;
        for _ in 0..iterations {
            context_tokens += load.decode_sequences;
            leap.end_us += self.profile.with_context_us(without_ns, context_tokens);
        }
        self.leap = Some(leap);
    }

    /// How many of `iterations` pass before memory runs out or the first waiting request must be
    /// checked again; `None` if that is due at the next one.
    fn limit_by_waiting(&mut self, iterations: u32, budget_tokens: u32) -> Option<u32> {
        let free = self.pool.free();
        let Some((_, first)) = self.waiting.first_key_value() else {
            return Some(self.limit_by_blocks(iterations, free));
        };
        if self.first_waiting_outranks_last_running() {
            return None;
        }
        if self.running.len() >= self.slots() {
            return Some(self.limit_by_blocks(iterations, free));
        }
        let blocked = self
            .blocked
            .filter(|_| self.tier.is_absent())
            .filter(|each| each.still_holds(first, &self.pool, budget_tokens))?;
        let mut iterations = iterations;
        if let Some(hash) = first.hash_at(blocked.hit_blocks) {
            // A chained hash has one position: only a sequence that fills that block can find it.
            let end = (blocked.hit_blocks + 1) * self.profile.block_tokens;
            for sequence in &self.running {
                let ahead = end.checked_sub(sequence.computed_tokens);
                if sequence.hash_at(blocked.hit_blocks) == Some(hash)
                    && let Some(ahead) = ahead.filter(|ahead| *ahead > 0)
                {
                    iterations = iterations.min(ahead - 1);
                }
            }
        }
        let iterations = self.limit_by_blocks(iterations, free);
        let unwatched = self.pool.free_before_watched(self.blocks_taken(iterations));
        Some(self.limit_by_blocks(iterations, unwatched))
    }

    /// How many of `iterations` need at most `blocks` blocks.
    fn limit_by_blocks(&mut self, iterations: u32, blocks: u32) -> u32 {
        let block_tokens = u64::from(self.profile.block_tokens);
        let most = (u64::from(iterations) / block_tokens + 1) * self.running.len() as u64;
        if most <= u64::from(blocks) || self.blocks_taken(iterations) <= blocks {
            return iterations;
        }
        let (mut enough, mut too_many) = (0, iterations);
        while too_many - enough > 1 {
            let middle = enough + (too_many - enough) / 2;
            if self.blocks_taken(middle) <= blocks {
                enough = middle;
            } else {
                too_many = middle;
            }
        }
        enough
    }

    /// Number of blocks that decoding for `iterations` takes.
    fn blocks_taken(&self, iterations: u32) -> u32 {
        let block_tokens = self.profile.block_tokens;
        let each = |sequence: &super::Sequence| sequence.blocks_wanted(iterations, block_tokens);
        let total: u64 = self.running.iter().map(|it| u64::from(each(it))).sum();
        total.min(u64::from(u32::MAX)) as u32
    }

    /// Runs the iterations of the leap that start by `until_us`; the current one ends at `end_us`.
    pub(super) fn fly(&mut self, mut end_us: u64, until_us: u64) {
        let Some(mut leap) = self.leap.take() else {
            return;
        };
        let begin_us = end_us;
        let without_ns = self.profile.without_context_ns(leap.load);
        let sequences = leap.load.decode_sequences;
        let mut done = 0;
        if until_us >= leap.end_us {
            done = leap.iterations;
            end_us = leap.end_us;
            leap.load.decode_context_tokens += sequences * u64::from(done);
        }
        while done < leap.iterations && end_us <= until_us {
            leap.load.decode_context_tokens += sequences;
            let context_tokens = leap.load.decode_context_tokens;
            end_us += self.profile.with_context_us(without_ns, context_tokens);
            done += 1;
        }
        self.take_blocks(done);
        for sequence in &mut self.running {
            sequence.decode_on(done);
        }
        self.counters.iterations += u64::from(done);
        self.counters.generation_tokens += u64::from(done) * sequences;
        self.counters.busy_us += end_us - begin_us;
        self.iteration_end_us = Some(end_us);
        leap.iterations -= done;
        self.leap = Some(leap).filter(|leap| leap.iterations > 0);
    }

    /// Takes and fills blocks as `iterations` of decoding would, in the same order. In an iteration
    /// only sequences at the edge of a block touch blocks, and the pattern repeats every
    /// `block_tokens` iterations.
    fn take_blocks(&mut self, iterations: u32) {
        let block_tokens = self.profile.block_tokens;
        let mut order = std::mem::take(&mut self.leap_order);
        order.clear();
        for (place, sequence) in self.running.iter().enumerate() {
            // The iterations, counted from one, in which it starts and fills a block.
            let begin = (block_tokens - sequence.computed_tokens % block_tokens) % block_tokens + 1;
            let fill = block_tokens - sequence.computed_tokens % block_tokens;
            order.extend(
                [(begin, place as u32, false), (fill, place as u32, true)]
                    .into_iter()
                    .filter(|(iteration, ..)| *iteration <= iterations),
            );
        }
        order.sort_unstable();
        let mut passed = 0;
        while !order.is_empty() {
            for (iteration, place, fills) in &order {
                if iteration + passed > iterations {
                    break;
                }
                let sequence = &mut self.running[*place as usize];
                sequence.cross_block(&mut self.pool, &mut self.tier, *fills);
            }
            passed += block_tokens;
            if passed >= iterations {
                break;
            }
        }
        self.leap_order = order;
    }

    /// Called when another request becomes the first waiting one: the leap stays valid only if no
    /// request could have been admitted anyway.
    pub(super) fn first_waiting_changes(&mut self, key: super::ServiceKey) {
        if self.running.len() < self.slots() || self.outranks_last_running(key) {
            self.leap = None;
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.profile.running_max.max(1) as usize
    }
}
