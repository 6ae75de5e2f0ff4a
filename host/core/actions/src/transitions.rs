//! The effect of each event.

use crate::Actions;
use crate::action::{Action, Stage};
use crate::command::ActionCommand;
use crate::event::{ActionEvent, Outcome};
use crate::index::{Needs, positions};
use crate::spec::ActionSpec;
use crate::state::{SERVICES_MAX, Service};
use treadle_model::{ActionId, Span};

impl Actions {
    pub(crate) fn transition(&mut self, event: &ActionEvent) {
        match event {
            ActionEvent::ResourcesSet { resources } => self.resources_set(resources),
            ActionEvent::ResourcesLost { resources } => self.resources_lost(resources),
            ActionEvent::ServiceDeclared { service, load } => self.service_declared(service, *load),
            ActionEvent::SharesSet { shares } => self.shares_set(shares.as_ref()),
            ActionEvent::ActionSubmitted { action, spec } => self.action_submitted(*action, spec),
            ActionEvent::ActionBegan { action, attempt } => self.action_began(*action, *attempt),
            ActionEvent::ActionEnded {
                action,
                attempt,
                outcome,
                output,
            } => self.action_ended(*action, *attempt, outcome, output.as_deref()),
            ActionEvent::ActionCancelled { action } => self.action_cancelled(*action),
            ActionEvent::QuotaRefused {
                resource,
                retry_after,
                action,
            } => self.quota_refused(resource, *retry_after, *action),
            ActionEvent::ElasticAnswered {
                ask,
                policy,
                answer,
            } => self.elastic_answered(*ask, policy, answer),
            ActionEvent::ActionsRecovered => self.actions_recovered(),
        }
    }

    /// A changed load time for a known service discards the measured ones.
    fn service_declared(&mut self, service: &str, load: Span) {
        let services = &mut self.state.services;
        let is_known = services.contains_key(service);
        if services
            .get(service)
            .is_some_and(|known| known.load == load)
        {
            return;
        }
        if is_known || services.len() < SERVICES_MAX {
            let declared = Service {
                load,
                ..Service::default()
            };
            services.insert(service.into(), declared);
        }
    }

    /// The action was checked before it was put on record ([`crate::Core::check_action`]). A reused
    /// id changes nothing.
    fn action_submitted(&mut self, id: ActionId, spec: &ActionSpec) {
        if id.0 <= self.state.last_action {
            return;
        }
        self.state.last_action = id.0;
        self.state.counters.submitted += 1;
        let action = Action {
            spec: Box::new(spec.clone()),
            submitted: self.state.now,
            attempt: 0,
            refusals: 0,
            stage: self.waits(spec),
            deadline: None,
        };
        let missing = self.missing(spec);
        let needs = Needs::of(spec, &positions(&self.state.pools));
        self.index.remember(id, spec);
        let needs = needs.unwrap_or_else(|| Needs::gone(spec));
        self.index.open(id, needs, &action);
        self.state.live.insert(id, action);
        if let Some(cause) = missing {
            return self.end(id, Outcome::InfrastructureFailure { cause }, None);
        }
        if spec
            .start_by
            .is_some_and(|start_by| start_by <= self.state.now)
        {
            return self.end(id, Outcome::Expired, None);
        }
        self.set_deadline(id, spec.start_by);
        self.unranked.push(id);
        self.look_again();
    }

    /// Why an action can never start with the present resources, if so.
    pub(crate) fn missing(&self, spec: &ActionSpec) -> Option<Box<str>> {
        if spec.demands.is_empty() {
            return Some("it names no resource".into());
        }
        let lacks = |demand: &&crate::Demand| {
            let pool = self.state.pool_of(&demand.resource);
            let pool = pool.and_then(|pool| self.state.pools.get(pool as usize));
            let least = demand.options.first().copied().unwrap_or(u64::MAX);
            pool.is_none_or(|pool| pool.most() < least || !pool.has_amount(least))
        };
        let demand = spec.demands.iter().find(lacks)?;
        Some(format!("there is not enough of {:?}", demand.resource).into())
    }

    fn action_began(&mut self, id: ActionId, attempt: u32) {
        let (now, run) = (self.state.now, self.state.run);
        let Some(action) = self.state.live.get(&id).filter(|a| a.attempt == attempt) else {
            return;
        };
        let Some(mut started) = action.started().cloned() else {
            return;
        };
        // It is reported again after a restart.
        started.run = run;
        let run_max = action.spec.run_max;
        let expected = self.expected(&action.spec, started.units);
        let is_new = started.begun.is_none();
        if is_new {
            started.begun = Some(now);
            started.expected = expected.map(|expected| now + expected);
            let took = now.since(started.since);
            if let Some(loads) = &started.loads
                && let Some(service) = self.state.services.get_mut(&loads.service)
            {
                service.learn(u64::from(loads.chunk.size), took);
            }
        }
        let (stops, units) = (started.stopping.is_some(), started.units);
        self.go_on(id, Stage::Started(started));
        if stops {
            self.command(ActionCommand::StopAction {
                action: id,
                attempt,
            });
        } else if is_new {
            self.set_deadline(id, Some(now + run_max));
            self.notice_begins(id, units, now);
        }
    }

    fn action_ended(
        &mut self,
        id: ActionId,
        attempt: u32,
        outcome: &Outcome,
        output: Option<&str>,
    ) {
        let Some(action) = self.state.live.get(&id).filter(|a| a.attempt == attempt) else {
            return;
        };
        let Some(started) = action.started() else {
            return;
        };
        // A stopped action ends with the reason for which it was stopped. But one that exited by
        // itself did not time out: only its report was late.
        let outcome = match (&started.stopping, outcome) {
            (None, _) | (Some(Outcome::TimedOut), Outcome::Exited { .. }) => outcome.clone(),
            (Some(reason), _) => reason.clone(),
        };
        let runs_again = action.may_run_again(self.config.attempts_max);
        if outcome == Outcome::Unknown && runs_again {
            self.state.counters.retried += 1;
            self.queue_again(id);
        } else {
            self.end(id, outcome, output.map(Into::into));
        }
    }

    fn action_cancelled(&mut self, id: ActionId) {
        let waits = self.state.live.get(&id).map(|a| a.rank().is_some());
        match waits {
            Some(true) => self.end(id, Outcome::Cancelled, None),
            Some(false) => self.stop(id, Outcome::Cancelled),
            None => {}
        }
    }

    /// The program is over: its waiting and running actions are of no use any more.
    pub(crate) fn program_over(&mut self, program: &str) {
        let of_program = self.index.by_program.get(program).cloned();
        for id in of_program.into_iter().flatten() {
            self.action_cancelled(id);
        }
    }

    /// Stops an attempt, unless it is being stopped already.
    pub(crate) fn stop(&mut self, id: ActionId, reason: Outcome) {
        let Some(action) = self.state.live.get_mut(&id) else {
            return;
        };
        let attempt = action.attempt;
        let Some(started) = action.started_mut().filter(|s| s.stopping.is_none()) else {
            return;
        };
        started.stopping = Some(reason);
        let at = self.state.now + self.config.stop_max;
        self.set_deadline(id, Some(at));
        self.command(ActionCommand::StopAction {
            action: id,
            attempt,
        });
    }

    fn quota_refused(
        &mut self,
        resource: &str,
        retry_after: Span,
        refused: Option<(ActionId, u32)>,
    ) {
        let now = self.state.now;
        let pool = self.state.pool_of(resource);
        let pool = pool.and_then(|pool| self.state.pools.get_mut(pool as usize));
        if let Some(quota) = pool.and_then(|pool| pool.quota.as_mut()) {
            let by = refused.map_or(ActionId(0), |(id, _)| id);
            quota.refused(retry_after, by, now);
            self.state.counters.refusals += 1;
        }
        self.look_again();
        let Some((id, attempt)) = refused else {
            return;
        };
        let most = self.config.refusals_max;
        let action = self
            .state
            .live
            .get_mut(&id)
            .filter(|a| a.attempt == attempt);
        let Some(action) = action.filter(|a| a.started().is_some()) else {
            return;
        };
        action.refusals += 1;
        let stopping = action
            .started()
            .and_then(|started| started.stopping.clone());
        if let Some(reason) = stopping {
            return self.end(id, reason, None);
        }
        if action.refusals > most {
            let cause = format!("{resource:?} refused it {} times", action.refusals).into();
            return self.end(id, Outcome::InfrastructureFailure { cause }, None);
        }
        self.queue_again(id);
    }
}
