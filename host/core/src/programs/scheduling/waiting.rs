//! Waiting: a step that can't be placed stays in the queue, in order of arrival, until its program
//! is restored, it is withdrawn, or its wait reaches the limit.

use crate::programs::program::QueueEntry;
use crate::programs::step::{GivesWay, StepState};
use crate::programs::timers::Timer;
use crate::programs::{ProgramCommand, Refusal, RefusedStep};
use crate::{Mode, Programs};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// Puts a step into the queue and its program with it.
    pub(super) fn enqueue(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        let program = s.program;
        s.state = StepState::Waiting;
        let deadline = s.wait_deadline(self.config.queue_wait_max);
        self.state.timers.arm(deadline, Timer::StepWait(step));
        self.state.waiting.add_step();
        if let Some(p) = self.state.live.get_mut(&program) {
            p.waiting.push(step);
        }
        if self.is_suspended(program) {
            self.set_suspended(step, true);
        }
        self.refresh_idle(program);
        self.refresh_demand(program);
        self.refile(program);
    }

    /// Takes a step out of the queue, and its program with its last waiting step.
    pub(crate) fn dequeue(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let program = s.program;
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let Some(index) = p.waiting.iter().position(|w| *w == step) else {
            return;
        };
        p.waiting.remove(index);
        let place = p.placement;
        self.set_suspended(step, false);
        self.dequeue_at(step, place);
        let w = place.and_then(|place| self.state.workers.get_mut(&place.worker));
        if let Some(w) = w {
            w.ledger.engine_mut().end_prompt(step);
        }
        self.state.waiting.remove_step();
        let most = self.config.queue_wait_max;
        if let Some(s) = self.state.steps.get(&step) {
            let deadline = s.wait_deadline(most);
            self.state.timers.disarm(deadline, Timer::StepWait(step));
        }
        self.refresh_demand(program);
        self.refile(program);
    }

    /// Files a program in the queue under its present wait and need, or removes it if none of its
    /// steps waits.
    pub(crate) fn refile(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let placed = p.placement.is_some();
        if let Some(old) = p.queued.take() {
            self.state.waiting.unfile(program, old);
        }
        let oldest = p
            .waiting
            .iter()
            .filter_map(|s| self.state.steps.get(s))
            .map(|s| s.waits_since);
        if let Some(since) = oldest.min() {
            let entry = QueueEntry {
                since,
                need_tokens: p.private_tokens(),
            };
            p.queued = Some(entry);
            self.state.waiting.file(program, entry);
            // Steps of placed programs wait for something else: an answer, or their cache.
            let plain = matches!(self.config.mode, Mode::Sticky | Mode::LeastLoad);
            if plain || !placed {
                self.state.waiting.want_restore();
            }
        } else {
            self.state.waiting.end_reservation(program);
        }
        let is_newcomer = self.is_newcomer(program);
        self.state.waiting.set_newcomer(program, is_newcomer);
    }

    /// Sends a step that is not waiting to a worker.
    pub(crate) fn dispatch(&mut self, step: StepId, worker: WorkerId) {
        let prefill = self.begin_prefill(step, worker);
        let Some(program) = self.run_at(step, worker) else {
            return;
        };
        let place = self.state.live.get(&program).and_then(|p| p.placement);
        let slot = place.and_then(|place| place.slot);
        let priority = self.state.steps.get(&step).map_or(0, |s| s.priority);
        self.command(ProgramCommand::DispatchStep {
            step,
            worker,
            slot,
            priority,
            prefill,
        });
    }

    /// Records that a step runs at a worker, without a command. Returns its program.
    pub(crate) fn run_at(&mut self, step: StepId, worker: WorkerId) -> Option<ProgramId> {
        let now = self.state.now;
        let program = self.state.steps.get(&step)?.program;
        if self.is_moving(program) {
            self.give_up_move(program);
        }
        if !self.state.memory.offloads().is_empty() {
            // From now on the engine's cache is the valid one.
            self.give_up_transfer(program);
            self.drop_copy(program);
        }
        let s = self.state.steps.get_mut(&step)?;
        s.state = StepState::Running { worker, since: now };
        s.attempts += 1;
        s.gives_way = GivesWay::Unasked;
        s.dispatched_at.get_or_insert(now);
        if let Some(p) = self.state.live.get_mut(&program) {
            p.running.push(step);
            p.waited_total.0 += now.since(s.waits_since).0;
        }
        let is_computed_here = self
            .state
            .steps
            .get(&step)
            .is_some_and(|s| s.prefill.is_none());
        if is_computed_here {
            self.add_prompt(step, worker, self.warm_tokens(program));
        }
        self.reuse_sent(step);
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.speeds.running_changes(now, w.running_steps);
            if let Some(s) = self.state.steps.get_mut(&step) {
                s.steps_time_before = Some(w.speeds.steps_time(now, 0));
            }
            w.running_steps += 1;
        }
        self.refresh_idle(program);
        self.account(program);
        Some(program)
    }

    /// Tokens of a program's context that are in its worker's cache.
    pub(super) fn warm_tokens(&self, program: ProgramId) -> u64 {
        let p = self.state.live.get(&program);
        p.filter(|p| p.meter.is_warm())
            .map_or(0, |p| p.context_tokens)
    }

    /// Sends every waiting step of a placed program, or asks how urgent they are.
    pub(crate) fn send_waiting(&mut self, program: ProgramId, worker: WorkerId) {
        if !self.waits_in_line(program) {
            return self.dispatch_waiting(program, worker);
        }
        let waiting = self.state.live.get(&program).map(|p| p.waiting.clone());
        for step in waiting.unwrap_or_default() {
            // A step with an earlier answer waits for its turn here now.
            if self.state.steps.get(&step).is_some_and(|s| !s.routed) {
                self.ask_route(step, program);
            }
        }
    }

    pub(super) fn dispatch_waiting(&mut self, program: ProgramId, worker: WorkerId) {
        if self.is_draining(worker) {
            // They go with their program, once none of its steps runs there.
            return;
        }
        let waiting = self
            .state
            .live
            .get(&program)
            .map(|p| p.waiting.clone())
            .unwrap_or_default();
        for step in waiting {
            self.dequeue(step);
            self.dispatch(step, worker);
        }
        self.refresh_demand(program);
    }

    /// Answers a waiting or failed step with an error and ends it.
    pub(crate) fn refuse(&mut self, step: StepId, refusal: Refusal) {
        self.state.counters.steps_refused += 1;
        let was = self.refused_step(step).map(Box::new);
        self.command(ProgramCommand::RefuseStep { step, refusal, was });
        self.end_step(step);
    }

    fn refused_step(&self, step: StepId) -> Option<RefusedStep> {
        let step = self.state.steps.get(&step)?;
        let program = self.state.live.get(&step.program)?;
        Some(RefusedStep {
            program: program.key.clone(),
            output_tokens_total: program.output_tokens_total,
            step: step.clone(),
        })
    }
}
