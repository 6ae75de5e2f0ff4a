//! An endpoint with data parallelism whose ranks step together.
//!
//! Mixtures of experts are served like this: each rank has its own requests, KV memory and prefix
//! cache, but the experts are spread over all ranks, which exchange tokens in every layer. So an
//! iteration begins at the same time at all ranks and takes as long as at the slowest one; a rank
//! without requests takes part with a dummy batch.
//!
//! The experts compute the prompt tokens of all ranks, so of a prompt at one rank only the rest of
//! the work falls on that rank. A profile's speed of prefill is a rank's while all compute as many
//! prompt tokens.

use super::{Engine, EngineProfile, EngineSnapshot, Finished, IterationLoad, Output};
use super::{RequestId, RequestSpec, SubmitError};

/// How much more a waiting request counts than a running one when the engine chooses a rank, as in
/// vLLM.
const WAITING_WEIGHT: u32 = 4;

/// Share of the work of a prompt token that experts do, in millionths. Of the 32B active parameters
/// of GLM-4.6 its attention has 12.5B: 92 layers, hidden size 5,120, 96 heads for queries and 8 for
/// keys and values, of dimension 128.
const EXPERTS_PPM: u64 = 600_000;

/// The ranks of one endpoint. A single rank behaves as [`Engine`] does.
#[derive(Clone)]
pub struct Ranks {
    engines: Vec<Engine>,
    /// The rank that is preferred among equally loaded ones; it rotates, as in vLLM.
    preferred: usize,
    now_us: u64,
    /// End of the current iteration of all.
    iteration_end_us: Option<u64>,
    /// What the ranks compute in it; kept to reuse the allocation.
    loads: Vec<IterationLoad>,
}

impl Ranks {
    /// Idle ranks with empty memory, at least one, each of the profile.
    pub fn new(profile: &EngineProfile, count: u32) -> Self {
        let rank = || Engine::new(profile.clone());
        Self {
            engines: (0..count.max(1)).map(|_| rank()).collect(),
            preferred: 0,
            now_us: 0,
            iteration_end_us: None,
            loads: Vec::new(),
        }
    }

    /// Number of ranks.
    pub fn count(&self) -> u32 {
        self.engines.len() as u32
    }

    /// One of the ranks.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rank(&self, rank: u32) -> &Engine {
        &self.engines[rank as usize]
    }

    /// Submits a request to a rank. Without one the endpoint chooses the rank with the fewest
    /// requests, as vLLM does: it knows no caches.
    pub fn submit(
        &mut self,
        now_us: u64,
        rank: Option<u32>,
        spec: RequestSpec,
    ) -> Result<(), SubmitError> {
        let ranks = self.count();
        let rank = rank.map_or_else(|| self.least_loaded(), |rank| rank as usize);
        let Some(engine) = self.engines.get_mut(rank) else {
            let rank = rank as u32;
            return Err(SubmitError::NoRank { rank, ranks });
        };
        engine.submit(now_us, spec)?;
        self.now_us = self.now_us.max(now_us);
        Ok(())
    }

    fn least_loaded(&mut self) -> usize {
        let count = self.engines.len();
        let load = |rank: &usize| {
            let state = self.engines[*rank].snapshot();
            state.waiting * WAITING_WEIGHT + state.running
        };
        let in_turn = (0..count).map(|offset| (self.preferred + offset) % count);
        let least = in_turn.min_by_key(load).unwrap_or(0);
        self.preferred = (least + 1) % count;
        least
    }

    /// Aborts a request wherever it is; see [`Engine::abort`].
    pub fn abort(&mut self, now_us: u64, id: RequestId) -> Option<Finished> {
        let ended = self
            .engines
            .iter_mut()
            .find_map(|rank| rank.abort(now_us, id));
        if ended.is_some() {
            self.now_us = self.now_us.max(now_us);
        }
        ended
    }

    /// Imports blocks into the prefix cache of a rank; see [`Engine::import`].
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn import(&mut self, now_us: u64, rank: u32, blocks: &[u64]) -> u32 {
        self.engines[rank as usize].import(now_us, blocks)
    }

    /// Removes the unreferenced cached blocks of all ranks.
    pub fn reset_prefix_cache(&mut self) {
        self.engines.iter_mut().for_each(Engine::reset_prefix_cache);
    }

    /// Time at which [`advance`](Self::advance) has something to report or to decide, in
    /// microseconds; `None` when all are idle.
    pub fn next_event_at(&self) -> Option<u64> {
        if let [only] = self.engines.as_slice() {
            return only.next_event_at();
        }
        let has_work = || {
            self.engines
                .iter()
                .any(|rank| rank.next_event_at().is_some())
        };
        self.iteration_end_us
            .or_else(|| has_work().then_some(self.now_us))
    }

    /// Runs all iterations that end at or before `until_us` and appends what they produced, in
    /// order of time, and of ranks at equal times.
    pub fn advance(&mut self, until_us: u64, outputs: &mut Vec<Output>) {
        if let [only] = self.engines.as_mut_slice() {
            return only.advance(until_us, outputs);
        }
        loop {
            let start_us = match self.iteration_end_us {
                Some(end_us) if end_us > until_us => break,
                Some(end_us) => {
                    for rank in &mut self.engines {
                        rank.complete_iteration(end_us, outputs);
                    }
                    end_us
                }
                None if self.now_us > until_us => break,
                None => self.now_us,
            };
            self.iteration_end_us = self.start_together(start_us, outputs);
            if self.iteration_end_us.is_none() {
                break;
            }
        }
        self.now_us = self.now_us.max(until_us);
    }

    /// Starts an iteration of all ranks. Returns its end: that of the slowest rank, or, while all
    /// only wait for blocks from host memory, the time of the next check.
    fn start_together(&mut self, start_us: u64, outputs: &mut Vec<Output>) -> Option<u64> {
        self.loads.clear();
        let mut look_us: Option<u64> = None;
        for rank in &mut self.engines {
            if let Some(begun) = rank.begin_iteration(start_us, outputs) {
                self.loads.push(begun.load);
            } else if let Some(at_us) = rank.next_look_for_loads(start_us) {
                look_us = Some(look_us.map_or(at_us, |least| least.min(at_us)));
            }
        }
        let prompts: u64 = self.loads.iter().map(|load| load.prefill_tokens).sum();
        let of_experts = prompts * EXPERTS_PPM / self.engines.len() as u64;
        let profile = self.engines[0].profile();
        let length_us = |load: &IterationLoad| {
            let own = load.prefill_tokens * (1_000_000 - EXPERTS_PPM);
            profile.iteration_us(IterationLoad {
                prefill_tokens: (own + of_experts).div_ceil(1_000_000),
                ..*load
            })
        };
        let slowest_us = self.loads.iter().map(length_us).max();
        let end_us = slowest_us.map(|length_us| start_us + length_us).or(look_us);
        for rank in &mut self.engines {
            rank.iteration_end_us = end_us;
        }
        end_us
    }

    /// The state of each rank.
    pub fn snapshots(&self) -> Vec<EngineSnapshot> {
        self.engines.iter().map(Engine::snapshot).collect()
    }
}
