//! Sums over the state, for metrics and for people.

use crate::{Core, State};
use serde::{Deserialize, Serialize};
use treadle_model::{Phase, Status, WorkerId};

/// What a worker holds and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTotals {
    /// Its id.
    pub id: WorkerId,
    /// Its base URL.
    pub url: Box<str>,
    /// True if it answers.
    pub healthy: bool,
    /// What it holds, if known.
    pub capacity_tokens: Option<u64>,
    /// Tokens in use by the ledger.
    pub used_tokens: u64,
    /// Tokens of shared prefixes among them.
    pub shared_tokens: u64,
    /// Programs placed.
    pub programs: u64,
    /// Placed programs with a step.
    pub reasoning: u64,
    /// Placed programs between steps.
    pub acting: u64,
    /// Steps running.
    pub running_steps: u64,
    /// Seats in use.
    pub slots_taken: u64,
}

/// What there is at present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Live programs.
    pub programs: u64,
    /// With a step waiting or running.
    pub reasoning: u64,
    /// Between steps.
    pub acting: u64,
    /// Without a place, first places included.
    pub unplaced: u64,
    /// Unplaced because they were paused.
    pub paused: u64,
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
        let count = |f: &dyn Fn(&crate::program::Program) -> bool| {
            self.programs.values().filter(|p| f(p)).count() as u64
        };
        Totals {
            programs: self.programs.len() as u64,
            reasoning: count(&|p| p.phase == Phase::Reasoning),
            acting: count(&|p| p.phase == Phase::Acting),
            unplaced: count(&|p| p.place.is_none()),
            paused: count(&|p| p.status == Status::Paused),
            queued_programs: self.queue.len() as u64,
            waiting_steps: self.waiting_steps,
            running_steps: self
                .workers
                .values()
                .map(|w| u64::from(w.running_steps))
                .sum(),
            open_asks: self.asks.len() as u64,
            workers: self
                .workers
                .values()
                .map(|w| self.worker_totals(w))
                .collect(),
        }
    }

    fn worker_totals(&self, w: &crate::worker::Worker) -> WorkerTotals {
        let reasoning = w
            .programs
            .iter()
            .filter_map(|id| self.programs.get(id))
            .filter(|p| p.phase == Phase::Reasoning)
            .count() as u64;
        WorkerTotals {
            id: w.id,
            url: w.url.clone(),
            healthy: w.is_healthy(),
            capacity_tokens: w.capacity.tokens,
            used_tokens: w.used_tokens(),
            shared_tokens: w.shared_tokens,
            programs: w.programs.len() as u64,
            reasoning,
            acting: w.programs.len() as u64 - reasoning,
            running_steps: u64::from(w.running_steps),
            slots_taken: w.slots_taken.len() as u64,
        }
    }
}

impl Core {
    /// A live program by its key.
    pub fn program(&self, key: &str) -> Option<&crate::program::Program> {
        self.state.programs.get(self.state.keys.get(key)?)
    }
}
