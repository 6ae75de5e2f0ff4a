//! A model of one LLM inference engine: continuous batching, chunked prefill, paged KV memory with
//! a prefix cache, preemption by recomputation.
//!
//! The engine is sans-IO and deterministic: integer microseconds of virtual time, no clock, no
//! randomness. It has no notion of programs, jobs or policies. A driver submits requests, queries
//! [`Engine::next_event_at`], and calls [`Engine::advance`] at that time, whether it waited for it
//! (the HTTP server) or jumped to it (the simulator).
//!
//! ```
//! use treadle_engine_model::engine::{Engine, EngineProfile, Output, RequestSpec};
//!
//! let mut engine = Engine::new(EngineProfile::qwen3_32b_h100());
//! let spec =
//!     RequestSpec { id: 1, prompt_tokens: 40, output_tokens: 3, blocks: [7, 8].into(), priority: 0 };
//! engine.submit(0, spec).unwrap();
//! let mut outputs = Vec::new();
//! while let Some(at_us) = engine.next_event_at() {
//!     engine.advance(at_us, &mut outputs);
//! }
//! assert!(matches!(outputs.last(), Some(Output::Finished(end)) if end.output_tokens == 3));
//! ```
//!
//! # One iteration
//! Running sequences come first, in order of service: one token each for those that decode, a chunk
//! for those still in prefill. Where memory runs out, the last in that order is preempted: it loses
//! its blocks (they stay cached until someone takes them) and waits again at its old place. If
//! nobody was preempted, waiting requests are admitted while seats, the token budget and memory
//! last, strictly in order. The iteration then takes [`EngineProfile::iteration_us`]; at its end
//! each sequence whose tokens are all computed has one more token.
//!
//! A block is findable from the iteration that computes it. The last generated token's KV is never
//! computed, so a context of `n` tokens leaves `n - 1` tokens, rounded down to blocks, in the cache.
//!
//! # Host memory
//! With [`EngineProfile::host_blocks`] evicted blocks go to host memory, and a prefix may go on
//! there. Its request takes the blocks at once, waits for them to be loaded, and is computed from
//! there on; others are computed meanwhile.

mod blocks;
mod chain;
mod host_tier;
mod leap;
mod memory;
mod priority;
mod profile;
mod profile_json;
mod ranks;
mod request;
mod schedule;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use blocks::{BlockIndex, BlockPool};
use host_tier::HostTier;
use leap::Leap;
use schedule::Blocked;
use sequence::{Sequence, ServiceKey};

pub use chain::{chain_hash, content_hash};
pub use profile::{BLOCK_TOKENS, EngineProfile, IterationLoad, TokensTime};
pub use profile_json::ProfileError;
pub use ranks::Ranks;
pub use request::{
    Counters, EngineSnapshot, FinishReason, Finished, Output, RequestId, RequestSpec, SubmitError,
};

/// One modelled engine.
#[derive(Clone)]
pub struct Engine {
    profile: EngineProfile,
    pool: BlockPool,
    tier: HostTier,
    /// In order of service.
    running: Vec<Sequence>,
    waiting: BTreeMap<ServiceKey, Sequence>,
    keys: BTreeMap<RequestId, ServiceKey>,
    arrivals: u64,
    now_us: u64,
    /// End of the current iteration.
    iteration_end_us: Option<u64>,
    /// Iterations that can follow the current one before anything becomes visible.
    leap: Option<Leap>,
    blocked: Option<Blocked>,
    /// The blocks of the prefix last found; kept to reuse the allocation.
    prefix: Vec<BlockIndex>,
    /// Block edges of a leap: the iteration, the sequence, and whether it fills; kept to reuse the
    /// allocation.
    leap_order: Vec<(u32, u32, bool)>,
    counters: Counters,
}

impl Engine {
    /// An idle engine with empty memory.
    pub fn new(profile: EngineProfile) -> Self {
        Self {
            pool: BlockPool::new(profile.kv_blocks.max(1)),
            tier: HostTier::new(u64::from(profile.host_blocks)),
            profile,
            running: Vec::new(),
            waiting: BTreeMap::new(),
            keys: BTreeMap::new(),
            arrivals: 0,
            now_us: 0,
            iteration_end_us: None,
            leap: None,
            blocked: None,
            prefix: Vec::new(),
            leap_order: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The profile of the engine.
    pub fn profile(&self) -> &EngineProfile {
        &self.profile
    }

    /// Submits a request; it joins the first iteration that starts at or after `now_us` and has
    /// room.
    pub fn submit(&mut self, now_us: u64, spec: RequestSpec) -> Result<(), SubmitError> {
        if spec.prompt_tokens == 0 || spec.output_tokens == 0 {
            return Err(SubmitError::Empty);
        }
        let wanted_tokens = u64::from(spec.prompt_tokens) + u64::from(spec.output_tokens);
        let limit_tokens = self.profile.sequence_limit_tokens();
        if wanted_tokens > u64::from(limit_tokens) {
            return Err(SubmitError::TooLong {
                wanted_tokens,
                limit_tokens,
            });
        }
        if self.keys.contains_key(&spec.id) {
            return Err(SubmitError::DuplicateId(spec.id));
        }
        self.now_us = self.now_us.max(now_us);
        self.arrivals += 1;
        let sequence = Sequence::new(spec, self.arrivals, self.now_us);
        self.keys.insert(sequence.id, sequence.key);
        let first = self.waiting.first_key_value();
        if first.is_none_or(|(key, _)| sequence.key < *key) {
            self.first_waiting_changes(sequence.key);
        }
        self.waiting.insert(sequence.key, sequence);
        Ok(())
    }

    /// Aborts a request and frees its blocks at once; `None` if the engine does not have it. The
    /// current iteration keeps its length.
    pub fn abort(&mut self, now_us: u64, id: RequestId) -> Option<Finished> {
        let key = self.keys.remove(&id)?;
        self.leap = None;
        self.now_us = self.now_us.max(now_us);
        let mut sequence = if let Some(waiting) = self.waiting.remove(&key) {
            waiting
        } else {
            let place = self
                .running
                .binary_search_by_key(&key, |each| each.key)
                .ok()?;
            self.running.remove(place)
        };
        sequence.release(&mut self.pool);
        self.counters.aborted_requests += 1;
        Some(sequence.finish(self.now_us, FinishReason::Aborted))
    }

    /// Time at which [`advance`](Self::advance) has something to report or to decide, in
    /// microseconds; `None` when idle. Iterations in which sequences only decode and no report is
    /// due are skipped. The time stays the same until then, unless a method that changes the engine
    /// is called.
    pub fn next_event_at(&self) -> Option<u64> {
        match (&self.leap, self.iteration_end_us) {
            (Some(leap), _) => Some(leap.end_us),
            (None, Some(end_us)) => Some(end_us),
            (None, None) if self.waiting.is_empty() && self.running.is_empty() => None,
            (None, None) => Some(self.now_us),
        }
    }

    /// Runs all iterations that end at or before `until_us` and appends what they produced, in
    /// order of time. Iterations follow each other without a gap while there is work.
    pub fn advance(&mut self, until_us: u64, outputs: &mut Vec<Output>) {
        loop {
            let start_us = match self.iteration_end_us {
                Some(end_us) if end_us > until_us => break,
                Some(end_us) => {
                    if self.leap.is_some() {
                        self.fly(end_us, until_us);
                        continue;
                    }
                    self.complete_iteration(end_us, outputs);
                    end_us
                }
                None if self.now_us > until_us => break,
                None => self.now_us,
            };
            self.iteration_end_us = self.start_iteration(start_us, outputs);
            if self.iteration_end_us.is_none() {
                break;
            }
        }
        self.now_us = self.now_us.max(until_us);
    }

    /// The state of the engine.
    pub fn snapshot(&self) -> EngineSnapshot {
        EngineSnapshot {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            used_blocks: self.pool.used(),
            total_blocks: self.pool.total(),
            counters: Counters {
                evicted_blocks: self.counters.evicted_blocks + self.pool.evicted(),
                ..self.counters
            },
        }
    }

    /// Checks all invariants of memory and queues: slow, for checkers. The error names the violated
    /// one.
    pub fn audit(&self) -> Result<(), String> {
        self.pool
            .audit(self.running.iter().flat_map(|each| &each.blocks))?;
        if self.pool.free() + self.pool.used() != self.pool.total() {
            return Err("free and used blocks do not add up".to_owned());
        }
        if !self.running.is_sorted_by_key(|each| each.key) {
            return Err("running sequences are out of order".to_owned());
        }
        if self.waiting.values().any(|each| !each.blocks.is_empty()) {
            return Err("a waiting request holds blocks".to_owned());
        }
        if self.keys.len() != self.running.len() + self.waiting.len() {
            return Err("a request was lost or doubled".to_owned());
        }
        let slots = self.slots();
        if self.running.len() > slots {
            return Err(format!("{} sequences on {slots} slots", self.running.len()));
        }
        Ok(())
    }
}
