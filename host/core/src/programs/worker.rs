//! A worker: one inference engine, with its state, its ledger and the steps that wait for it.

use crate::estimates::{Engine, EngineSpeeds};
use crate::memory::{Capacity, Ledger, Ledgers, PrefixSegment};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{EngineKind, ProgramId, StepId, Timestamp, WorkerId};

/// Whether a worker answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It answers.
    Healthy,
    /// It does not.
    Lost,
}

/// The operational state that its operator has set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It gets programs.
    #[default]
    Active,
    /// It gets no programs; those placed there continue.
    Cordoned,
    /// It gets no programs, and each program placed there leaves as soon as none of its steps runs.
    Draining,
}

impl WorkerState {
    /// The state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        }
    }

    const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }
}

/// Which part of steps an engine does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerRole {
    /// It computes prompts and generates answers.
    #[default]
    Both,
    /// It only computes prompts, for decode workers: no program is placed there.
    Prefill,
    /// It generates answers; prompts that take long are computed by prefill workers first.
    Decode,
}

impl WorkerRole {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Both, Self::Prefill, Self::Decode];

    /// The role's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// False if programs are not placed on workers of this role.
    pub const fn holds_programs(self) -> bool {
        !matches!(self, Self::Prefill)
    }

    /// Its name, unless it is the default.
    pub fn name_if_set(self) -> Option<&'static str> {
        (self != Self::Both).then(|| self.as_str())
    }
}

/// Why a healthy engine takes no steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// It was put to sleep: its caches are gone, and requests may crash it.
    Asleep,
    /// Its generation is paused, for instance for new weights: its steps continue later.
    Paused,
}

impl Rest {
    /// The state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asleep => "asleep",
            Self::Paused => "paused",
        }
    }
}

/// A step's entry in a worker's run queue: the most urgent first, then the one that has waited
/// longest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct QueuedStep {
    /// Its priority.
    pub priority: Reverse<i32>,
    /// When its wait began.
    pub since: Timestamp,
    /// The step.
    pub step: StepId,
}

/// One inference engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// Its base URL, as registered.
    pub url: Box<str>,
    /// Its software.
    pub engine: EngineKind,
    /// Whether it answers.
    pub health: Health,
    /// Its owner removed it; it is dropped once its last running step has ended.
    pub leaving: bool,
    /// The state that its operator has set.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub state: WorkerState,
    /// Why its engine reports that it takes no steps at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
    /// It gets no steps because of its weights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
    /// Tells the weights that were loaded into it from those of other engines; absent if it has
    /// those that it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<str>>,
    /// Until when it is busy, as reported by its engine.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub busy_until: Timestamp,
    /// Its capacity.
    pub capacity: Capacity,
    /// Its class of hardware, if its operator named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
    /// Which part of steps it does.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub role: WorkerRole,
    /// The port at which decode workers meet it, for `SGLang`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_port: Option<u16>,
    /// Prompts that it computes at present for steps of decode workers.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub prefills: u32,
    /// Tokens that it has computed of such prompts so far: how far its cache has moved on.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub prefilled_tokens: u64,
    /// The model that it serves, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Further model names that it serves, including adapters.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub other_models: BTreeSet<Box<str>>,
    /// Programs placed here.
    pub programs: BTreeSet<ProgramId>,
    /// Placed programs that are between steps, and so can be paused.
    pub idle: BTreeSet<ProgramId>,
    /// Steps running here.
    pub running_steps: u32,
    /// Steps that wait only for this worker, the most urgent first.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub line: BTreeSet<QueuedStep>,
    /// What its memory is charged for.
    #[serde(default)]
    pub ledger: Ledger,
    /// Its speeds.
    #[serde(default)]
    pub speeds: EngineSpeeds,
}

impl Worker {
    /// A healthy, empty worker.
    pub fn new(id: WorkerId, url: Box<str>, engine: EngineKind, capacity: Capacity) -> Self {
        Self {
            id,
            url,
            engine,
            health: Health::Healthy,
            leaving: false,
            state: WorkerState::Active,
            rest: None,
            fenced: false,
            weights: None,
            busy_until: Timestamp(0),
            capacity,
            class: None,
            role: WorkerRole::Both,
            bootstrap_port: None,
            prefills: 0,
            prefilled_tokens: 0,
            model: None,
            other_models: BTreeSet::new(),
            programs: BTreeSet::new(),
            idle: BTreeSet::new(),
            running_steps: 0,
            line: BTreeSet::new(),
            ledger: Ledger::default(),
            speeds: EngineSpeeds::default(),
        }
    }

    /// What estimates see of it.
    pub fn as_engine(&self) -> Engine<'_> {
        Engine {
            kind: self.engine,
            model: self.model.as_deref(),
            hardware: self.class.as_deref(),
            gpus: self.capacity.gpus,
            capacity_tokens: self.capacity.tokens,
            speeds: &self.speeds,
        }
    }

    /// Whether these reports mean another engine at the same address. Software or GPUs that were
    /// unknown so far do not.
    pub(crate) fn is_another(&self, engine: EngineKind, gpus: Option<u32>) -> bool {
        let is_other = self.engine != EngineKind::Openai && self.engine != engine;
        let others = self.capacity.gpus.zip(gpus);
        is_other || others.is_some_and(|(known, gpus)| known != gpus)
    }

    /// True if it answers: steps of programs that are placed there may be sent to it.
    pub fn is_healthy(&self) -> bool {
        self.health == Health::Healthy
    }

    /// True if steps may be sent to it: it answers, neither sleeps nor is paused, and its weights
    /// are known.
    pub fn takes_steps(&self) -> bool {
        self.is_healthy() && self.rest.is_none() && !self.fenced
    }

    /// True if it may get programs: it takes steps, is in service, and does not only compute
    /// prompts.
    pub fn takes_programs(&self) -> bool {
        self.holds_programs() && self.takes_steps() && self.state.is_active()
    }

    /// True unless its role is only to compute prompts for others.
    pub fn holds_programs(&self) -> bool {
        self.role.holds_programs()
    }

    /// True if it may compute prompts for decode workers.
    pub fn takes_prefills(&self) -> bool {
        !self.holds_programs() && self.takes_steps() && self.state.is_active()
    }

    /// True if it can't compute prompts by itself: `SGLang` in its decode mode.
    pub fn needs_prefill(&self) -> bool {
        self.role == WorkerRole::Decode && self.engine == EngineKind::Sglang
    }

    /// Its cache of prompts for others is lost.
    pub(crate) fn forget_prefilled(&mut self) {
        if self.prefilled_tokens > 0 {
            let whole = self.capacity.tokens.unwrap_or(0).saturating_add(1);
            self.prefilled_tokens = self.prefilled_tokens.saturating_add(whole);
        }
    }

    /// True if it is to lose its programs.
    pub(crate) fn loses_programs(&self) -> bool {
        self.state == WorkerState::Draining || !self.holds_programs()
    }

    /// True if it has reported that it has no room for now.
    pub fn is_busy(&self, now: Timestamp) -> bool {
        now < self.busy_until
    }

    /// True if it is draining and has no programs left.
    pub fn is_drained(&self) -> bool {
        let is_empty = self.programs.is_empty() && self.running_steps + self.prefills == 0;
        self.state == WorkerState::Draining && is_empty
    }

    /// A display name of its state: the operator's setting and whether draining is done, otherwise
    /// why its engine takes no steps.
    pub fn state_name(&self) -> &'static str {
        let is_active = self.state.is_active();
        match self.rest.filter(|_| is_active) {
            None if self.fenced && is_active => "fenced",
            Some(rest) => rest.as_str(),
            None if self.is_drained() => "drained",
            None => self.state.as_str(),
        }
    }

    /// Tokens in use by its ledger.
    pub fn used_tokens(&self) -> u64 {
        self.ledger.used_tokens()
    }

    /// `ppm` millionths of what it keeps: its KV memory, and host memory that its engine offloads
    /// to by itself; unlimited if the former is unknown.
    pub fn watermark_tokens(&self, ppm: u32) -> u64 {
        self.ledger.watermark_tokens(&self.capacity, ppm)
    }

    /// Unused KV memory; negative if caches are in host memory of its engine. Of two workers with
    /// room the one with the larger value has less to do, whatever else their engines keep.
    pub(crate) fn spare_tokens(&self) -> i64 {
        let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        tokens(self.capacity.tokens.unwrap_or(u64::MAX)) - tokens(self.used_tokens())
    }

    /// Drops what was learnt of how much its engine keeps; `learns` is whether more will be learnt.
    pub(crate) fn forget_reuse(&mut self, learns: bool) {
        let engine = self.ledger.engine_mut();
        engine.forget_reuse(learns, &self.capacity);
    }

    /// Host memory that its engine is observed to offload caches to by itself, in tokens.
    pub fn host_tokens(&self) -> u64 {
        self.ledger.host_tokens(&self.capacity)
    }

    /// Whether its engine offloads caches to host memory of its own.
    pub fn offloads_itself(&self) -> bool {
        self.ledger.engine().is_unbounded() || self.host_tokens() > 0
    }

    /// Whether its engine can continue a partial answer, so that a running step may be preempted.
    pub fn resumes_steps(&self) -> bool {
        self.engine != EngineKind::Openai && !self.needs_prefill()
    }

    /// Placed programs that are not between steps.
    pub(crate) fn busy_programs(&self) -> usize {
        self.programs.len() - self.idle.len()
    }

    /// True if no program is placed here or on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.ledger.kept().is_empty()
    }

    /// The longest context that it can hold.
    pub fn context_tokens_max(&self) -> u64 {
        self.capacity.context_tokens_max()
    }

    /// Tokens that placing a program would add: its private ones and those
    /// of its prefix that no program here shares yet.
    pub fn need_tokens(&self, private_tokens: u64, prefix: &[PrefixSegment]) -> u64 {
        self.ledger.need_tokens(private_tokens, prefix)
    }

    /// Programs placed here or on their way.
    pub(crate) fn seated_programs(&self) -> usize {
        self.programs.len() + self.ledger.kept().len()
    }

    /// True unless every slot is taken. A program that was placed before the slots were known
    /// occupies one, though it is unknown which.
    pub fn has_free_slot(&self) -> bool {
        self.capacity
            .slots
            .is_none_or(|slots| (self.seated_programs() as u64) < u64::from(slots))
    }

    /// Reserves room, and a slot, for a program that is about to come.
    pub(crate) fn keep_room(&mut self, program: ProgramId, tokens: u64) -> Option<u32> {
        self.ledger.keep_room(program, tokens, &self.capacity)
    }

    /// Settles its account. Memory counts as unused only if it could be used.
    pub(crate) fn balance(&mut self, has_ledger: bool, now: Timestamp) {
        let capacity = self.usable_tokens(has_ledger);
        self.ledger.balance(capacity, now);
    }

    fn usable_tokens(&self, has_ledger: bool) -> Option<u64> {
        let usable = has_ledger && self.is_healthy();
        self.capacity.tokens.filter(|_| usable)
    }
}

/// The ledgers of all workers, as accounts need them.
pub(crate) struct Books<'a> {
    /// The workers.
    pub(crate) workers: &'a mut BTreeMap<WorkerId, Worker>,
    /// Whether programs are charged, so that unused memory is known.
    pub(crate) has_ledger: bool,
}

impl Ledgers for Books<'_> {
    fn ledger(&mut self, worker: WorkerId) -> Option<(&mut Ledger, Option<u64>)> {
        let w = self.workers.get_mut(&worker)?;
        let usable = w.usable_tokens(self.has_ledger);
        Some((&mut w.ledger, usable))
    }
}
