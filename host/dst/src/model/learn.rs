//! The effects of each event by itself, before decisions.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::{Answered, At, Ending, JobFacts, ProgramFacts, StepFacts, WorkerFacts};
use super::prefill::PromptSpeed;
use std::collections::BTreeMap;
use treadle_core::programs::{FULL_WEIGHT_PPM, GivesWay, WorkerState};
use treadle_core::{
    Capacity, DaemonEvent, Event, PolicyAnswer, ProgramEvent, Purpose, StepArrival, StepFailure,
    StepTokens,
};
use treadle_model::{AskId, EngineKind, GatewayId, ProgramId, StepId, Timestamp, WorkerId};

impl Model {
    pub(super) fn learn(&mut self, event: &Event) -> Checked {
        self.take_over_forked();
        match event {
            Event::Program(ProgramEvent::WorkerAdded {
                worker,
                capacity,
                engine,
                ..
            }) => self.worker_added(*worker, *engine, *capacity),
            Event::Program(ProgramEvent::WorkerCapacityRead {
                worker,
                engine,
                capacity,
            }) => {
                self.capacity_read(*worker, *engine, *capacity);
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
            Event::Program(ProgramEvent::StepArrived(arrival)) => self.step_arrived(arrival),
            Event::Program(ProgramEvent::StepFirstToken { step }) => self.step_progressed(*step, 0),
            Event::Program(ProgramEvent::StepProgressed {
                step,
                output_tokens,
            }) => self.step_progressed(*step, *output_tokens),
            Event::Program(ProgramEvent::StepFinished { step, tokens, .. }) => {
                return self.step_finished(*step, *tokens);
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
                self.restart_forgets_who_was_asked();
                self.restart_ends_transfers();
                self.restart_asks_again();
                return self.interrupted(GatewayId::LOCAL);
            }
            Event::Daemon(DaemonEvent::GatewayLost { gateway }) => {
                return self.interrupted(*gateway);
            }
            Event::Program(ProgramEvent::StepInterrupted { step }) => self.taken_back(*step),
            Event::Program(ProgramEvent::StepRunsOn { step }) => self.runs_on(*step),
            Event::Program(ProgramEvent::StepAdopted { step, worker }) => {
                self.adopted(*step, *worker);
            }
            other => self.learn_of_caches(other),
        }
        Ok(())
    }

    fn worker_added(&mut self, worker: WorkerId, kind: EngineKind, capacity: Capacity) {
        if let Some(known) = self.workers.get_mut(&worker) {
            if std::mem::take(&mut known.leaving) {
                self.state_set(worker, WorkerState::Active);
            }
            return self.capacity_read(worker, kind, capacity);
        }
        let facts = WorkerFacts {
            healthy: true,
            leaving: false,
            state: WorkerState::Active,
            capacity,
            life: 0,
            over_since_us: None,
            over_idle_most: 0,
            shared: BTreeMap::new(),
            kept: BTreeMap::new(),
            free_ppm: None,
            beyond_tokens: 0,
            prompts: BTreeMap::new(),
            speed: PromptSpeed::default(),
            kind,
        };
        self.workers.insert(worker, facts);
    }

    fn capacity_read(&mut self, worker: WorkerId, kind: EngineKind, capacity: Capacity) {
        let Some(w) = self.workers.get_mut(&worker) else {
            return;
        };
        if w.kind != EngineKind::Openai && w.kind != kind {
            w.speed = PromptSpeed::default();
        }
        w.kind = kind;
        w.capacity = capacity;
        let most = w.context_tokens_max();
        for program in self.programs_on(worker) {
            let steps = self.programs[&program].steps.iter();
            let mut least = steps.map(|step| self.least_of(&self.steps[step]));
            // A step that waits there for its cache waits for another placement.
            let too_long = least.any(|least| least > most);
            if too_long && self.has_run_queues_or_caches() && !self.runs_anything(program) {
                self.take_placement(program);
            }
        }
    }

    fn worker_lost(&mut self, worker: WorkerId) {
        if let Some(w) = self.workers.get_mut(&worker).filter(|w| w.healthy) {
            w.healthy = false;
            w.life += 1;
            w.speed = w.speed.remembered();
        } else {
            return;
        }
        self.worker_ends_transfers(worker);
        // A program between steps is paused by a decision.
        for program in self.programs_on(worker) {
            let waits = !self.programs[&program].steps.is_empty();
            if waits && !self.runs_anything(program) && self.has_run_queues_or_caches() {
                self.take_placement(program);
            }
        }
    }

    fn step_arrived(&mut self, arrival: &StepArrival) {
        if self.steps.contains_key(&arrival.step) {
            // A repeated report.
            return;
        }
        let is_new = !self.keys.contains_key(&arrival.program);
        let Some(id) = self.program_of(arrival) else {
            self.turned_away = Some(arrival.step);
            return;
        };
        let step = self.arrived_step(id, arrival);
        let least = self.least_of(&step);
        let leaves = self.leaves_placement(id, least);
        let core_sizes = self.core_sizes.prefix.clone();
        let Some(p) = self.programs.get_mut(&id) else {
            return;
        };
        p.weight_ppm = FULL_WEIGHT_PPM;
        if p.place.is_none() {
            p.prefix = core_sizes.unwrap_or_else(|| arrival.prefix.clone());
        }
        p.closing |= arrival.one_shot;
        p.awaited.clear();
        p.family_step_at = Timestamp(0);
        p.steps.insert(arrival.step);
        if least <= self.longest_context() {
            self.caches.stays(id);
        }
        self.steps.insert(arrival.step, step);
        if leaves {
            self.take_placement(id);
        }
        let waiting = arrival
            .parent
            .as_ref()
            .filter(|parent| is_new && parent.waits);
        let parent = waiting.and_then(|parent| self.keys.get(&parent.program));
        let parent = parent.and_then(|id| self.programs.get_mut(id));
        if let Some(parent) = parent.filter(|parent| parent.steps.is_empty()) {
            parent.awaited.insert(id);
        }
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
            prefix: self.core_sizes.prefix.clone().unwrap_or_default(),
            steps: std::collections::BTreeSet::new(),
            place: None,
            placed_before: false,
            placed_at: self.now,
            avoid: None,
            weight_ppm: FULL_WEIGHT_PPM,
            context_tokens: 0,
            steps_finished: 0,
            closing: false,
            inferred: arrival.inferred,
            awaited: std::collections::BTreeSet::new(),
            parent: arrival.parent.as_ref().map(|parent| parent.program.clone()),
            family_step_at: Timestamp(0),
            idle_since_us: self.settled_us,
            steps_sent: 0,
            last_output_tokens: 0,
            is_warm: false,
            was_told: false,
        };
        self.programs.insert(id, facts);
        Some(id)
    }

    fn arrived_step(&self, program: ProgramId, arrival: &StepArrival) -> StepFacts {
        let core_sizes = self
            .core_sizes
            .prompt_tokens
            .filter(|_| arrival.text.is_some());
        let learnt = self
            .jobs
            .get(&arrival.job)
            .filter(|job| job.steps_finished > 0);
        let told = |job: &JobFacts| !job.whole_answers;
        let reserved = match learnt {
            None => self.config.output_tokens_guess,
            Some(job) if told(job) => 0,
            Some(job) => job.output_x16 / 16,
        };
        StepFacts {
            program,
            at: At::Hand,
            waits_since: self.now,
            sent_at: self.now,
            prompt_tokens: core_sizes.unwrap_or(arrival.prompt_tokens),
            exact: arrival.exact,
            reserved_tokens: reserved.min(arrival.output_tokens_max.unwrap_or(u64::MAX)),
            output_tokens: 0,
            began: false,
            began_at: self.now,
            attempts: 0,
            slot: None,
            adopted: false,
            priority: 0,
            routed: false,
            gives_way: GivesWay::Unasked,
            queued_as: 0,
        }
    }

    fn step_progressed(&mut self, step: StepId, output_tokens: u64) {
        if let Some(s) = self.steps.get_mut(&step) {
            let computed = !s.began && matches!(s.at, At::Worker(..));
            if !s.began {
                s.began_at = self.now;
            }
            s.began = true;
            s.output_tokens = s.output_tokens.max(output_tokens);
            if computed {
                self.prompt_ends(step);
            }
        }
    }

    fn step_finished(&mut self, step: StepId, tokens: StepTokens) -> Checked {
        let Some(s) = self.steps.get(&step) else {
            return Ok(());
        };
        let (program, began) = (s.program, s.began);
        let tokens = self.with_cached(program, tokens);
        self.recount_prefix(program, tokens.prompt)?;
        self.cache_was_found(program, tokens);
        self.prompt_was_computed(step, tokens);
        if let Some(p) = self.programs.get_mut(&program) {
            p.is_warm = p.place.is_some();
            p.last_output_tokens = tokens.output;
            p.steps_finished += 1;
            p.context_tokens = tokens.prompt + tokens.output;
            let job: &mut JobFacts = self.jobs.entry(p.job.clone()).or_default();
            let sample = tokens.output * 16;
            job.output_x16 = match job.steps_finished {
                0 => sample,
                _ => job.output_x16 - job.output_x16 / 8 + sample / 8,
            };
            job.steps_finished += 1;
            job.whole_answers = !began;
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
        let failed_at = match s.at {
            At::Worker(worker, _) => {
                s.waits_since.0 += self.now.since(s.sent_at).micros();
                Some(worker)
            }
            At::Hand | At::Queue => None,
        };
        s.at = At::Hand;
        s.routed = false;
        let program = s.program;
        self.prompt_ends(step);
        self.leave_dead_worker(program);
        let another = self
            .workers
            .iter()
            .any(|(id, w)| w.takes_programs() && Some(*id) != failed_at);
        if another
            && !self.runs_anything(program)
            && let Some(p) = self.programs.get_mut(&program)
        {
            p.avoid = failed_at;
            self.take_placement(program);
        }
        let least = self.steps.get(&step).map_or(0, |s| self.least_of(s));
        if self.leaves_placement(program, least) {
            self.take_placement(program);
        }
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
        s.gives_way = GivesWay::Unasked;
        s.slot = None;
        s.adopted = true;
        let program = s.program;
        if let Some(p) = self.programs.get_mut(&program) {
            p.steps_sent += 1;
        }
        self.prompt_ends(step);
        self.adopted = Some((step, worker));
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
        self.route_answered(&open, Some(answer));
        if matches!(open.purpose, Purpose::Restore) {
            let named = match answer {
                PolicyAnswer::Order { programs, .. } => programs.iter().copied().collect(),
                PolicyAnswer::Weights { .. } | PolicyAnswer::CacheActions { .. } => {
                    open.candidates.iter().copied().collect()
                }
            };
            let candidates = open.candidates;
            self.answered = Some(Answered { candidates, named });
            return;
        }
        if let (Purpose::Weigh { .. }, PolicyAnswer::Weights { weights }) = (open.purpose, answer) {
            for (program, ppm) in weights {
                if let Some(p) = self.programs.get_mut(program)
                    && p.steps.is_empty()
                {
                    p.weight_ppm = (*ppm).min(FULL_WEIGHT_PPM);
                }
            }
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
        self.prompt_ends(step);
        let settled_us = self.settled_us;
        let Some(p) = self.programs.get_mut(&s.program) else {
            return broken(
                "programs",
                format!("{step} ends, but {} is gone", s.program),
            );
        };
        p.steps.remove(&step);
        let over = p.steps.is_empty();
        let (closing, fleeting) = (p.closing, p.inferred && p.steps_finished < 2);
        if over {
            p.idle_since_us = settled_us;
            p.avoid = None;
        }
        self.leave_dead_worker(s.program);
        if over && closing {
            self.close(s.program);
        } else if over && fleeting {
            self.take_placement(s.program);
        }
        Ok(())
    }
}
