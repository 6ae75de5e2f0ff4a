//! Actions: who waits, who runs and with what, by events and commands alone.

use super::super::outcome::{Checked, broken};
use super::Model;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::actions::{
    ActionCommand, ActionEvent, ActionSpec, Grant, Outcome, Resource, Supply,
};
use treadle_core::{Core, Event};
use treadle_model::{ActionId, Timestamp};

/// An attempt under way.
#[derive(Clone, Debug)]
struct Attempt {
    grants: Vec<Grant>,
    /// The daemon in which it was last heard of.
    session: u64,
}

/// An action that is not over.
#[derive(Clone, Debug)]
struct ActionFacts {
    spec: ActionSpec,
    attempts: u32,
    runs: Option<Attempt>,
}

/// What is known of actions.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionsFacts {
    resources: Vec<Resource>,
    open: BTreeMap<ActionId, ActionFacts>,
    last: u64,
    session: u64,
    /// Requests of each quota, by when they began.
    requests: BTreeMap<Box<str>, Vec<(Timestamp, u64)>>,
    /// Those that the present event has started.
    started: Vec<ActionId>,
    /// Those that the present event must end.
    ends: BTreeSet<ActionId>,
    /// Those that the allocation policy is asked about.
    asked: BTreeSet<ActionId>,
}

impl ActionsFacts {
    /// An attempt is over, and what it had is free.
    fn attempt_over(&mut self, id: ActionId, attempt: u32) -> bool {
        let known = self.open.get_mut(&id);
        let known = known.filter(|a| a.attempts == attempt && a.runs.is_some());
        known.is_some_and(|a| a.runs.take().is_some())
    }

    fn learn(&mut self, event: &ActionEvent) {
        match event {
            ActionEvent::ResourcesSet { resources } => self.resources.clone_from(resources),
            ActionEvent::ResourcesLost { resources } => {
                self.resources
                    .retain(|known| !resources.contains(&known.name));
                for (id, facts) in &mut self.open {
                    let was_there = |runs: &mut Attempt| {
                        let mut grants = runs.grants.iter();
                        grants.any(|grant| resources.contains(&grant.resource))
                    };
                    if facts.runs.take_if(was_there).is_some() && !facts.spec.idempotent {
                        self.ends.insert(*id);
                    }
                }
            }
            ActionEvent::ActionSubmitted { action, spec } if action.0 > self.last => {
                self.last = action.0;
                let facts = ActionFacts {
                    spec: (**spec).clone(),
                    attempts: 0,
                    runs: None,
                };
                self.open.insert(*action, facts);
            }
            ActionEvent::ActionBegan { action, attempt } => {
                let session = self.session;
                let known = self.open.get_mut(action);
                let known = known.filter(|a| a.attempts == *attempt);
                if let Some(runs) = known.and_then(|a| a.runs.as_mut()) {
                    runs.session = session;
                }
            }
            ActionEvent::ActionEnded {
                action,
                attempt,
                outcome,
                ..
            } => {
                let is_over = self.attempt_over(*action, *attempt);
                let idempotent = self.open.get(action).is_some_and(|a| a.spec.idempotent);
                if is_over && !(idempotent && *outcome == Outcome::Unknown) {
                    self.ends.insert(*action);
                }
            }
            ActionEvent::ActionCancelled { action } => {
                let waits = self.open.get(action).is_some_and(|a| a.runs.is_none());
                self.ends.extend(waits.then_some(*action));
            }
            ActionEvent::QuotaRefused {
                action: Some((action, attempt)),
                ..
            } => {
                self.attempt_over(*action, *attempt);
            }
            ActionEvent::ElasticAnswered { .. } => self.asked.clear(),
            ActionEvent::ActionsRecovered => {
                let session = self.session;
                for (id, facts) in &mut self.open {
                    let lost = |runs: &mut Attempt| runs.session != session;
                    if facts.runs.take_if(lost).is_some() && !facts.spec.idempotent {
                        self.ends.insert(*id);
                    }
                }
            }
            _ => {}
        }
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
    /// The meaning of an event for actions.
    pub(super) fn learn_of_actions(&mut self, event: &Event) {
        self.actions.started.clear();
        self.actions.ends.clear();
        match event {
            Event::Action(event) => self.actions.learn(event),
            Event::DaemonRestarted => {
                self.actions.session += 1;
                self.actions.asked.clear();
            }
            _ => {}
        }
    }

    pub(super) fn action_commanded(&mut self, command: &ActionCommand) -> Checked {
        let (now, actions) = (self.now, &mut self.actions);
        match command {
            ActionCommand::StartAction {
                action,
                attempt,
                grants,
                ..
            } => {
                let session = actions.session;
                let known = actions.open.get_mut(action).filter(|a| a.runs.is_none());
                let Some(known) = known.filter(|a| a.attempts + 1 == *attempt) else {
                    let known = actions.open.get(action);
                    return broken(
                        "action-once",
                        format!("{action} is started for the {attempt}th time: {known:?}"),
                    );
                };
                known.attempts = *attempt;
                known.runs = Some(Attempt {
                    grants: grants.clone(),
                    session,
                });
                actions.started.push(*action);
                for grant in grants {
                    let requests = actions.requests.entry(grant.resource.clone());
                    requests.or_default().push((now, grant.units));
                }
                Ok(())
            }
            ActionCommand::StopAction { action, .. } => {
                let runs = actions.open.get(action).is_some_and(|a| a.runs.is_some());
                if runs {
                    return Ok(());
                }
                broken(
                    "action-ends",
                    format!("{action} is stopped, and does not run"),
                )
            }
            ActionCommand::AnswerAction { action } => match actions.open.remove(action) {
                Some(_) => Ok(()),
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

    /// Compares the core with what is known of actions.
    pub(super) fn check_actions(&self, core: &Core) -> Checked {
        let facts = &self.actions;
        if let Some(action) = facts.ends.iter().find(|id| facts.open.contains_key(id)) {
            return broken("action-ends", format!("{action} is over, and not answered"));
        }
        self.check_action_order()?;
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

    /// Who is the first to wait for its key resource is overtaken on nothing that it needs.
    fn check_action_order(&self) -> Checked {
        let facts = &self.actions;
        if self.config.actions.joint_order {
            return Ok(());
        }
        let mut queues = BTreeSet::new();
        let waiting = facts.open.iter().filter(|(_, a)| a.runs.is_none());
        let firsts = waiting.filter(|(_, a)| {
            let key = &a.spec.demands[a.spec.key_demand()];
            queues.insert(&key.resource)
        });
        let firsts = firsts.filter(|(id, _)| !facts.asked.contains(id));
        for (first, waits) in firsts {
            let started = facts.started.iter().filter(|id| *id > first);
            for (later, spec) in started.filter_map(|id| Some((id, &facts.open.get(id)?.spec))) {
                let needs = |d: &&treadle_core::actions::Demand| {
                    waits
                        .spec
                        .demands
                        .iter()
                        .any(|of| of.resource == d.resource)
                };
                if let Some(demand) = spec.demands.iter().find(needs) {
                    return broken(
                        "action-order",
                        format!("{later} overtook {first} on {}", demand.resource),
                    );
                }
            }
        }
        Ok(())
    }
}
