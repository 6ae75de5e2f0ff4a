//! Run queues: if an engine does not order its steps itself, those beyond its limit wait here, the
//! most urgent first, and a running one may be preempted (`Heddle` Algorithm 1).

use crate::Programs;
use crate::programs::Refusal;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::program::KvPlacement;
use crate::programs::ranking::Ranking;
use crate::programs::step::GivesWay;
use crate::programs::worker::{QueuedStep, Worker};
use crate::programs::{ProgramCommand, Purpose};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// True unless the worker runs its maximum number of steps or is draining.
    pub(super) fn takes_a_step(&self, worker: WorkerId) -> bool {
        if self.is_draining(worker) {
            return false;
        }
        let most = self.config.rollout.engine_steps_max;
        let running = self.state.workers.get(&worker).map(|w| w.running_steps);
        most == 0 || running.is_some_and(|running| running < most)
    }

    /// Puts a step into its worker's run queue.
    pub(super) fn enqueue_at(&mut self, step: StepId, worker: WorkerId) {
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        // An adopted step was not sent by an answer; it continues where it is nevertheless.
        s.routed = true;
        let queued_step = s.queued_step(step);
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.line.insert(queued_step);
        }
    }

    /// Removes a step from the run queue of its program's worker.
    pub(super) fn dequeue_at(&mut self, step: StepId, place: Option<KvPlacement>) {
        let Some(queued_step) = self.state.steps.get(&step).map(|s| s.queued_step(step)) else {
            return;
        };
        if let Some(w) = place.and_then(|place| self.state.workers.get_mut(&place.worker)) {
            w.line.remove(&queued_step);
        }
    }

    /// Reroutes queued steps that their program's worker does not take. They stay while another
    /// step of the program runs there.
    pub(crate) fn leave_queue_of_small_worker(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let Some(worker) = p.placement.map(|place| place.worker) else {
            return;
        };
        let is_queued_here = |step: &StepId| self.state.steps.get(step).is_some_and(|s| s.routed);
        let waiting = p.waiting.iter().copied().filter(is_queued_here);
        let stranded = waiting.filter(|step| !self.holds_context(worker, *step, program));
        for step in stranded.collect::<Vec<_>>() {
            self.reroute(step);
        }
    }

    /// Serves the run queues after an event.
    pub(crate) fn settle_lines(&mut self) {
        // A step in a run queue may be the next to be adopted.
        let is_adopting = !self.state.adopted.is_empty();
        while let Some(worker) = self.due.serve.pop_first().filter(|_| !is_adopting) {
            self.serve(worker);
        }
    }

    /// Sends the most urgent waiting steps to a worker while it takes more.
    pub(crate) fn serve(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        if w.line.is_empty() || !w.takes_steps() {
            return;
        }
        while self.takes_a_step(worker) {
            let line = self.state.workers.get(&worker).map(|w| &w.line);
            let Some(next) = line.and_then(|line| line.first().copied()) else {
                break;
            };
            let program = self.state.steps[&next.step].program;
            if !self.holds_context(worker, next.step, program) {
                // Another step of the program ran here when this one was queued.
                self.reroute(next.step);
                continue;
            }
            self.dequeue(next.step);
            self.dispatch(next.step, worker);
            self.refresh_demand(program);
        }
        self.relieve(worker);
    }

    /// True if steps at this worker do not wait for a slot there.
    pub(super) fn has_no_queue_ahead(&self, worker: WorkerId) -> bool {
        let w = self.state.workers.get(&worker);
        self.config.rollout.engine_steps_max == 0 || w.is_some_and(|w| w.line.is_empty())
    }

    /// Asks which steps to preempt, if a waiting step is more urgent than a running one whose
    /// answer can be continued.
    pub(super) fn ask_preempt(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        if !w.resumes_steps() || self.is_draining(worker) {
            return;
        }
        let running = self.preemptible_at(worker);
        let urgent = self
            .waiting_for_turn(w)
            .next()
            .map(|queued_step| queued_step.priority.0);
        let least = running.iter().map(|(priority, _)| *priority).min();
        if running.is_empty() || urgent <= least {
            return;
        }
        let waiting = w.line.iter().map(|queued_step| queued_step.step);
        let steps = running.iter().map(|(_, step)| *step).chain(waiting);
        let mut programs: Vec<ProgramId> = steps
            .filter_map(|step| self.state.steps.get(&step))
            .map(|s| s.program)
            .collect();
        programs.sort_unstable();
        programs.dedup();
        programs.truncate(self.config.rollout.programs_max.max(1));
        self.ask(Purpose::Preempt { worker }, programs);
    }

    /// Queued steps that the worker takes, except those for which others are already being
    /// preempted. A step that is too long for the worker waits for another step of its program that
    /// runs there, and goes elsewhere once that is over.
    fn waiting_for_turn<'a>(&'a self, w: &'a Worker) -> impl Iterator<Item = &'a QueuedStep> {
        let fits = |queued_step: &&QueuedStep| self.takes_prompt(w.id, queued_step.step);
        let asked = self.running_at(w.id, GivesWay::Asked).len();
        w.line.iter().filter(fits).skip(asked)
    }

    /// Asks gateways to take steps back from their engine: at most as many as wait there, and none
    /// for a less urgent one. Until they have done so, the steps run.
    pub(crate) fn preempt_in_order(&mut self, worker: WorkerId, ranking: &Ranking) {
        let w = self.state.workers.get(&worker);
        let waiting = w.into_iter().flat_map(|w| self.waiting_for_turn(w));
        let mut waiting = waiting.copied().collect::<Vec<_>>().into_iter();
        let mut running = self.preemptible_at(worker);
        // A step that the worker would not take again, as it shrank, runs to its end.
        running.retain(|(_, step)| self.takes_prompt(worker, *step));
        for entry in &ranking.entries {
            let of_program = |(_, step): &&(i32, StepId)| {
                let s = self.state.steps.get(step);
                s.is_some_and(|s| s.program == entry.program)
            };
            let Some((priority, victim)) = running.iter().filter(of_program).min().copied() else {
                continue;
            };
            let Some(urgent) = waiting.next() else {
                break;
            };
            if urgent.priority.0 <= priority {
                break;
            }
            let (kind, because) = (DecisionKind::Preempt, Because::MoreUrgent);
            self.record_decision(kind, because, worker, entry, ranking);
            self.state.counters.preemptions += 1;
            self.command(ProgramCommand::PreemptStep { step: victim });
            running.retain(|(_, step)| *step != victim);
            if let Some(s) = self.state.steps.get_mut(&victim) {
                s.gives_way = GivesWay::Asked;
            }
        }
    }

    /// Handles a step that was taken back from its engine: it waits for its turn there, or
    /// elsewhere if the engine no longer takes it.
    pub(crate) fn step_interrupted(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (program, Some(worker)) = (s.program, s.state.worker()) else {
            return;
        };
        if s.is_cut {
            return self.refuse(step, Refusal::ProgramReleased);
        }
        self.resume_waiting(step);
        self.leave_engine(step);
        if let Some(s) = self.state.steps.get_mut(&step) {
            // A preemption is not a failed attempt.
            s.attempts = s.attempts.saturating_sub(1);
        }
        self.leave_lost_worker(program);
        self.refresh_idle(program);
        // Its engine may have come to take shorter contexts, or other models, while it ran.
        if self.refuse_if_unserved(step) || self.refuse_if_too_long(step) {
            return;
        }
        let stays = self.waits_in_line(program)
            && self.serving_worker_of(program) == Some(worker)
            && self.holds_context(worker, step, program);
        if stays {
            self.enqueue(step);
            self.enqueue_at(step, worker);
        } else {
            self.route(step);
        }
    }

    /// Handles a step that can't be preempted: another one may be preempted instead.
    pub(crate) fn step_runs_on(&mut self, step: StepId) {
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        let Some(worker) = s.state.worker() else {
            return;
        };
        let was_asked = std::mem::replace(&mut s.gives_way, GivesWay::Never) == GivesWay::Asked;
        if was_asked {
            self.ask_preempt(worker);
        }
    }

    fn preemptible_at(&self, worker: WorkerId) -> Vec<(i32, StepId)> {
        self.running_at(worker, GivesWay::Unasked)
    }

    fn running_at(&self, worker: WorkerId, gives_way: GivesWay) -> Vec<(i32, StepId)> {
        let placed = self.state.workers.get(&worker).map(|w| &w.programs);
        let programs = placed
            .into_iter()
            .flatten()
            .filter_map(|program| self.state.live.get(program));
        let steps = programs.flat_map(|p| &p.running);
        let here = |step: &StepId| {
            let s = self.state.steps.get(step)?;
            let runs = s.state.worker() == Some(worker) && s.gives_way == gives_way;
            runs.then_some((s.priority, *step))
        };
        steps.filter_map(here).collect()
    }
}
