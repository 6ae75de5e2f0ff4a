//! Starts and ends of actions: granting resources and releasing them.

use crate::Actions;
use crate::action::{Ended, Rank, Stage, Started};
use crate::command::{ActionCommand, Load};
use crate::event::Outcome;
use crate::pool::Granted;
use crate::resource::{Chunk, Grant, Instance};
use crate::spec::ActionSpec;
use crate::state::Timer;
use treadle_model::{ActionId, PolicyRef, Span, Timestamp};

impl Actions {
    /// Requests another pass, as more may be possible now.
    pub(crate) fn look_again(&mut self) {
        self.state.pass_wanted = true;
        self.state.held_back.clear();
    }

    /// Sets the time by which an action must leave its stage.
    pub(crate) fn set_deadline(&mut self, id: ActionId, at: Option<Timestamp>) {
        let Some(action) = self.state.live.get_mut(&id) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut action.deadline, at) {
            self.state.timers.disarm(before, Timer::Action(id));
        }
        if let Some(at) = at {
            self.state.timers.arm(at, Timer::Action(id));
        }
    }

    /// Moves an action to another stage.
    pub(crate) fn go_on(&mut self, id: ActionId, stage: Stage) {
        if let Some(action) = self.state.live.get_mut(&id) {
            self.index.remove(id, action);
            action.stage = stage;
            self.index.add(id, action);
        }
    }

    /// The expected run time of an action with these units of its key resource.
    pub(crate) fn expected(&self, spec: &ActionSpec, units: u64) -> Option<Span> {
        if spec.durations.is_empty() {
            return self.state.profiles.mean(&spec.job, &spec.kind, units);
        }
        let key = spec.demands.get(spec.key_demand())?;
        let option = key.options.iter().position(|amount| *amount == units)?;
        spec.durations.get(option).copied()
    }

    /// Starts an action with these units of its key resource and the minimum of all others.
    pub(crate) fn start(&mut self, id: ActionId, units: u64, policy: Option<&PolicyRef>) {
        let now = self.state.now;
        let Some(action) = self.state.live.get(&id) else {
            return;
        };
        let (service, run) = (
            action.spec.service.clone(),
            self.expected(&action.spec, units),
        );
        let Some((grants, loads, evicted)) = self.take(id, units, service.as_deref()) else {
            return;
        };
        let load_time = loads.as_ref().map_or(Span(0), |loads| {
            let known = self.state.services.get(&loads.service);
            known.map_or(Span(0), |known| known.load_on(u64::from(loads.chunk.size)))
        });
        let started = Started {
            since: now,
            begun: None,
            grants: grants.clone(),
            units,
            expected: run.map(|run| now + load_time + run),
            loads: loads.clone(),
            run: self.state.run,
            stopping: None,
            policy: policy.cloned(),
        };
        self.go_on(id, Stage::Started(started));
        self.set_deadline(id, Some(now + self.config.begin_max));
        let attempt = self.count_attempt(id);
        self.state.counters.started += 1;
        if let Some(needs) = self.index.needs.get(&id).cloned()
            && let Some(key) = grants.get(needs.key_demand)
        {
            self.had_turn(&needs.group, &key.resource);
        }
        self.state.counters.loads += u64::from(loads.is_some());
        let service = loads.map(|loads| loads.service);
        let changes = service.is_some() || !evicted.is_empty();
        self.command(ActionCommand::StartAction {
            action: id,
            attempt,
            grants,
            load: changes.then_some(Load { service, evicted }),
        });
        self.notice_begins(id, units, now + load_time);
    }

    fn count_attempt(&mut self, id: ActionId) -> u32 {
        self.state.live.get_mut(&id).map_or(0, |action| {
            action.attempt += 1;
            action.attempt
        })
    }

    /// Takes all of an action's resources, or none.
    fn take(
        &mut self,
        id: ActionId,
        units: u64,
        service: Option<&str>,
    ) -> Option<(Vec<Grant>, Option<Instance>, Vec<Instance>)> {
        let takes: Vec<_> = self.index.needs.get(&id)?.with(units).collect();
        let (now, services_max) = (self.state.now, self.config.device_services_max);
        let (mut grants, mut loads, mut evicted) = (Vec::new(), None, Vec::new());
        for (pool, units) in takes {
            let pool = self.state.pools.get_mut(pool as usize);
            let given = pool.and_then(|pool| pool.take(units, service, now, services_max));
            let Some(given) = given else {
                self.give_back(&grants);
                return None;
            };
            let Granted {
                grant,
                loads: is_new,
                evicted: went,
            } = given;
            if is_new && let (Some(service), Some(chunk)) = (service, grant.chunk) {
                loads = Some(Instance {
                    service: service.into(),
                    chunk,
                });
            }
            evicted.extend(went);
            grants.push(grant);
        }
        Some((grants, loads, evicted))
    }

    fn give_back(&mut self, grants: &[Grant]) {
        for grant in grants {
            let pool = self.state.pool_of(&grant.resource);
            if let Some(pool) = pool.and_then(|pool| self.state.pools.get_mut(pool as usize)) {
                pool.give_back(grant.units, grant.chunk);
            }
        }
        self.look_again();
    }

    /// Releases the resources of an attempt.
    fn release(&mut self, started: &Started) {
        self.give_back(&started.grants);
        if let (Some(loads), None) = (&started.loads, started.begun) {
            self.drop_instance(&loads.service, loads.chunk);
        }
    }

    /// Forgets an instance, because it is unknown whether it was loaded.
    fn drop_instance(&mut self, service: &str, chunk: Chunk) {
        for devices in self
            .state
            .pools
            .iter_mut()
            .filter_map(|p| p.devices.as_mut())
        {
            devices.drop_instance(service, chunk);
        }
    }

    /// Ends an action.
    pub(crate) fn end(&mut self, id: ActionId, outcome: Outcome, output: Option<Box<str>>) {
        self.set_deadline(id, None);
        let Some(mut action) = self.state.live.remove(&id) else {
            return;
        };
        self.index.remove(id, &action);
        self.index.close(id, &action.spec);
        let started = action.started().cloned();
        if let Some(started) = &started {
            self.learn(&action.spec, started, &outcome);
            self.release(started);
        }
        self.count_end(&outcome);
        let begun = started.as_ref().and_then(|started| started.begun);
        self.notice_end(id, &action, &outcome, begun);
        action.stage = Stage::Ended(Ended {
            at: self.state.now,
            outcome,
            output,
            started: started.as_ref().map(|started| started.since),
            begun,
            units: started.map_or(0, |started| started.units),
        });
        self.index.ended(id, &action.spec.job);
        self.state.ended.insert(id, action);
        self.state.ended_order.push_back(id);
        self.forget_oldest();
        self.look_again();
        self.command(ActionCommand::AnswerAction { action: id });
    }

    /// Returns it to its position in the queue. An open question is dropped, since an answer
    /// without this action would let others overtake it.
    pub(crate) fn queue_again(&mut self, id: ActionId) {
        let Some(action) = self.state.live.get(&id) else {
            return;
        };
        let start_by = action.spec.start_by;
        let started = action.started().cloned();
        let stage = self.waits(&action.spec);
        self.go_on(id, stage);
        if let Some(started) = started {
            self.release(&started);
        }
        self.set_deadline(id, start_by);
        self.unranked.push(id);
        self.drop_ask();
        self.look_again();
    }

    /// The stage of a waiting action. If its position depends on programs, it is ranked once the
    /// event is handled.
    pub(crate) fn waits(&self, spec: &ActionSpec) -> Stage {
        let key = spec.demands.get(spec.key_demand());
        let least = key.and_then(|key| key.options.first()).copied();
        let run = least.and_then(|units| self.expected(spec, units));
        let work = least
            .zip(run)
            .map_or(0, |(units, run)| units.saturating_mul(run.micros()));
        Stage::Waiting {
            rank: Rank::default(),
            work,
        }
    }

    fn learn(&mut self, spec: &ActionSpec, started: &Started, outcome: &Outcome) {
        let (Outcome::Exited { .. }, Some(begun)) = (outcome, started.begun) else {
            return;
        };
        let now = self.state.now;
        let took = now.since(begun);
        let profiles = &mut self.state.profiles;
        profiles.learn(&spec.job, &spec.kind, started.units, took, now);
        for grant in &started.grants {
            let pool = self.state.pool_of(&grant.resource);
            let pool = pool.and_then(|pool| self.state.pools.get_mut(pool as usize));
            if let Some(quota) = pool.and_then(|pool| pool.quota.as_mut()) {
                quota.answered();
            }
        }
    }

    fn count_end(&mut self, outcome: &Outcome) {
        let counters = &mut self.state.counters;
        match outcome {
            Outcome::Exited { .. } => counters.exited += 1,
            Outcome::Unknown => {
                counters.unknown += 1;
                counters.failed += 1;
            }
            _ => counters.failed += 1,
        }
    }

    /// Forgets the oldest ended actions beyond the limit; if groups share, those of the group that
    /// has most of them.
    pub(crate) fn forget_oldest(&mut self) {
        let most = usize::try_from(self.config.ended_max).unwrap_or(usize::MAX);
        while self.state.ended_order.len() > most {
            let order = &mut self.state.ended_order;
            let of_most = self
                .state
                .shares
                .as_ref()
                .and_then(|_| self.index.oldest_of_most());
            let at = of_most.and_then(|oldest| order.iter().position(|id| *id == oldest));
            let Some(oldest) = order.remove(at.unwrap_or(0)) else {
                return;
            };
            if let Some(action) = self.state.ended.remove(&oldest) {
                self.index.forget(oldest, &action.spec);
            }
        }
    }
}
