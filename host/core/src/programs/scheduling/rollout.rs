//! Rollouts (`Heddle` §3): new programs are placed together, each step goes to its program's worker
//! with the priority that its policy gives it, and waits here only for an answer, a move of its
//! cache, or a slot at an engine that does not order its steps itself.

use crate::programs::explain::{Because, DecisionKind};
use crate::programs::ranking::{Ranked, Ranking};
use crate::programs::scheduling::why::Why;
use crate::programs::step::{Step, StepState, priority_of};
use crate::programs::timers::Timer;
use crate::programs::worker::Worker;
use crate::{Mode, Programs, Purpose};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// A step of a placed program is asked about at once; others are gathered.
    pub(crate) fn route_rollout(&mut self, step: StepId, program: ProgramId) {
        if let Some(s) = self.state.steps.get_mut(&step) {
            s.routed = false;
        }
        let stays = |worker: &WorkerId| self.holds_context(*worker, step, program);
        let placed = self.healthy_worker_of(program).as_ref().is_some_and(stays);
        if !placed {
            self.unplace(program);
            return self.enqueue(step);
        }
        self.enqueue(step);
        if !self.waits_for_move(program) {
            self.ask(Purpose::Route { step }, vec![program]);
        }
    }

    /// A waiting step looks for a worker once more.
    pub(crate) fn reroute(&mut self, step: StepId) {
        self.dequeue(step);
        self.route(step);
    }

    /// What an event has made possible.
    pub(crate) fn settle_rollout(&mut self) {
        let due = std::mem::take(&mut self.due);
        // A step in a run queue may be the next to be adopted.
        let is_adopting = !self.state.adopted.is_empty();
        for worker in due.serve.into_iter().filter(|_| !is_adopting) {
            self.serve(worker);
        }
        if due.moves {
            self.start_moves();
        }
        self.settle_migrations();
    }

    /// Questions are lost with the process that was asked: steps that waited for an answer are
    /// asked about again.
    pub(crate) fn ask_routes_again(&mut self) {
        if !self.is_rollout() {
            return;
        }
        let waits = |step: &StepId| {
            let s = self.state.steps.get(step);
            s.is_some_and(|s| s.state == StepState::Waiting && !s.routed)
        };
        let programs = self.state.live.values().filter(|p| p.placement.is_some());
        let open = programs.flat_map(|p| p.waiting.iter().copied());
        let open: Vec<StepId> = open.filter(waits).collect();
        for step in open {
            self.reroute(step);
        }
    }

    /// Arms the question where new programs go, if some wait for placement.
    pub(crate) fn settle_gathering(&mut self) {
        let answers = self.state.workers.values().any(Worker::is_healthy);
        if self.state.gather_at.is_some() || !answers || !self.any_unplaced() {
            return;
        }
        let at = self.state.now + self.config.rollout.gather;
        self.state.gather_at = Some(at);
        self.state.timers.arm(at, Timer::Gather);
    }

    pub(crate) fn gathered(&mut self) {
        self.state.gather_at = None;
        if !self.is_rollout() || !self.state.workers.values().any(Worker::is_healthy) {
            return;
        }
        let most = self.config.rollout.programs_max.max(1);
        let unplaced = self.unplaced().take(most).collect();
        self.ask(Purpose::Assign, unplaced);
    }

    fn unplaced(&self) -> impl Iterator<Item = ProgramId> {
        let waiting = self.state.queue.oldest().map(|(_, program)| program);
        waiting.filter(|program| self.is_unplaced(*program))
    }

    /// Places new programs where the policy chose, and sends their steps.
    pub(crate) fn assign_in_order(&mut self, ranking: &Ranking) {
        for entry in &ranking.entries {
            let program = entry.program;
            let waits =
                |p: &crate::programs::program::Program| p.queued.is_some() && p.placement.is_none();
            if !self.state.live.get(&program).is_some_and(waits) {
                continue;
            }
            let Some(worker) = self.worker_for(program, entry.wished) else {
                continue;
            };
            self.record_decision(
                DecisionKind::Place,
                Because::Assigned,
                worker,
                entry,
                ranking,
            );
            self.place(program, worker);
            let waiting = self.state.live[&program].waiting.clone();
            for step in waiting {
                self.send(step, worker, entry);
            }
        }
        // Those that arrived while the answer was on its way, or beyond the bound. A program that
        // no worker takes waits for another one.
        let able = |program: ProgramId| self.worker_for(program, None).is_some();
        let more = self.unplaced().any(able);
        self.state.restore_wanted |= more;
    }

    /// Dispatches a step; its program moves with it if the placement policy wants that and nothing
    /// of it runs elsewhere.
    pub(crate) fn route_in_order(&mut self, step: StepId, ranking: &Ranking) {
        let Some(program) = self.state.steps.get(&step).map(|s| s.program) else {
            return;
        };
        let Some(entry) = ranking.entries.first() else {
            return;
        };
        if !self.is_waiting(step) {
            return;
        }
        let Some(at) = self.healthy_worker_of(program) else {
            self.unplace(program);
            return;
        };
        let runs = !self.state.live[&program].running.is_empty();
        let worker = match entry.wished {
            Some(wished) if !runs && wished != at => self.worker_for(program, Some(wished)),
            _ => None,
        };
        let worker = worker.unwrap_or(at);
        if worker != at {
            self.record_decision(DecisionKind::Route, Because::Routed, worker, entry, ranking);
            self.place_elsewhere(program, worker);
        }
        self.send(step, worker, entry);
    }

    /// Sends a waiting step to its worker, if it takes another one.
    fn send(&mut self, step: StepId, worker: WorkerId, entry: &Ranked) {
        if !self.holds_context(worker, step, entry.program) {
            // Another of its steps ran there when this was asked.
            return self.reroute(step);
        }
        // An earlier answer may have put it there, with another priority.
        let place = self
            .state
            .live
            .get(&entry.program)
            .and_then(|p| p.placement);
        self.dequeue_at(step, place);
        if let Some(s) = self.state.steps.get_mut(&step) {
            s.priority = priority_of(entry.score);
            s.routed = true;
            if let Some(p) = self.state.live.get_mut(&s.program) {
                p.remaining_tokens = entry.remaining_tokens;
            }
        }
        let begins = !self.has_begun(entry.program, worker);
        if begins && self.config.rollout.memory_ppm > 0 {
            // Who else is about to come must be known first.
            self.enqueue_at(step, worker);
            self.due.serve.insert(worker);
        } else if self.takes_a_step(worker) && self.has_no_queue_ahead(worker) {
            self.dequeue(step);
            self.dispatch(step, worker);
            if let Some(program) = self.state.steps.get(&step).map(|s| s.program) {
                self.refresh_demand(program);
            }
        } else if self.takes_a_step(worker) {
            self.enqueue_at(step, worker);
            self.due.serve.insert(worker);
        } else {
            self.enqueue_at(step, worker);
            self.ask_preempt(worker);
        }
    }

    pub(crate) fn record_decision(
        &mut self,
        kind: DecisionKind,
        because: Because,
        worker: WorkerId,
        entry: &Ranked,
        ranking: &Ranking,
    ) {
        let mut why = Why::new(kind, because)
            .by(ranking.evaluator(entry))
            .among(&ranking.entries);
        if entry.wished == Some(worker) {
            why.placed_by = ranking.placer(entry);
        }
        self.explain(entry.program, worker, &why);
    }

    /// The wished worker if it can take the program, else the one with the
    /// least in use that can.
    fn worker_for(&self, program: ProgramId, wished: Option<WorkerId>) -> Option<WorkerId> {
        let p = self.state.live.get(&program)?;
        let least = self.prompt_tokens_least(p);
        let workers = &self.state.workers;
        let could = |w: &&Worker| self.may_take(w, p, least);
        let wished = wished.and_then(|id| workers.get(&id)).filter(could);
        let emptiest = || {
            let able = workers.values().filter(could);
            able.min_by_key(|w| (w.used_tokens(), w.id))
        };
        wished.or_else(emptiest).map(|w| w.id)
    }

    pub(crate) fn is_waiting(&self, step: StepId) -> bool {
        let waits = |s: &Step| s.state == StepState::Waiting;
        self.state.steps.get(&step).is_some_and(waits)
    }

    /// True in the mode that this file is about.
    pub(crate) fn is_rollout(&self) -> bool {
        self.config.mode == Mode::Rollout
    }
}
