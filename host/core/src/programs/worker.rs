//! A worker and its ledger: what its KV cache holds, program by program, with
//! shared prefixes counted once.

use crate::estimates::{Engine, EngineSpeeds};
use crate::programs::accounts::{Account, Charge};
use crate::programs::backlog::Backlog;
use crate::programs::lingering::Lingering;
use crate::programs::reuse::Reuse;
use crate::programs::{Capacity, PrefixSegment};
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

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_active(&self) -> bool {
        *self == Self::Active
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

/// A prefix that is charged once, however many programs share it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharedPrefix {
    /// Programs placed here that begin with it.
    pub programs: u32,
    /// Tokens charged for it.
    pub tokens: u64,
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

/// Room reserved for a program whose cache is on its way here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct KeptRoom {
    /// Tokens.
    pub tokens: u64,
    /// Its slot, on engines that have slots.
    pub slot: Option<u32>,
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
    #[serde(default, skip_serializing_if = "WorkerState::is_active")]
    pub state: WorkerState,
    /// Why its engine reports that it takes no steps at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
    /// Until when it is busy, as reported by its engine.
    #[serde(default, skip_serializing_if = "is_start")]
    pub busy_until: Timestamp,
    /// Its capacity.
    pub capacity: Capacity,
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
    /// Private tokens charged for placed programs.
    pub charged_tokens: u64,
    /// Tokens charged for shared prefixes.
    pub shared_tokens: u64,
    /// The shared prefixes, by chained hash.
    pub shared: BTreeMap<u64, SharedPrefix>,
    /// Tokens that its engine holds for requests that treadle did not send.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untracked_tokens: u64,
    /// Slots in use.
    pub slots_taken: BTreeSet<u32>,
    /// Room reserved for programs that are being moved here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<ProgramId, KeptRoom>,
    /// Steps that wait only for this worker, the most urgent first.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub line: BTreeSet<QueuedStep>,
    /// Its memory use.
    #[serde(default)]
    pub account: Account,
    /// Share of its capacity, in millionths, that must stay free, as learnt; `None` before the
    /// first step has ended, when the low watermark is used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom_ppm: Option<u32>,
    /// Caches of programs that have left, while a cache that was used before them is to be kept.
    #[serde(default, skip_serializing_if = "Lingering::is_empty")]
    pub lingering: Lingering,
    /// How much its engine really keeps.
    #[serde(default, skip_serializing_if = "Reuse::is_default")]
    pub reuse: Reuse,
    /// Its speeds.
    #[serde(default)]
    pub speeds: EngineSpeeds,
    /// Prompts that it has yet to compute.
    #[serde(default, skip_serializing_if = "Backlog::is_empty")]
    pub backlog: Backlog,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_start(time: &Timestamp) -> bool {
    time.0 == 0
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
            busy_until: Timestamp(0),
            capacity,
            model: None,
            other_models: BTreeSet::new(),
            programs: BTreeSet::new(),
            idle: BTreeSet::new(),
            running_steps: 0,
            charged_tokens: 0,
            shared_tokens: 0,
            shared: BTreeMap::new(),
            untracked_tokens: 0,
            slots_taken: BTreeSet::new(),
            kept: BTreeMap::new(),
            line: BTreeSet::new(),
            account: Account::default(),
            headroom_ppm: None,
            lingering: Lingering::default(),
            reuse: Reuse::default(),
            speeds: EngineSpeeds::default(),
            backlog: Backlog::default(),
        }
    }

    /// What estimates see of it.
    pub fn as_engine(&self) -> Engine<'_> {
        Engine {
            kind: self.engine,
            model: self.model.as_deref(),
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

    /// True if steps may be sent to it: it answers, and neither sleeps nor is paused.
    pub fn takes_steps(&self) -> bool {
        self.is_healthy() && self.rest.is_none()
    }

    /// True if it may get programs: it takes steps, and is in service.
    pub fn takes_programs(&self) -> bool {
        self.takes_steps() && self.state.is_active()
    }

    /// True if it has reported that it has no room for now.
    pub fn is_busy(&self, now: Timestamp) -> bool {
        now < self.busy_until
    }

    /// True if it is draining and has no programs left.
    pub fn is_drained(&self) -> bool {
        let is_empty = self.programs.is_empty() && self.running_steps == 0;
        self.state == WorkerState::Draining && is_empty
    }

    /// A display name of its state: the operator's setting and whether draining is done, otherwise
    /// why its engine takes no steps.
    pub fn state_name(&self) -> &'static str {
        match self.rest.filter(|_| self.state.is_active()) {
            Some(rest) => rest.as_str(),
            None if self.is_drained() => "drained",
            None => self.state.as_str(),
        }
    }

    /// Tokens in use by its ledger.
    pub fn used_tokens(&self) -> u64 {
        let kept = self.kept.values().map(|room| room.tokens).sum();
        self.charged_tokens
            .saturating_add(self.shared_tokens)
            .saturating_add(kept)
            .saturating_add(self.untracked_tokens)
    }

    /// `ppm` millionths of what it keeps: its KV memory, and host memory that its engine offloads
    /// to by itself; unlimited if the former is unknown.
    pub fn watermark_tokens(&self, ppm: u32) -> u64 {
        let Some(tokens) = self.capacity.tokens else {
            return u64::MAX;
        };
        let tokens = tokens.saturating_add(self.reuse.beyond_tokens());
        // This is called for each worker whenever a program waits, and dividing 128 bits is slow.
        match tokens.checked_mul(u64::from(ppm)) {
            Some(product) => product / 1_000_000,
            None => {
                u64::try_from(u128::from(tokens) * u128::from(ppm) / 1_000_000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Unused KV memory; negative if caches are in host memory of its engine. Of two workers with
    /// room the one with the larger value has less to do, whatever else their engines keep.
    pub(crate) fn spare_tokens(&self) -> i64 {
        let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        tokens(self.capacity.tokens.unwrap_or(u64::MAX)) - tokens(self.used_tokens())
    }

    /// Drops what was learnt of how much its engine keeps; `learns` is whether more will be learnt.
    pub(crate) fn forget_reuse(&mut self, learns: bool) {
        let offloads = self.capacity.offloads && self.capacity.slots.is_none();
        self.reuse = Reuse::of_engine(learns && offloads);
    }

    /// Host memory that its engine is observed to offload caches to by itself, in tokens.
    pub fn host_tokens(&self) -> u64 {
        let capacity = self.capacity.tokens.unwrap_or_default();
        let beyond = self.reuse.seen_beyond_tokens(capacity);
        // Less than this may be a probe.
        let least = self.capacity.tokens.map(|tokens| tokens / 7 * 2);
        least.filter(|least| beyond > *least).map_or(0, |_| beyond)
    }

    /// Whether its engine offloads caches to host memory of its own.
    pub fn offloads_itself(&self) -> bool {
        self.reuse.is_unbounded() || self.host_tokens() > 0
    }

    /// Whether its engine can continue a partial answer, so that a running step may be preempted.
    pub fn resumes_steps(&self) -> bool {
        self.engine != EngineKind::Openai
    }

    /// Placed programs that are not between steps.
    pub(crate) fn busy_programs(&self) -> usize {
        self.programs.len() - self.idle.len()
    }

    /// The longest context that it can hold.
    pub fn context_tokens_max(&self) -> u64 {
        let pool = self.capacity.tokens.unwrap_or(u64::MAX);
        pool.min(self.capacity.context_tokens_max.unwrap_or(u64::MAX))
    }

    /// Tokens that placing a program would add: its private ones and those
    /// of its prefix that no program here shares yet.
    pub fn need_tokens(&self, private_tokens: u64, prefix: &[PrefixSegment]) -> u64 {
        let fresh: u64 = prefix
            .iter()
            .filter(|segment| !self.shared.contains_key(&segment.hash))
            .map(|segment| segment.tokens)
            .sum();
        private_tokens.saturating_add(fresh)
    }

    /// True unless every slot is taken. A program that was placed before the slots were known
    /// occupies one, though it is unknown which.
    pub fn has_free_slot(&self) -> bool {
        self.capacity.slots.is_none_or(|slots| {
            let seated = self.programs.len() + self.kept.len();
            (seated as u64) < u64::from(slots)
        })
    }

    /// Tokens of each slot, on engines that have slots.
    pub(crate) fn slot_tokens(&self) -> Option<u64> {
        let slots = u64::from(self.capacity.slots?).max(1);
        let tokens = self.capacity.tokens.unwrap_or(slots);
        Some((tokens / slots).max(1))
    }

    /// True if a placement has a slot that the worker still has, or if it has no slots.
    pub(crate) fn is_seated(&self, slot: Option<u32>) -> bool {
        self.capacity
            .slots
            .is_none_or(|slots| slot.is_some_and(|slot| slot < slots))
    }

    /// Takes the lowest free slot, on engines that have slots.
    pub(crate) fn take_slot(&mut self) -> Option<u32> {
        let slot = (0..self.capacity.slots?).find(|slot| !self.slots_taken.contains(slot))?;
        self.slots_taken.insert(slot);
        Some(slot)
    }

    /// Takes this slot, if it is free.
    pub(crate) fn take_this_slot(&mut self, slot: Option<u32>) -> Option<u32> {
        let slot = slot.filter(|slot| self.is_seated(Some(*slot)))?;
        self.slots_taken.insert(slot).then_some(slot)
    }

    /// Reserves room, and a slot, for a program that is about to come.
    pub(crate) fn keep_room(&mut self, program: ProgramId, tokens: u64) -> Option<u32> {
        let slot = self.take_slot();
        self.kept.insert(program, KeptRoom { tokens, slot });
        slot
    }

    /// Releases reserved room, and returns its slot.
    pub(crate) fn give_room_back(&mut self, program: ProgramId) -> Option<u32> {
        let slot = self.kept.remove(&program)?.slot?;
        self.slots_taken.remove(&slot);
        Some(slot)
    }

    /// Replaces one charge by another in its account.
    pub(crate) fn rebook(
        &mut self,
        old: Option<Charge>,
        new: Option<Charge>,
        has_ledger: bool,
        now: Timestamp,
    ) {
        if let Some(old) = &old {
            self.account.end(old, now);
        }
        if let Some(new) = &new {
            self.account.begin(new, now);
        }
        self.balance(has_ledger, now);
    }

    /// Settles its account with its capacity and its shared prefixes. Memory counts as unused only
    /// if it could be used.
    pub(crate) fn balance(&mut self, has_ledger: bool, now: Timestamp) {
        let usable = has_ledger && self.is_healthy();
        let capacity = self.capacity.tokens.filter(|_| usable);
        self.account.balance(self.shared_tokens, capacity, now);
    }

    /// Charges a prefix; shared parts are charged with their first program.
    pub(crate) fn charge_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let shared = self.shared.entry(segment.hash).or_insert(SharedPrefix {
                programs: 0,
                tokens: segment.tokens,
            });
            if shared.programs == 0 {
                self.shared_tokens = self.shared_tokens.saturating_add(shared.tokens);
            }
            shared.programs += 1;
        }
    }

    /// Adjusts the charges of a prefix's segments to its present token counts.
    pub(crate) fn recount_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let Some(shared) = self.shared.get_mut(&segment.hash) else {
                continue;
            };
            let before = std::mem::replace(&mut shared.tokens, segment.tokens);
            let others = self.shared_tokens.saturating_sub(before);
            self.shared_tokens = others.saturating_add(segment.tokens);
        }
    }

    /// Removes the charge for a prefix; shared parts go with their last program.
    pub(crate) fn discharge_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let Some(shared) = self.shared.get_mut(&segment.hash) else {
                continue;
            };
            shared.programs -= 1;
            if shared.programs == 0 {
                self.shared_tokens = self.shared_tokens.saturating_sub(shared.tokens);
                self.shared.remove(&segment.hash);
            }
        }
    }
}
