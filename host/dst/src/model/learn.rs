//! The effects of each event by itself, before decisions.

use super::Model;
use super::facts::{Answered, At, Ending, ProgramFacts, StepFacts, WorkerFacts};
use super::memory::prefix_of;
use std::collections::BTreeSet;
use treadle_core::memory::Capacity;
use treadle_core::programs::WorkerState;
use treadle_core::programs::{
    PolicyAnswer, ProgramEvent, Purpose, StepArrival, StepFailure, StepTokens,
};
use treadle_core::{Core, DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{AskId, GatewayId, ProgramId, StepId, Timestamp, WorkerId};

impl Model {
    pub(super) fn learn(&mut self, core: &Core, event: &Event) -> Checked {
        match event {
            Event::Program(ProgramEvent::WorkerAdded {
                worker, capacity, ..
            }) => self.worker_added(*worker, *capacity),
            Event::Program(ProgramEvent::WorkerCapacityRead {
                worker, capacity, ..
            }) => {
                if let Some(w) = self.workers.get_mut(worker) {
                    w.capacity = *capacity;
                }
            }
            Event::Program(ProgramEvent::WorkerLost { worker, .. }) => self.worker_lost(*worker),
            Event::Program(ProgramEvent::WorkerRecovered { worker }) => {
                if let Some(w) = self.workers.get_mut(worker) {
                    w.healthy = true;
                }
            }
            Event::Program(ProgramEvent::WorkerRemoved { worker }) => {
                self.worker_lost(*worker);
                if let Some(w) = self.workers.get_mut(worker) {
                    w.leaving = true;
                }
            }
            Event::Program(ProgramEvent::WorkerStateSet { worker, state }) => {
                self.state_set(*worker, *state);
            }
            Event::Program(ProgramEvent::StepArrived(arrival)) => {
                return self.step_arrived(core, arrival);
            }
            Event::Program(ProgramEvent::StepFirstToken { step }) => self.step_progressed(*step, 0),
            Event::Program(ProgramEvent::StepProgressed {
                step,
                output_tokens,
            }) => self.step_progressed(*step, *output_tokens),
            Event::Program(ProgramEvent::StepFinished { step, tokens, .. }) => {
                return self.step_finished(core, *step, *tokens);
            }
            Event::Program(ProgramEvent::StepFailed { step, failure }) => {
                return self.step_failed(*step, failure);
            }
            Event::Program(ProgramEvent::StepCancelled { step }) => {
                return self.step_withdrawn(*step, Ending::Cancelled);
            }
            Event::Program(ProgramEvent::ProgramReleased { program, .. }) => self.released(program),
            Event::Program(ProgramEvent::PolicyAnswered { ask, answer, .. }) => {
                self.policy_answered(*ask, answer);
            }
            Event::Daemon(DaemonEvent::TimerFired) => self.time_passed(),
            Event::Daemon(DaemonEvent::Configured { config }) => self.configured(config),
            Event::Daemon(DaemonEvent::DaemonRestarted) => {
                self.asks.clear();
                self.restart_ends_transfers();
                return self.interrupted(GatewayId::LOCAL);
            }
            Event::Daemon(DaemonEvent::GatewayLost { gateway }) => {
                return self.interrupted(*gateway);
            }
            Event::Program(ProgramEvent::StepInterrupted { step }) => self.taken_back(*step),
            Event::Program(ProgramEvent::StepAdopted { step, worker }) => {
                self.adopted(*step, *worker);
            }
            other => self.learn_of_caches(core, other),
        }
        Ok(())
    }

    fn worker_added(&mut self, worker: WorkerId, capacity: Capacity) {
        if let Some(known) = self.workers.get_mut(&worker) {
            known.capacity = capacity;
            if std::mem::take(&mut known.leaving) {
                self.state_set(worker, WorkerState::Active);
            }
            return;
        }
        let facts = WorkerFacts {
            healthy: true,
            leaving: false,
            state: WorkerState::Active,
            capacity,
            life: 0,
            over_since_us: None,
            over_idle_most: 0,
        };
        self.workers.insert(worker, facts);
    }

    fn worker_lost(&mut self, worker: WorkerId) {
        if let Some(w) = self.workers.get_mut(&worker).filter(|w| w.healthy) {
            w.healthy = false;
            w.life += 1;
            self.worker_ends_transfers(worker);
        }
    }

    fn step_arrived(&mut self, core: &Core, arrival: &StepArrival) -> Checked {
        if self.steps.contains_key(&arrival.step) {
            // A repeated report.
            return Ok(());
        }
        let is_new = !self.keys.contains_key(&arrival.program);
        let Some(id) = self.program_of(arrival) else {
            self.turned_away = Some(arrival.step);
            return Ok(());
        };
        let step = self.arrived_step(core, id, arrival);
        let most = arrival.output_tokens_max.unwrap_or(u64::MAX);
        if step.reserved_tokens > most {
            let (step, reserved) = (arrival.step, step.reserved_tokens);
            return broken(
                "ledger",
                format!("{step} reserves {reserved} tokens of {most}"),
            );
        }
        let Some(p) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        p.closing |= arrival.one_shot;
        p.awaited.clear();
        p.family_step_at = Timestamp(0);
        p.steps.insert(arrival.step);
        self.steps.insert(arrival.step, step);
        let waiting = arrival
            .parent
            .as_ref()
            .filter(|parent| is_new && parent.waits);
        let parent = waiting.and_then(|parent| self.keys.get(&parent.program));
        let parent = parent.and_then(|id| self.programs.get_mut(id));
        if let Some(parent) = parent.filter(|parent| parent.steps.is_empty()) {
            parent.awaited.insert(id);
        }
        Ok(())
    }

    fn program_of(&mut self, arrival: &StepArrival) -> Option<ProgramId> {
        if let Some(known) = self.keys.get(&arrival.program) {
            return Some(*known);
        }
        if self.programs.len() as u64 >= self.config.programs_max {
            return None;
        }
        let id = ProgramId(self.next_program);
        self.next_program += 1;
        self.keys.insert(arrival.program.clone(), id);
        let facts = ProgramFacts {
            key: arrival.program.clone(),
            job: arrival.job.clone(),
            steps: BTreeSet::new(),
            place: None,
            placed_before: false,
            placed_at: self.now,
            context_tokens: 0,
            steps_finished: 0,
            closing: false,
            inferred: arrival.inferred,
            awaited: BTreeSet::new(),
            parent: arrival.parent.as_ref().map(|parent| parent.program.clone()),
            family_step_at: Timestamp(0),
            idle_since_us: self.settled_us,
            steps_sent: 0,
        };
        self.programs.insert(id, facts);
        Some(id)
    }

    /// An arrived step. What nobody has counted, and what to reserve for its output, the core
    /// estimates.
    fn arrived_step(&self, core: &Core, program: ProgramId, arrival: &StepArrival) -> StepFacts {
        let known = core.programs().steps.get(&arrival.step);
        let prompt_tokens = match known.filter(|_| arrival.text.is_some()) {
            Some(known) => known.prompt_tokens,
            None => arrival.prompt_tokens,
        };
        StepFacts {
            program,
            at: At::Hand,
            waits_since: self.now,
            sent_at: self.now,
            prompt_tokens,
            exact: arrival.exact,
            reserved_tokens: known.map_or(0, |known| known.output_tokens_reserved),
            output_tokens: 0,
            began: false,
            attempts: 0,
            slot: None,
            adopted: false,
            priorities: BTreeSet::new(),
        }
    }

    fn step_progressed(&mut self, step: StepId, output_tokens: u64) {
        if let Some(s) = self.steps.get_mut(&step) {
            s.began = true;
            s.output_tokens = s.output_tokens.max(output_tokens);
        }
    }

    fn step_finished(&mut self, core: &Core, step: StepId, tokens: StepTokens) -> Checked {
        let Some(program) = self.steps.get(&step).map(|s| s.program) else {
            return Ok(());
        };
        let shared = prefix_of(core, program).iter();
        let shared: u64 = shared.map(|segment| segment.tokens).sum();
        if shared > tokens.prompt {
            let counted = tokens.prompt;
            return broken(
                "sizes",
                format!("{program} shares {shared} tokens of a prompt of {counted}"),
            );
        }
        if let Some(p) = self.programs.get_mut(&program) {
            self.found_all = tokens
                .cached
                .is_some_and(|cached| cached >= p.context_tokens);
            p.steps_finished += 1;
            p.context_tokens = tokens.prompt + tokens.output;
        }
        self.family_heard(program);
        self.end(step, Ending::Finished)
    }

    /// Programs that wait for one that made progress keep waiting.
    fn family_heard(&mut self, program: ProgramId) {
        let mut id = program;
        for _ in 0..16 {
            let parent = self.programs.get(&id).and_then(|p| p.parent.as_ref());
            let Some(parent) = parent.and_then(|key| self.keys.get(key)).copied() else {
                return;
            };
            let known = self.programs.get_mut(&parent);
            let Some(p) = known.filter(|p| p.awaited.contains(&id)) else {
                return;
            };
            p.family_step_at = self.now;
            id = parent;
        }
    }

    fn step_failed(&mut self, step: StepId, failure: &StepFailure) -> Checked {
        let Some(s) = self.steps.get_mut(&step) else {
            return Ok(());
        };
        if failure.retryable && s.at == At::Queue {
            return Ok(());
        }
        if !failure.retryable || s.began {
            return self.end_failed(step, failure.rejected);
        }
        if s.attempts >= self.config.attempts_max {
            // To be refused, as what follows shows.
            return Ok(());
        }
        if matches!(s.at, At::Worker(..)) {
            s.waits_since.0 += self.now.since(s.sent_at).micros();
        }
        s.at = At::Hand;
        Ok(())
    }

    fn step_withdrawn(&mut self, step: StepId, ending: Ending) -> Checked {
        if let Some(s) = self.steps.get(&step)
            && s.began
            && let Some(p) = self.programs.get_mut(&s.program)
        {
            p.context_tokens = p.context_tokens.max(s.prompt_tokens + s.output_tokens);
        }
        if self.steps.contains_key(&step) {
            self.end(step, ending)?;
        }
        Ok(())
    }

    /// The connections of a gateway are lost.
    fn interrupted(&mut self, gateway: GatewayId) -> Checked {
        let steps = self.steps.keys().filter(|step| step.gateway() == gateway);
        let open: Vec<StepId> = steps.copied().collect();
        for step in open {
            self.step_withdrawn(step, Ending::Interrupted)?;
        }
        Ok(())
    }

    /// A step runs where an earlier daemon sent it.
    fn adopted(&mut self, step: StepId, worker: WorkerId) {
        let Some(life) = self.workers.get(&worker).map(|w| w.life) else {
            return;
        };
        let now = self.now;
        let Some(s) = self.steps.get_mut(&step) else {
            return;
        };
        if matches!(s.at, At::Worker(there, _) if there == worker) {
            return;
        }
        if matches!(s.at, At::Worker(..)) {
            s.waits_since.0 += now.since(s.sent_at).micros();
            // It never ran on the worker of its last dispatch.
            s.attempts = s.attempts.saturating_sub(1);
        }
        s.at = At::Worker(worker, life);
        s.sent_at = now;
        s.attempts += 1;
        s.slot = None;
        s.adopted = true;
        let program = s.program;
        if let Some(p) = self.programs.get_mut(&program) {
            p.steps_sent += 1;
        }
    }

    /// A gateway took a step back from its engine.
    fn taken_back(&mut self, step: StepId) {
        let now = self.now;
        let s = self.steps.get_mut(&step);
        if let Some(s) = s.filter(|s| matches!(s.at, At::Worker(..))) {
            s.waits_since.0 += now.since(s.sent_at).micros();
            s.at = At::Hand;
            // Its preemption is no fault of its engine.
            s.attempts = s.attempts.saturating_sub(1);
        }
    }

    fn released(&mut self, key: &str) {
        let Some(id) = self.keys.get(key).copied() else {
            return;
        };
        if let Some(p) = self.programs.get_mut(&id) {
            p.closing = true;
            if p.steps.is_empty() {
                self.close(id);
            }
        }
    }

    fn policy_answered(&mut self, ask: AskId, answer: &PolicyAnswer) {
        let Some(open) = self.asks.remove(&ask) else {
            return;
        };
        self.hear_priorities(&open, answer);
        if matches!(open.purpose, Purpose::Restore) {
            let named = match answer {
                PolicyAnswer::Order { programs, .. } => programs.iter().copied().collect(),
                PolicyAnswer::Weights { .. } | PolicyAnswer::CacheActions { .. } => {
                    open.candidates.iter().copied().collect()
                }
            };
            let candidates = open.candidates;
            self.answered = Some(Answered { candidates, named });
        }
    }

    /// Ends a step, and its program if that was to end.
    pub(super) fn end(&mut self, step: StepId, ending: Ending) -> Checked {
        let Some(s) = self.steps.remove(&step) else {
            return broken("ends-once", format!("{step} ends, but is not open"));
        };
        if let Some(before) = self.ended.insert(step, ending) {
            let (before, now) = (before.name(), ending.name());
            return broken("ends-once", format!("{step} was {before} and is {now} now"));
        }
        let settled_us = self.settled_us;
        let Some(p) = self.programs.get_mut(&s.program) else {
            return broken(
                "programs",
                format!("{step} ends, but {} is gone", s.program),
            );
        };
        p.steps.remove(&step);
        let over = p.steps.is_empty();
        let closing = p.closing;
        if over {
            p.idle_since_us = settled_us;
        }
        if over && closing {
            self.close(s.program);
        }
        Ok(())
    }
}
