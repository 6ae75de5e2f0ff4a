//! Indexes of actions: by resource, program, job and tenant. They are derived from the state and
//! not part of a snapshot.

use crate::action::{Action, Rank, Stage};
use crate::pool::Pool;
use crate::resource::Grant;
use crate::shares::Holdings;
use crate::spec::ActionSpec;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use treadle_model::tenant::prefix_of;
use treadle_model::{ActionId, Timestamp};

/// The resources that an action needs, by their positions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Needs {
    /// Its key resource: more units of it make the action faster.
    pub(crate) key: u32,
    /// The index of the demand for it in the specification.
    pub(crate) key_demand: usize,
    /// Resources and the minimum units of each, in the order of the demands.
    pub(crate) least: Vec<(u32, u64)>,
    /// The group of its job.
    pub(crate) group: Box<str>,
}

impl Needs {
    /// `None` if a resource does not exist.
    pub(crate) fn of(spec: &ActionSpec, pools: &BTreeMap<&str, u32>) -> Option<Self> {
        let least = spec.demands.iter().map(|demand| {
            let pool = pools.get(&*demand.resource)?;
            Some((*pool, *demand.options.first()?))
        });
        let least: Vec<_> = least.collect::<Option<_>>()?;
        let key_demand = spec.key_demand();
        let (key, _) = *least.get(key_demand)?;
        Some(Self {
            key,
            key_demand,
            least,
            group: prefix_of(&spec.job).into(),
        })
    }

    /// The needs of a started action whose resources no longer exist.
    pub(crate) fn gone(spec: &ActionSpec) -> Self {
        Self {
            key: u32::MAX,
            key_demand: 0,
            least: Vec::new(),
            group: prefix_of(&spec.job).into(),
        }
    }

    /// The demands with this amount of its key resource.
    pub(crate) fn with(&self, units: u64) -> impl Iterator<Item = (u32, u64)> {
        let all = self.least.iter().enumerate();
        all.map(move |(demand, (pool, least))| {
            let is_key = demand == self.key_demand;
            (*pool, if is_key { units } else { *least })
        })
    }

    pub(crate) fn least_of_key(&self) -> u64 {
        self.least
            .get(self.key_demand)
            .map_or(0, |(_, least)| *least)
    }
}

/// Positions of resources by name.
pub(crate) fn positions(pools: &[Pool]) -> BTreeMap<&str, u32> {
    let named = (0..).zip(pools);
    named.map(|(at, pool)| (&*pool.resource.name, at)).collect()
}

/// Waiting actions, in serving order.
pub(crate) type Queue = BTreeSet<(Rank, ActionId)>;

/// Running attempts, by expected end.
pub(crate) type Running = BTreeSet<(Timestamp, ActionId, u64)>;

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Index {
    /// The needs of each action that has not ended.
    pub(crate) needs: BTreeMap<ActionId, Needs>,
    /// Waiting actions in serving order, by key resource.
    pub(crate) queues: BTreeMap<u32, Queue>,
    /// Waiting actions in serving order, by key resource and group.
    pub(crate) group_queues: BTreeMap<(u32, Box<str>), Queue>,
    /// What the started actions of each group hold.
    pub(crate) holdings: BTreeMap<Box<str>, Holdings>,
    /// Waiting actions that are not served in order of arrival.
    pub(crate) overtaken: BTreeSet<ActionId>,
    /// Running attempts in order of their expected end, by key resource.
    pub(crate) running: BTreeMap<u32, Running>,
    /// Waiting work by key resource and serving class.
    pub(crate) work: BTreeMap<(u32, u8), u128>,
    /// Actions that have not ended, by program.
    pub(crate) by_program: BTreeMap<Box<str>, BTreeSet<ActionId>>,
    /// Number of waiting actions by job.
    pub(crate) by_job: BTreeMap<Box<str>, u64>,
    /// Number of waiting actions by the tenant's prefix.
    pub(crate) by_tenant: BTreeMap<Box<str>, u64>,
    /// Number of waiting actions.
    pub(crate) waiting: u64,
    /// Number of started actions.
    pub(crate) started: u64,
    /// Remembered ended actions, oldest first, by group.
    pub(crate) ended: BTreeMap<Box<str>, VecDeque<ActionId>>,
    /// Idempotency keys of all remembered actions, by job.
    pub(crate) keys: BTreeMap<Box<str>, BTreeMap<Box<str>, ActionId>>,
}

fn count(counts: &mut BTreeMap<Box<str>, u64>, name: &str, adds: bool) {
    match counts.get_mut(name) {
        Some(count) if adds => *count += 1,
        Some(count) => {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
        None => {
            counts.insert(name.into(), 1);
        }
    }
}

fn leave<K: Ord>(queues: &mut BTreeMap<K, Queue>, key: &K, entry: (Rank, ActionId)) {
    if let Some(queue) = queues.get_mut(key) {
        queue.remove(&entry);
        if queue.is_empty() {
            queues.remove(key);
        }
    }
}

impl Index {
    fn hold_no_more(&mut self, group: &str, grants: &[Grant]) {
        let Some(holdings) = self.holdings.get_mut(group) else {
            return;
        };
        holdings.started -= 1;
        for grant in grants {
            if let Some(units) = holdings.units.get_mut(&grant.resource) {
                *units = units.saturating_sub(grant.units);
                if *units == 0 {
                    holdings.units.remove(&grant.resource);
                }
            }
        }
        if holdings.started == 0 {
            self.holdings.remove(group);
        }
    }

    pub(crate) fn of(state: &State) -> Self {
        let mut index = Self::default();
        let positions = positions(&state.pools);
        for (id, action) in &state.live {
            let needs = Needs::of(&action.spec, &positions);
            let needs = needs.unwrap_or_else(|| Needs::gone(&action.spec));
            index.open(*id, needs, action);
        }
        for (id, action) in state.live.iter().chain(&state.ended) {
            index.remember(*id, &action.spec);
        }
        for id in &state.ended_order {
            let ended = state.ended.get(id);
            index.ended(*id, ended.map_or("", |action| &action.spec.job));
        }
        index
    }

    /// Adds a new action.
    pub(crate) fn open(&mut self, id: ActionId, needs: Needs, action: &Action) {
        self.needs.insert(id, needs);
        if let Some(program) = &action.spec.program {
            let of_program = self.by_program.entry(program.clone()).or_default();
            of_program.insert(id);
        }
        self.add(id, action);
    }

    /// Removes an ended action, which no longer has a stage.
    pub(crate) fn close(&mut self, id: ActionId, spec: &ActionSpec) {
        self.needs.remove(&id);
        if let Some(program) = &spec.program
            && let Some(of_program) = self.by_program.get_mut(program)
        {
            of_program.remove(&id);
            if of_program.is_empty() {
                self.by_program.remove(program);
            }
        }
    }

    /// Adds an action of this job to the ended ones.
    pub(crate) fn ended(&mut self, id: ActionId, job: &str) {
        let of_group = self.ended.entry(prefix_of(job).into()).or_default();
        of_group.push_back(id);
    }

    /// The oldest ended action of the group that has most of them.
    pub(crate) fn oldest_of_most(&self) -> Option<ActionId> {
        let most = self.ended.values().max_by_key(|of_group| of_group.len());
        most.and_then(|of_group| of_group.front()).copied()
    }

    /// Records its idempotency key.
    pub(crate) fn remember(&mut self, id: ActionId, spec: &ActionSpec) {
        if let Some(key) = &spec.idempotency_key {
            let of_job = self.keys.entry(spec.job.clone()).or_default();
            of_job.insert(key.clone(), id);
        }
    }

    /// Forgets an ended action and its idempotency key.
    pub(crate) fn forget(&mut self, id: ActionId, spec: &ActionSpec) {
        let group = prefix_of(&spec.job);
        if let Some(of_group) = self.ended.get_mut(group) {
            of_group.pop_front_if(|oldest| *oldest == id);
            if of_group.is_empty() {
                self.ended.remove(group);
            }
        }
        if let Some(key) = &spec.idempotency_key
            && let Some(of_job) = self.keys.get_mut(&spec.job)
            && of_job.get(key) == Some(&id)
        {
            of_job.remove(key);
            if of_job.is_empty() {
                self.keys.remove(&spec.job);
            }
        }
    }

    /// Files an action under its stage.
    pub(crate) fn add(&mut self, id: ActionId, action: &Action) {
        let needs = self.needs.get(&id);
        let Some((key, group)) = needs.map(|needs| (needs.key, needs.group.clone())) else {
            return;
        };
        match &action.stage {
            Stage::Waiting { rank, work } => {
                self.queues.entry(key).or_default().insert((*rank, id));
                let of_group = self.group_queues.entry((key, group)).or_default();
                of_group.insert((*rank, id));
                if *work > 0 {
                    *self.work.entry((key, rank.class)).or_default() += u128::from(*work);
                }
                if rank.class > 0 {
                    self.overtaken.insert(id);
                }
                self.waiting += 1;
                count(&mut self.by_job, &action.spec.job, true);
                count(&mut self.by_tenant, prefix_of(&action.spec.job), true);
            }
            Stage::Started(started) => {
                self.started += 1;
                let entry = (started.expected.unwrap_or_default(), id, started.units);
                self.running.entry(key).or_default().insert(entry);
                let holdings = self.holdings.entry(group).or_default();
                holdings.started += 1;
                for grant in &started.grants {
                    *holdings.units.entry(grant.resource.clone()).or_default() += grant.units;
                }
            }
            Stage::Ended(_) => {}
        }
    }

    /// Removes an action from its stage.
    pub(crate) fn remove(&mut self, id: ActionId, action: &Action) {
        let needs = self.needs.get(&id);
        let Some((key, group)) = needs.map(|needs| (needs.key, needs.group.clone())) else {
            return;
        };
        match &action.stage {
            Stage::Waiting { rank, work } => {
                leave(&mut self.queues, &key, (*rank, id));
                leave(&mut self.group_queues, &(key, group), (*rank, id));
                let place = (key, rank.class);
                if let Some(sum) = self.work.get_mut(&place) {
                    *sum = sum.saturating_sub(u128::from(*work));
                    if *sum == 0 {
                        self.work.remove(&place);
                    }
                }
                self.overtaken.remove(&id);
                self.waiting -= 1;
                count(&mut self.by_job, &action.spec.job, false);
                count(&mut self.by_tenant, prefix_of(&action.spec.job), false);
            }
            Stage::Started(started) => {
                self.started -= 1;
                self.hold_no_more(&group, &started.grants);
                if let Some(running) = self.running.get_mut(&key) {
                    let entry = (started.expected.unwrap_or_default(), id, started.units);
                    running.remove(&entry);
                    if running.is_empty() {
                        self.running.remove(&key);
                    }
                }
            }
            Stage::Ended(_) => {}
        }
    }
}
