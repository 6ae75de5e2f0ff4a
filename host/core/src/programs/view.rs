//! Sums over the state, for metrics and display.

use crate::Mode;
use crate::memory::Direction;
use crate::programs::program::Program;
use crate::programs::step::Step;
use crate::programs::worker::WorkerRole;
use crate::programs::{Programs, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{Phase, Status, WorkerId};

/// Sums of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTotals {
    /// Its id.
    pub id: WorkerId,
    /// Its base URL.
    pub url: Box<str>,
    /// True if it answers.
    pub healthy: bool,
    /// True if it may get programs.
    #[serde(default)]
    pub takes_programs: bool,
    /// Its role.
    #[serde(default)]
    pub role: WorkerRole,
    /// Prompts that it computes for steps of decode workers.
    #[serde(default)]
    pub prefills: u64,
    /// Its capacity, if known.
    pub capacity_tokens: Option<u64>,
    /// Tokens in use by the ledger.
    pub used_tokens: u64,
    /// Tokens of shared prefixes among those in use.
    pub shared_tokens: u64,
    /// Programs placed.
    pub programs: u64,
    /// Placed programs with a step.
    pub reasoning: u64,
    /// Placed programs between steps.
    pub acting: u64,
    /// Steps running.
    pub running_steps: u64,
    /// Slots in use.
    pub slots_taken: u64,
    /// Host memory that the engine is observed to offload to by itself, in tokens.
    pub host_tokens: u64,
    /// Prompt tokens that the engine computes per second, once measured.
    pub prefill_tokens_per_s: Option<u64>,
}

/// Present sums over the whole state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Live programs.
    pub programs: u64,
    /// Programs with a step waiting or running.
    pub reasoning: u64,
    /// Programs between steps.
    pub acting: u64,
    /// Unplaced programs, including those that were never placed.
    pub unplaced: u64,
    /// Programs that are unplaced because they were paused.
    pub paused: u64,
    /// Paused programs with a step waiting.
    #[serde(default)]
    pub paused_reasoning: u64,
    /// Programs in the queue.
    pub queued_programs: u64,
    /// Steps in the queue.
    pub waiting_steps: u64,
    /// Steps at engines.
    pub running_steps: u64,
    /// Questions to policies without an answer.
    pub open_asks: u64,
    /// Workers.
    pub workers: Vec<WorkerTotals>,
}

impl State {
    /// Sums over the whole state.
    pub fn totals(&self) -> Totals {
        let count =
            |f: &dyn Fn(&Program) -> bool| self.live.values().filter(|p| f(p)).count() as u64;
        Totals {
            programs: self.live.len() as u64,
            reasoning: count(&|p| p.phase == Phase::Reasoning),
            acting: count(&|p| p.phase == Phase::Acting),
            unplaced: count(&|p| p.placement.is_none()),
            paused: count(&|p| p.status == Status::Paused),
            paused_reasoning: count(&|p| p.status == Status::Paused && p.phase == Phase::Reasoning),
            queued_programs: self.waiting.queue().len() as u64,
            waiting_steps: self.waiting.steps(),
            running_steps: self
                .workers
                .values()
                .map(|w| u64::from(w.running_steps))
                .sum(),
            open_asks: self.asks.open().len() as u64,
            workers: self
                .workers
                .values()
                .map(|w| self.worker_totals(w))
                .collect(),
        }
    }

    fn worker_totals(&self, w: &crate::programs::worker::Worker) -> WorkerTotals {
        let reasoning = w
            .programs
            .iter()
            .filter_map(|id| self.live.get(id))
            .filter(|p| p.phase == Phase::Reasoning)
            .count() as u64;
        WorkerTotals {
            id: w.id,
            url: w.url.clone(),
            healthy: w.is_healthy(),
            takes_programs: w.takes_programs(),
            role: w.role,
            prefills: u64::from(w.prefills),
            capacity_tokens: w.capacity.tokens,
            used_tokens: w.used_tokens(),
            shared_tokens: w.ledger.shared_tokens(),
            programs: w.programs.len() as u64,
            reasoning,
            acting: w.programs.len() as u64 - reasoning,
            running_steps: u64::from(w.running_steps),
            slots_taken: w.ledger.slots_taken() as u64,
            host_tokens: w.host_tokens(),
            prefill_tokens_per_s: w.speeds.prefill_tokens_per_s(),
        }
    }
}

/// Caches that are not at an engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheTotals {
    /// Programs whose cache is in host memory.
    pub held_programs: usize,
    /// Their context, in tokens.
    pub held_tokens: u64,
    /// Their size in bytes, if engines report it.
    pub held_bytes: u64,
    /// Caches in transfer.
    pub in_transfer: usize,
}

/// The location of a program's KV cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CacheLocation {
    /// At an engine.
    Worker {
        /// The engine.
        worker: WorkerId,
        /// Its length.
        tokens: u64,
    },
    /// In host memory.
    Host {
        /// Its length.
        tokens: u64,
        /// Its size, where the engine reports it.
        bytes: u64,
    },
    /// In transfer from an engine to host memory.
    ToHost {
        /// The engine.
        worker: WorkerId,
        /// Its length.
        tokens: u64,
    },
    /// In transfer from host memory to an engine.
    ToWorker {
        /// The engine.
        worker: WorkerId,
        /// Its length.
        tokens: u64,
    },
    /// In transfer between two engines.
    BetweenWorkers {
        /// The source.
        from: WorkerId,
        /// The destination.
        to: WorkerId,
        /// Its length.
        tokens: u64,
    },
}

impl State {
    /// Sums over the caches that are not at an engine.
    pub fn cache_totals(&self) -> CacheTotals {
        let (offloads, migrations) = (self.memory.offloads(), self.memory.migrations());
        CacheTotals {
            held_programs: offloads.held().len(),
            held_tokens: offloads.held_tokens(),
            held_bytes: offloads.held().values().map(|held| held.bytes).sum(),
            in_transfer: offloads.moving().len() + migrations.moving().len(),
        }
    }

    /// Where a program's cache is; `None` if it is to be computed again.
    pub fn cache_of(&self, p: &Program) -> Option<CacheLocation> {
        if let Some(transfer) = self.memory.transfer_of(p.id) {
            let (worker, tokens) = (transfer.worker, transfer.tokens);
            return Some(match transfer.direction {
                Direction::Out => CacheLocation::ToHost { worker, tokens },
                Direction::Back => CacheLocation::ToWorker { worker, tokens },
            });
        }
        if let Some(moving) = self.memory.move_of(p.id) {
            return Some(CacheLocation::BetweenWorkers {
                from: moving.from,
                to: moving.to,
                tokens: moving.tokens,
            });
        }
        if let Some(held) = self.memory.copy_of(p.id) {
            let (tokens, bytes) = (held.tokens, held.bytes);
            return Some(CacheLocation::Host { tokens, bytes });
        }
        let place = p.placement.filter(|_| p.steps_finished > 0)?;
        Some(CacheLocation::Worker {
            worker: place.worker,
            tokens: p.context_tokens,
        })
    }
}

/// Ledger totals of a worker's running steps.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunningUse {
    /// Steps at the engine.
    pub steps: u64,
    /// Tokens of their prompts and of their output, shared prefixes once.
    pub tokens: u64,
}

impl Programs {
    /// Ledger totals of a worker's running steps; `None` in modes without a ledger.
    pub(crate) fn running_use(&self, worker: WorkerId) -> Option<RunningUse> {
        let w = self.state.workers.get(&worker)?;
        if self.config.mode == Mode::LeastLoad {
            return None;
        }
        let (mut tokens, mut shared) = (0_u64, BTreeMap::new());
        for p in w.programs.iter().filter_map(|id| self.state.live.get(id)) {
            let steps = p.running.iter().filter_map(|id| self.state.steps.get(id));
            let Some(context) = steps.map(Step::context_tokens).max() else {
                continue;
            };
            tokens = tokens.saturating_add(context.saturating_sub(p.prefix_tokens()));
            shared.extend(p.prefix.iter().map(|s| (s.hash, s.tokens)));
        }
        Some(RunningUse {
            steps: u64::from(w.running_steps),
            tokens: shared.into_values().fold(tokens, u64::saturating_add),
        })
    }
}

impl State {
    /// A live program by its key.
    pub fn program(&self, key: &str) -> Option<&Program> {
        self.live.get(self.keys.get(key)?)
    }
}
