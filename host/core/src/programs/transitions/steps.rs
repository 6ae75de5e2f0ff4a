//! Arrival, progress and end of steps.

use crate::estimates::{FinishedStep, JobStatistics};
use crate::programs::program::{Outcome, Program};
use crate::programs::step::{GivesWay, Step, StepState};
use crate::programs::worker::Worker;
use crate::programs::{Refusal, StepArrival, StepFailure, StepTokens};
use crate::{Mode, Programs};
use std::borrow::Cow;
use treadle_machine::Notice;
use treadle_model::{GatewayId, Phase, ProgramId, Span, StepId, WorkerId};

impl Programs {
    pub(crate) fn step_arrived(&mut self, arrival: &StepArrival) {
        if self.state.steps.contains_key(&arrival.step) {
            // The sender was not sure and reported it again.
            return;
        }
        self.state.counters.steps_arrived += 1;
        if arrival.step.gateway() == GatewayId::LOCAL {
            self.state.last_step = self.state.last_step.max(arrival.step.0);
        }
        let (model, apart) = match self.model_and_key(arrival) {
            Ok(found) => found,
            Err(refusal) => return self.refuse(arrival.step, refusal),
        };
        let arrival = &apart.map_or(Cow::Borrowed(arrival), |program| {
            Cow::Owned(StepArrival {
                program,
                ..arrival.clone()
            })
        });
        let is_new = !self.state.keys.contains_key(&arrival.program);
        let Some(program) = self.open_program(arrival, model) else {
            let programs_max = self.config.programs_max;
            return self.refuse(arrival.step, Refusal::ProgramsFull { programs_max });
        };
        let step = self.new_step(program, arrival);
        self.state.steps.insert(arrival.step, step);
        self.begin_reasoning(program, arrival);
        self.go_on(program, arrival.parent.as_ref().filter(|_| is_new));
        if is_new {
            self.share_history(program, arrival.exact);
        }
        if self.refuse_if_too_long(arrival.step) {
            return;
        }
        self.route(arrival.step);
        // Steps that were taken back may fill the queue beyond its limit; that is no reason to
        // refuse one that was already sent.
        let state = self.state.steps.get(&arrival.step).map(|s| s.state);
        let steps_max = self.config.queue_steps_max;
        let full = self.state.waiting.steps() > steps_max && !self.frees_others(program);
        if state == Some(StepState::Waiting) && full {
            self.dequeue(arrival.step);
            self.refuse(arrival.step, Refusal::QueueFull { steps_max });
        }
    }

    /// True if a step must not be refused for a full queue, because its program is placed and
    /// others may wait for that memory: it continues with one waiting step at a time.
    fn frees_others(&self, program: ProgramId) -> bool {
        let p = self.state.live.get(&program);
        p.is_some_and(|p| p.waiting.len() == 1 && p.placement.is_some())
    }

    fn new_step(&self, program: ProgramId, arrival: &StepArrival) -> Step {
        let learnt = self
            .state
            .estimates
            .jobs()
            .get(&arrival.job)
            .filter(|job| job.steps_finished > 0);
        let told = |job: &JobStatistics| !job.whole_answers;
        let reserved = match learnt {
            None => self.config.output_tokens_guess,
            Some(job) if told(job) => 0,
            Some(job) => job.output_tokens_x16 / 16,
        };
        Step {
            program,
            arrived_at: self.state.now,
            waits_since: self.state.now,
            suspended_since: None,
            state: StepState::Waiting,
            prompt_tokens: self.prompt_tokens(arrival),
            estimated: !arrival.exact,
            prompt_bytes: arrival.prompt_bytes,
            text: arrival.text.clone(),
            output_tokens_reserved: reserved.min(arrival.output_tokens_max.unwrap_or(u64::MAX)),
            output_tokens: 0,
            first_token_at: None,
            steps_time_before: None,
            dispatched_at: None,
            attempts: 0,
            prefill: None,
            prefill_failed: None,
            priority: 0,
            routed: false,
            gives_way: GivesWay::Unasked,
            is_cut: false,
        }
    }

    pub(crate) fn step_first_token(&mut self, step: StepId) {
        let now = self.state.now;
        let s = self.state.steps.get_mut(&step);
        if let Some(s) = s.filter(|s| s.first_token_at.is_none()) {
            s.first_token_at = Some(now);
            let (program, at) = (s.program, s.state.worker());
            if let Some(w) = at.and_then(|worker| self.state.workers.get(&worker)) {
                s.steps_time_before = Some(w.speeds.steps_time(now, w.running_steps));
            }
            self.learn_handover(step);
            self.account(program);
            if let Some(p) = self.state.live.get(&program) {
                let program = p.key.clone();
                self.notices.push_back(Notice::FirstToken { program });
            }
            if let Some(worker) = at {
                self.end_prompt(step, worker);
                self.reuse_computed(step);
            }
        }
    }

    /// Records streamed tokens, and checks growth as it happens.
    pub(crate) fn step_progressed(&mut self, step: StepId, output_tokens: u64) {
        self.step_first_token(step);
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        s.output_tokens = s.output_tokens.max(output_tokens);
        let program = s.program;
        if s.output_tokens > s.output_tokens_reserved {
            self.refresh_demand(program);
            self.relieve_placement(program);
        }
    }

    pub(crate) fn step_finished(&mut self, step: StepId, tokens: StepTokens) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (program, whole_answer) = (s.program, s.first_token_at.is_none());
        let ran_here = s.state.worker().is_some();
        let prompt = s.prompt_of(tokens);
        self.learn_tokens(step, tokens.prompt);
        let cached = self.cached_told(program, tokens);
        let cached = self.cached_anywhere(step, cached);
        let tokens = StepTokens {
            prompt,
            cached,
            ..tokens
        };
        self.divide(step, tokens);
        self.state.counters.steps_finished += 1;
        self.state.counters.prompt_tokens += tokens.prompt;
        self.state.counters.output_tokens += tokens.output;
        if let Some(cached) = tokens.cached {
            self.state.counters.cached_tokens += cached;
            self.state.counters.cache_reported_tokens += tokens.prompt;
        }
        if let Some(p) = self.state.live.get_mut(&program) {
            p.steps_finished += 1;
            p.has_come_to(Outcome::Whole);
            p.last_output_tokens = tokens.output;
            p.prompt_tokens_total += tokens.prompt;
            p.output_tokens_total += tokens.output;
            p.cached_tokens_total += tokens.cached.unwrap_or(0);
            let context = tokens.prompt.saturating_add(tokens.output);
            let grown = (p.steps_finished > 1).then(|| context.saturating_sub(p.context_tokens));
            set_context(p, context, &mut self.state.context_tokens);
            let finished = FinishedStep {
                output_tokens: tokens.output,
                grown_tokens: grown,
                whole_answer,
            };
            self.state.estimates.step_finished(&p.job, &finished);
        }
        if !ran_here {
            self.drop_outgrown_copy(program);
        }
        self.step_of_family_finished(program);
        self.end_step(step);
    }

    /// Handles a failed step: it is retried while attempts are left and nothing reached the client.
    pub(crate) fn step_failed(&mut self, step: StepId, failure: &StepFailure) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        if failure.retryable && s.state == StepState::Waiting {
            // The step was already taken back.
            return;
        }
        let (program, attempts) = (s.program, s.attempts);
        if failure.rejected {
            self.state.counters.steps_rejected += 1;
            self.close_with(step);
            return self.end_step(step);
        }
        if !failure.retryable || s.first_token_at.is_some() {
            self.state.counters.steps_failed += 1;
            return self.end_step(step);
        }
        if s.is_cut {
            return self.refuse(step, Refusal::ProgramReleased);
        }
        let failed_at = s.state.worker();
        let is_own_fault = failure.busy.is_some() || !self.is_failed_by_prefill(s);
        self.blame_prefill(step);
        let has_another = self.turned_away(step, failed_at, failure.busy);
        if !has_another.unwrap_or(attempts < self.config.attempts_max) {
            self.state.counters.steps_failed += 1;
            let refusal = Refusal::EngineFailed {
                cause: failure.cause.clone(),
                attempts,
            };
            return self.refuse(step, refusal);
        }
        self.resume_waiting(step);
        self.leave_engine(step);
        self.leave_lost_worker(program);
        if is_own_fault {
            self.leave_failed_worker(program, failed_at);
        }
        let p = self.state.live.get_mut(&program);
        if let Some(p) = p.filter(|_| has_another.is_some()) {
            // The program may return there once that worker is no longer busy.
            p.avoid = None;
        }
        self.refresh_idle(program);
        if !self.refuse_if_unserved(step) && !self.refuse_if_too_long(step) {
            self.route(step);
        }
    }

    /// Handles a busy engine that turned a step away, and returns whether another engine may be
    /// tried. Each worker allows one attempt beyond `attempts_max`. `None` if the engine is not
    /// busy.
    fn turned_away(
        &mut self,
        step: StepId,
        at: Option<WorkerId>,
        busy: Option<Span>,
    ) -> Option<bool> {
        let (at, busy) = (at?, busy?);
        let until = self.state.now + busy;
        let w = self.state.workers.get_mut(&at)?;
        w.busy_until = w.busy_until.max(until);
        let s = self.state.steps.get(&step)?;
        let workers = self.state.workers.len() as u64;
        let is_bounded = u64::from(s.attempts) < u64::from(self.config.attempts_max) + workers;
        Some(is_bounded && self.has_another(step, s.program, at))
    }

    pub(crate) fn step_cancelled(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (program, context) = (s.program, s.context_tokens());
        let began = s.first_token_at.is_some();
        self.divide_by_guess(program);
        self.state.counters.steps_cancelled += 1;
        if let Some(p) = self.state.live.get_mut(&program)
            && began
        {
            let context = p.context_tokens.max(context);
            set_context(p, context, &mut self.state.context_tokens);
            self.drop_outgrown_copy(program);
        }
        self.end_step(step);
    }

    /// Removes a step from whatever holds it; its program acts from now on if that was its last.
    pub(crate) fn end_step(&mut self, step: StepId) {
        self.dequeue(step);
        self.leave_engine(step);
        let Some(ended) = self.state.steps.remove(&step) else {
            return;
        };
        let program = ended.program;
        self.leave_lost_worker(program);
        self.refresh_idle(program);
        let now = self.state.now;
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if !p.is_between_steps() {
            self.refresh_demand(program);
            return self.leave_queue_of_small_worker(program);
        }
        if p.closing {
            return self.close_program(program);
        }
        p.phase = Phase::Acting;
        p.phase_since = now;
        p.avoid = None;
        self.due.moves = true;
        let gives_up_place = p.inferred && p.steps_finished < 2;
        if gives_up_place {
            self.unplace(program);
        }
        self.leave_missing_slot(program);
        self.watch_idleness(program);
        self.refresh_demand(program);
        if let Some(worker) = self.healthy_worker_of(program) {
            self.ask_retain(worker);
        }
        self.relieve_placement(program);
    }

    /// Returns a step to waiting. Its wait continues where it left off: time at the engine neither
    /// uses up its limit nor restarts it.
    pub(crate) fn resume_waiting(&mut self, step: StepId) {
        let now = self.state.now;
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        let StepState::Running { since, .. } = s.state else {
            return;
        };
        let waited = since.since(s.waits_since);
        s.waits_since = s.waits_since + now.since(since);
        if let Some(p) = self.state.live.get_mut(&s.program) {
            // It is added again, with the further wait, when the step is sent again.
            p.waited_total.0 = p.waited_total.0.saturating_sub(waited.0);
        }
    }

    /// Removes a running step from its engine.
    pub(crate) fn leave_engine(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        let StepState::Running { worker, .. } = s.state else {
            return;
        };
        self.end_prefill(step);
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        s.state = StepState::Waiting;
        if let Some(p) = self.state.live.get_mut(&s.program) {
            p.running.retain(|running| *running != step);
        }
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.speeds.running_changes(self.state.now, w.running_steps);
            w.running_steps -= 1;
        }
        let program = s.program;
        self.end_prompt(step, worker);
        self.account(program);
        self.due.serve.insert(worker);
    }

    /// Ends a placement on a lost worker after its last running step.
    pub(crate) fn leave_lost_worker(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        if p.running.is_empty()
            && p.placement.is_some()
            && self.healthy_worker_of(program).is_none()
        {
            self.unplace(program);
        }
    }

    /// Avoids a worker that failed a step for the next attempt, if there is another one.
    fn leave_failed_worker(&mut self, program: ProgramId, failed_at: Option<WorkerId>) {
        let p = self.state.live.get(&program);
        let serves = |w: &Worker| p.is_some_and(|p| self.serves_program(w, p));
        let another = self
            .state
            .workers
            .values()
            .any(|w| w.takes_programs() && Some(w.id) != failed_at && serves(w));
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if another && p.running.is_empty() {
            p.avoid = failed_at;
            self.unplace(program);
        }
    }

    fn relieve_placement(&mut self, program: ProgramId) {
        if self.config.mode == Mode::ProgramAware
            && let Some(worker) = self.healthy_worker_of(program)
        {
            self.relieve(worker);
        }
    }
}

/// Sets a program's context, and updates the sum of all contexts.
fn set_context(p: &mut Program, tokens: u64, sum: &mut u64) {
    *sum = sum.saturating_sub(p.context_tokens).saturating_add(tokens);
    p.context_tokens = tokens;
}
