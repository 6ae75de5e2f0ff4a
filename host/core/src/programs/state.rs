//! The state of the machine of programs.

use crate::estimates::{DecodeTime, Estimates};
use crate::memory::Memory;
use crate::programs::asks::Asks;
use crate::programs::program::Program;
use crate::programs::step::Step;
use crate::programs::timers::Timers;
use crate::programs::waiting_list::WaitingList;
use crate::programs::worker::Worker;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_machine::CoreConfig;
use treadle_model::{ProgramId, StepId, Timestamp, WorkerId};

/// Counters since the state began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Programs opened.
    pub programs_opened: u64,
    /// Programs over.
    pub programs_closed: u64,
    /// Steps that arrived.
    pub steps_arrived: u64,
    /// Steps answered in full.
    pub steps_finished: u64,
    /// Steps refused.
    pub steps_refused: u64,
    /// Steps withdrawn by their clients.
    pub steps_cancelled: u64,
    /// Steps that engines failed permanently.
    pub steps_failed: u64,
    /// Steps whose requests engines refused as wrong.
    #[serde(default)]
    pub steps_rejected: u64,
    /// Pauses.
    pub pauses: u64,
    /// Restores, without first placements.
    pub restores: u64,
    /// Restores to another worker than the last.
    pub moves: u64,
    /// KV caches moved to another worker.
    #[serde(default)]
    pub migrations: u64,
    /// KV cache migrations that were begun and cancelled.
    #[serde(default)]
    pub migrations_cancelled: u64,
    /// KV caches that were moved to host memory.
    #[serde(default)]
    pub offloads: u64,
    /// KV caches that were loaded from host memory.
    #[serde(default)]
    pub loads: u64,
    /// Loads before the program's tool returned.
    #[serde(default)]
    pub prefetches: u64,
    /// Transfers to or from host memory that failed.
    #[serde(default)]
    pub transfers_failed: u64,
    /// Copies in host memory that were evicted or lost.
    #[serde(default)]
    pub copies_lost: u64,
    /// Steps that were preempted for more urgent ones.
    #[serde(default)]
    pub preemptions: u64,
    /// Steps whose prompt was sent to a prefill worker.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub prefills: u64,
    /// Those that the prefill worker failed.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub prefills_failed: u64,
    /// Prompt tokens of finished steps.
    pub prompt_tokens: u64,
    /// Output tokens of finished steps.
    pub output_tokens: u64,
    /// Prompt tokens that engines found in their caches.
    pub cached_tokens: u64,
    /// Prompt tokens of finished steps whose engine reported its cached tokens.
    #[serde(default)]
    pub cache_reported_tokens: u64,
}

/// The state of the machine of programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The latest time at which the core handled an event.
    pub now: Timestamp,
    /// Live programs.
    pub live: BTreeMap<ProgramId, Program>,
    /// Live programs by key.
    pub keys: BTreeMap<Box<str>, ProgramId>,
    /// Steps that have not ended.
    pub steps: BTreeMap<StepId, Step>,
    /// Registered workers.
    pub workers: BTreeMap<WorkerId, Worker>,
    /// What waits for memory.
    pub waiting: WaitingList,
    /// Questions without an answer.
    pub asks: Asks,
    /// Pending deadlines.
    pub timers: Timers,
    /// The highest step id of the scheduler's own gateway.
    pub last_step: u64,
    /// The next program's id.
    pub next_program: u64,
    /// Programs with an adopted step and with other waiting steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<ProgramId>,
    /// Contexts of all live programs, in tokens.
    #[serde(default)]
    pub context_tokens: u64,
    /// What was learnt.
    pub estimates: Estimates,
    /// The settings, if an event carried them: a replay needs no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<CoreConfig>,
    /// KV memory beyond the ledgers of workers.
    #[serde(default)]
    pub memory: Memory,
    /// Counters.
    pub counters: Counters,
}

impl State {
    /// A worker's time per token: its own, otherwise that of others of its class, otherwise that of
    /// the last ones that left.
    pub fn decode_time_of(&self, worker: &Worker) -> Option<DecodeTime> {
        let others = self.workers.values().map(Worker::as_engine);
        self.estimates.decode_time_of(&worker.as_engine(), others)
    }

    /// Prompt tokens that a worker computes per second, chosen in the same order; of others the
    /// median.
    pub fn prefill_speed_of(&self, worker: &Worker) -> Option<u64> {
        let others = self.workers.values().map(Worker::as_engine);
        self.estimates.prefill_speed_of(&worker.as_engine(), others)
    }
}
