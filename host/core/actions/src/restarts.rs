//! A restart of the daemon: its new resources, and what became of the running actions.

use crate::Actions;
use crate::action::{Action, Started};
use crate::event::Outcome;
use crate::index::Index;
use crate::pool::Pool;
use crate::resource::{RESOURCES_MAX, Resource};
use crate::state::Timer;
use std::collections::BTreeSet;
use treadle_model::ActionId;

impl Actions {
    /// Questions of the previous run get no answer.
    pub(crate) fn daemon_restarted(&mut self) {
        self.state.run += 1;
        self.drop_ask();
        self.look_again();
    }

    /// Drops the open question; it is asked again if it still matters.
    pub(crate) fn drop_ask(&mut self) {
        if let Some(open) = self.state.ask.take() {
            self.state
                .timers
                .disarm(open.deadline, Timer::Ask(open.ask));
        }
    }

    /// Ends or retries actions that were started before and not reported since, as it is unknown
    /// whether they ran.
    pub(crate) fn actions_recovered(&mut self) {
        let run = self.state.run;
        let lost = self.state.live.iter().filter(|(_, action)| {
            let started = action.started();
            started.is_some_and(|started| started.run != run)
        });
        let lost: Vec<ActionId> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            self.end_or_retry(id);
        }
    }

    /// Ends or retries a started action, as it is unknown whether it ran.
    fn end_or_retry(&mut self, id: ActionId) {
        let action = self.state.live.get(&id);
        if action.is_some_and(|a| a.may_run_again(self.config.attempts_max)) {
            self.state.counters.retried += 1;
            self.queue_again(id);
        } else {
            self.end(id, Outcome::Unknown, None);
        }
    }

    /// A machine was lost for good, with all of these resources.
    pub(crate) fn resources_lost(&mut self, names: &[Box<str>]) {
        let was_there = |(_, action): &(&ActionId, &Action)| {
            let grants = action.started().map(|started| &started.grants);
            let mut grants = grants.into_iter().flatten();
            grants.any(|grant| names.contains(&grant.resource))
        };
        let lost: Vec<ActionId> = self
            .state
            .live
            .iter()
            .filter(was_there)
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.end_or_retry(id);
        }
        let pools = self.state.pools.iter().map(|pool| pool.resource.clone());
        let left: Vec<Resource> = pools
            .filter(|resource| !names.contains(&resource.name))
            .collect();
        self.resources_set(&left);
    }

    /// Replaces the resources. Waiting actions that can never start with the new ones end, and
    /// started ones that hold what is gone are stopped. At a start of the daemon, devices hold only
    /// the services of running actions; later, devices that stay keep their services.
    pub(crate) fn resources_set(&mut self, resources: &[Resource]) {
        self.drop_ask();
        let is_same_run = self.state.resources_run == Some(self.state.run);
        self.state.resources_run = Some(self.state.run);
        let mut pools: Vec<Pool> = Vec::new();
        let mut named = BTreeSet::new();
        let distinct = resources.iter().filter(|r| named.insert(&r.name));
        for resource in distinct.take(RESOURCES_MAX) {
            let mut pool = Pool::new(resource.clone());
            let mut before = self.state.pools.iter();
            let before = before.find(|before| before.resource.name == resource.name);
            if pool.quota.is_some() {
                let asked = before.and_then(|before| before.quota.clone());
                pool.quota = asked.or(pool.quota);
            }
            let stays = before.filter(|before| is_same_run && before.resource == *resource);
            if let (Some(devices), Some(stays)) = (&mut pool.devices, stays) {
                let held = stays.devices.as_ref().map(|devices| devices.held.clone());
                devices.held = held.unwrap_or_default();
            }
            pools.push(pool);
        }
        for (number, pool) in (0..).zip(&self.state.pools) {
            if let Some(at) = pool.wake_at {
                self.state.timers.disarm(at, Timer::Quota(number));
            }
        }
        self.state.pools = pools;
        let gone = self.take_all_again();
        self.index = Index::of(&self.state);
        self.end_hopeless();
        let cause = "a resource that it held no longer exists";
        for id in gone {
            self.stop(
                id,
                Outcome::InfrastructureFailure {
                    cause: cause.into(),
                },
            );
        }
        self.look_again();
    }

    /// Started actions keep what still exists. Returns those that no longer have everything.
    fn take_all_again(&mut self) -> Vec<ActionId> {
        let mut gone = Vec::new();
        let pools = &mut self.state.pools;
        for (id, action) in &mut self.state.live {
            let service = action.spec.service.clone();
            let Some(started) = action.started_mut() else {
                continue;
            };
            let before = started.grants.len();
            take_again(pools, started, service.as_deref());
            if started.grants.len() < before {
                gone.push(*id);
            }
        }
        gone
    }

    fn end_hopeless(&mut self) {
        let waiting = self.state.waiting();
        let hopeless = waiting.filter_map(|(id, action)| {
            let cause = self.missing(&action.spec)?;
            Some((id, cause))
        });
        let hopeless: Vec<_> = hopeless.collect();
        for (id, cause) in hopeless {
            self.end(id, Outcome::InfrastructureFailure { cause }, None);
        }
    }
}

fn take_again(pools: &mut [Pool], started: &mut Started, service: Option<&str>) {
    let since = started.since;
    started.grants.retain(|grant| {
        let pool = pools.iter_mut().find(|p| p.resource.name == grant.resource);
        let Some(pool) = pool else {
            return false;
        };
        let is_kept = pool.take_again(grant);
        if is_kept
            && let (Some(service), Some(chunk)) = (service, grant.chunk)
            && let Some(devices) = &mut pool.devices
        {
            devices.hold(service, chunk, since);
        }
        is_kept
    });
}
