//! Actions: which wait and which run with which resources, from events and commands only.

use super::Model;
use super::action_programs::ProgramsActions;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Grant, Outcome, Pool, Resource, Shares, Supply,
};
use treadle_core::{Core, DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::tenant::prefix_of;
use treadle_model::{ActionId, ProgramId, Timestamp};

/// A running attempt.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) grants: Vec<Grant>,
    /// When it was started.
    pub(super) since: Timestamp,
    pub(super) begun: Option<Timestamp>,
    /// Whether it was to stop before it began.
    pub(super) began_late: bool,
    /// Whether it is to stop.
    stops: bool,
    /// Whether its exit counts as its outcome even if it is to stop.
    pub(super) exits_count: bool,
    /// The daemon session of its last report.
    session: u64,
}

/// An open action.
#[derive(Clone, Debug)]
pub(super) struct ActionFacts {
    pub(super) spec: ActionSpec,
    /// Its program, if that was live.
    pub(super) program: Option<ProgramId>,
    pub(super) submitted: Timestamp,
    /// Whether its program was told about it.
    pub(super) told: bool,
    /// Time since when it has been waiting, if it waits.
    pub(super) waits_since: Timestamp,
    attempts: u32,
    pub(super) runs: Option<Attempt>,
}

/// The actions.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionsFacts {
    resources: Vec<Resource>,
    /// Shares of groups of jobs.
    shares: Option<Shares>,
    pub(super) open: BTreeMap<ActionId, ActionFacts>,
    pub(super) of_programs: ProgramsActions,
    now: Timestamp,
    last: u64,
    session: u64,
    /// Requests of each quota, by start time.
    requests: BTreeMap<Box<str>, Vec<(Timestamp, u64)>>,
    /// Actions that the current event has started.
    started: Vec<ActionId>,
    /// Actions that the current event must end.
    ends: BTreeSet<ActionId>,
    /// Actions that the current event must stop.
    stops: BTreeSet<ActionId>,
    /// Attempts that ended with the current event.
    over: BTreeMap<ActionId, (Attempt, Outcome)>,
    /// Actions that the allocation policy is asked about.
    asked: BTreeSet<ActionId>,
}

impl ActionsFacts {
    pub(super) fn next_event(&mut self, now: Timestamp) {
        self.now = now;
        self.started.clear();
        self.ends.clear();
        self.stops.clear();
        self.over.clear();
        for facts in self.open.values_mut() {
            facts.told = true;
        }
    }

    /// An attempt has ended and its resources are free. So has its action, unless it may be
    /// retried.
    fn attempt_over(&mut self, id: ActionId, attempt: u32, outcome: Outcome, again: bool) {
        let Some(facts) = self.open.get_mut(&id) else {
            return;
        };
        let Some(runs) = facts.runs.take_if(|_| facts.attempts == attempt) else {
            return;
        };
        facts.waits_since = self.now;
        if !again || runs.stops {
            self.ends.insert(id);
        }
        self.over.insert(id, (runs, outcome));
    }

    /// The outcomes of some attempts are unknown.
    fn attempts_lost(&mut self, is_lost: impl Fn(&Attempt) -> bool) {
        let runs = |a: &ActionFacts| a.runs.as_ref().is_some_and(&is_lost);
        let lost = self.open.iter().filter(|(_, a)| runs(a));
        let lost: Vec<_> = lost
            .map(|(id, a)| (*id, a.attempts, a.spec.idempotent))
            .collect();
        for (id, attempt, again) in lost {
            self.attempt_over(id, attempt, Outcome::Unknown, again);
        }
    }

    /// An action is withdrawn.
    fn withdrawn(&mut self, id: ActionId) {
        match self.open.get(&id).map(|a| &a.runs) {
            Some(None) => self.ends.extend([id]),
            Some(Some(runs)) if !runs.stops => self.stops.extend([id]),
            _ => {}
        }
    }

    /// Withdraws a program's actions when it ends.
    pub(super) fn program_over(&mut self, key: &str) {
        let of_it = |a: &ActionFacts| a.spec.program.as_deref() == Some(key);
        let of_it = self.open.iter().filter(|(_, a)| of_it(a));
        let of_it: Vec<ActionId> = of_it.map(|(id, _)| *id).collect();
        for id in of_it {
            self.withdrawn(id);
        }
    }

    fn submitted(&mut self, id: ActionId, spec: &ActionSpec, program: Option<ProgramId>) {
        if id.0 <= self.last {
            return;
        }
        self.last = id.0;
        let facts = ActionFacts {
            spec: spec.clone(),
            program,
            submitted: self.now,
            told: false,
            waits_since: self.now,
            attempts: 0,
            runs: None,
        };
        self.open.insert(id, facts);
        if program.is_none()
            && let Some(key) = &spec.program
        {
            self.program_over(key);
        }
    }

    fn began(&mut self, id: ActionId, attempt: u32) {
        let (now, session) = (self.now, self.session);
        let known = self.open.get_mut(&id).filter(|a| a.attempts == attempt);
        if let Some(runs) = known.and_then(|a| a.runs.as_mut()) {
            runs.session = session;
            runs.began_late |= runs.begun.is_none() && runs.stops;
            runs.begun = runs.begun.or(Some(now));
        }
    }

    fn learn(&mut self, event: &ActionEvent) {
        match event {
            ActionEvent::ResourcesSet { resources } => self.resources.clone_from(resources),
            ActionEvent::SharesSet { shares } => self.shares.clone_from(shares),
            ActionEvent::ResourcesLost { resources } => {
                self.resources
                    .retain(|known| !resources.contains(&known.name));
                self.attempts_lost(|runs| {
                    let mut grants = runs.grants.iter();
                    grants.any(|grant| resources.contains(&grant.resource))
                });
            }
            ActionEvent::ActionBegan { action, attempt } => self.began(*action, *attempt),
            ActionEvent::ActionEnded {
                action,
                attempt,
                outcome,
                ..
            } => {
                let idempotent = self.open.get(action).is_some_and(|a| a.spec.idempotent);
                let again = idempotent && *outcome == Outcome::Unknown;
                self.attempt_over(*action, *attempt, outcome.clone(), again);
            }
            ActionEvent::ActionCancelled { action } => self.withdrawn(*action),
            ActionEvent::QuotaRefused {
                action: Some((action, attempt)),
                ..
            } => self.attempt_over(*action, *attempt, Outcome::Unknown, true),
            ActionEvent::ElasticAnswered { .. } => self.asked.clear(),
            ActionEvent::ActionsRecovered => {
                let session = self.session;
                self.attempts_lost(|runs| runs.session != session);
            }
            _ => {}
        }
    }

    fn started(&mut self, id: ActionId, attempt: u32, grants: &[Grant]) -> Checked {
        let (now, session) = (self.now, self.session);
        let known = self.open.get_mut(&id).filter(|a| a.runs.is_none());
        let Some(known) = known.filter(|a| a.attempts + 1 == attempt) else {
            let known = self.open.get(&id);
            return broken(
                "action-once",
                format!("{id} is started for the {attempt}th time: {known:?}"),
            );
        };
        known.attempts = attempt;
        known.runs = Some(Attempt {
            grants: grants.to_vec(),
            since: now,
            begun: None,
            began_late: false,
            stops: false,
            exits_count: true,
            session,
        });
        self.started.push(id);
        for grant in grants {
            let requests = self.requests.entry(grant.resource.clone());
            requests.or_default().push((now, grant.units));
        }
        Ok(())
    }

    /// The group of an action's job, if groups share.
    fn group<'a>(&self, action: &'a ActionFacts) -> &'a str {
        self.shares
            .as_ref()
            .map_or("", |_| prefix_of(&action.spec.job))
    }

    /// A group that exceeds its share of a resource, as text.
    fn beyond_share(&self, resource: &str, total: u64) -> Option<String> {
        let shares = self.shares.as_ref()?;
        let mut held = BTreeMap::<&str, u64>::new();
        for action in self.open.values() {
            let grants = action.runs.iter().flat_map(|runs| &runs.grants);
            let units = grants.filter(|grant| &*grant.resource == resource);
            *held.entry(self.group(action)).or_default() += units.map(|g| g.units).sum::<u64>();
        }
        let mut beyond = held
            .iter()
            .filter(|(group, units)| **units > shares.most(group, total));
        beyond
            .next()
            .map(|(group, units)| format!("{group:?} holds {units} of {total}"))
    }

    fn used(&self, resource: &str) -> u64 {
        self.grants(resource).map(|grant| grant.units).sum()
    }

    fn grants(&self, resource: &str) -> impl Iterator<Item = &Grant> {
        let runs = self.open.values().filter_map(|a| a.runs.as_ref());
        let grants = runs.flat_map(|runs| &runs.grants);
        grants.filter(move |grant| &*grant.resource == resource)
    }
}

impl Model {
    /// Applies an event to actions.
    pub(super) fn learn_of_actions(&mut self, event: &Event) {
        match event {
            Event::Action(ActionEvent::ActionSubmitted { action, spec }) => {
                let program = spec.program.as_ref().and_then(|key| self.keys.get(key));
                self.actions.submitted(*action, spec, program.copied());
            }
            Event::Action(event) => self.actions.learn(event),
            Event::Daemon(DaemonEvent::DaemonRestarted) => {
                self.actions.session += 1;
                self.actions.asked.clear();
            }
            _ => {}
        }
    }

    pub(super) fn action_commanded(&mut self, event: &Event, command: &ActionCommand) -> Checked {
        let actions = &mut self.actions;
        match command {
            ActionCommand::StartAction {
                action,
                attempt,
                grants,
                ..
            } => actions.started(*action, *attempt, grants),
            ActionCommand::StopAction { action, .. } => {
                actions.stops.remove(action);
                let known = actions.open.get_mut(action);
                let Some(runs) = known.and_then(|a| a.runs.as_mut()) else {
                    return broken(
                        "action-ends",
                        format!("{action} is stopped, and does not run"),
                    );
                };
                if !runs.stops {
                    // An attempt that exceeded its time may have ended by itself at the same time.
                    let is_late = matches!(event, Event::Daemon(DaemonEvent::TimerFired))
                        && runs.begun.is_some();
                    (runs.stops, runs.exits_count) = (true, is_late);
                }
                Ok(())
            }
            ActionCommand::AnswerAction { action } => match actions.open.remove(action) {
                Some(facts) => {
                    let runs = facts.runs.clone().map(|runs| (runs, Outcome::Unknown));
                    let last = runs.or_else(|| actions.over.remove(action));
                    self.action_over(&facts, last.as_ref());
                    Ok(())
                }
                None => broken("action-ends", format!("{action} is answered, and not open")),
            },
            ActionCommand::AskElastic { question, .. } => {
                let rows = question.action.iter().zip(&question.candidate);
                let candidates = rows.filter(|(_, candidate)| **candidate == 1);
                actions.asked = candidates.map(|(action, _)| *action).collect();
                Ok(())
            }
        }
    }

    /// Compares the core's actions with the model's.
    pub(super) fn check_actions(&self, core: &Core) -> Checked {
        let facts = &self.actions;
        if let Some(action) = facts.ends.iter().find(|id| facts.open.contains_key(id)) {
            return broken("action-ends", format!("{action} is over, and not answered"));
        }
        if let Some(action) = facts.stops.iter().find(|id| facts.open.contains_key(id)) {
            return broken("action-ends", format!("{action} is over, and not stopped"));
        }
        self.check_action_order()?;
        self.check_actions_of_programs(core)?;
        let state = core.actions();
        let live = state
            .live
            .iter()
            .map(|(id, a)| (*id, a.started().is_some()));
        let open = facts.open.iter().map(|(id, a)| (*id, a.runs.is_some()));
        if !live.clone().eq(open.clone()) {
            let (live, open): (Vec<_>, Vec<_>) = (live.collect(), open.collect());
            return broken("action-ends", format!("{live:?} in place of {open:?}"));
        }
        for resource in &facts.resources {
            self.check_resource(resource)?;
            let pool = state
                .pools
                .iter()
                .find(|p| p.resource.name == resource.name);
            let total = pool.map_or(0, Pool::total);
            if let Some(beyond) = facts.beyond_share(&resource.name, total) {
                return broken("action-shares", format!("{}: {beyond}", resource.name));
            }
            let (used, known) = (facts.used(&resource.name), pool.map(|pool| pool.used));
            if known != Some(used) {
                let name = &resource.name;
                return broken(
                    "action-sums",
                    format!("{known:?} of {name} in place of {used}"),
                );
            }
        }
        Ok(())
    }

    fn check_resource(&self, resource: &Resource) -> Checked {
        let (facts, name) = (&self.actions, &resource.name);
        let used = facts.used(name);
        let excess = match &resource.supply {
            Supply::Units { total } => used > *total,
            Supply::Devices { nodes } => {
                let mut taken = BTreeSet::new();
                let chunks = facts.grants(name).map(|grant| (grant.chunk, grant.units));
                let is_wrong = |(chunk, units): (Option<treadle_core::actions::Chunk>, u64)| {
                    chunk.is_none_or(|chunk| {
                        let node = nodes.get(chunk.node as usize).copied().unwrap_or(0);
                        chunk.first + chunk.size > node
                            || u64::from(chunk.size) != units
                            || !chunk.first.is_multiple_of(chunk.size)
                            || !chunk
                                .devices()
                                .all(|device| taken.insert((chunk.node, device)))
                    })
                };
                chunks.into_iter().any(is_wrong)
            }
            Supply::Quota {
                concurrent_max,
                requests_max,
                period,
            } => {
                let requests = facts.requests.get(name).into_iter().flatten();
                let recent = requests.filter(|(at, _)| *at + *period > self.now);
                let recent: u64 = recent.map(|(_, units)| units).sum();
                concurrent_max.is_some_and(|most| used > most)
                    || requests_max.is_some_and(|most| recent > most)
            }
        };
        if !excess {
            return Ok(());
        }
        let grants: Vec<_> = facts.grants(name).collect();
        broken("action-sums", format!("{resource:?} has given {grants:?}"))
    }

    /// Checks that no action has overtaken one that is served before it.
    fn check_action_order(&self) -> Checked {
        let facts = &self.actions;
        for later in &facts.started {
            let Some(started) = facts.open.get(later) else {
                continue;
            };
            let is_overtaken = |(id, waits): &(&ActionId, &ActionFacts)| {
                let is_first = *id < later && waits.runs.is_none() && !facts.asked.contains(id);
                let is_first = is_first && facts.group(waits) == facts.group(started);
                is_first && self.is_served_before(**id, waits, started)
            };
            if let Some((first, _)) = facts.open.iter().find(is_overtaken) {
                return broken("action-order", format!("{later} overtook {first}"));
            }
        }
        Ok(())
    }

    /// Whether one that came later must wait for one that waits: as they came, who is the first to
    /// wait for its key resource is overtaken on nothing that it needs. Where programs make a
    /// difference, those without one are served as they came, and who has waited for too long is
    /// served before all that came later. Where groups share, each queue of a group has turns of its own.
    fn is_served_before(&self, id: ActionId, waits: &ActionFacts, other: &ActionFacts) -> bool {
        let (facts, config) = (&self.actions, &self.config.actions);
        let key = |a: &ActionFacts| a.spec.demands[a.spec.key_demand()].resource.clone();
        if config.joint_order {
            let is_starved = self.now.since(waits.submitted) >= config.starvation;
            let are_nobodys = waits.spec.program.is_none() && other.spec.program.is_none();
            return key(waits) == key(other) && (is_starved || are_nobodys);
        }
        if facts.shares.is_some() && key(waits) != key(other) {
            return false;
        }
        let mut before = facts.open.range(..id);
        let needs = |resource: &str| {
            let mut demands = waits.spec.demands.iter();
            demands.any(|demand| &*demand.resource == resource)
        };
        let mut demands = other.spec.demands.iter();
        demands.any(|demand| needs(&demand.resource))
            && !before.any(|(_, a)| {
                let is_of_queue = key(a) == key(waits) && facts.group(a) == facts.group(waits);
                a.runs.is_none() && is_of_queue
            })
    }
}
