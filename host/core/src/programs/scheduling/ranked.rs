//! Programs whose job has a priority policy (`Heddle` §3): new ones are gathered and asked about
//! together. Each step goes to its program's worker with the priority that its policy gives it, and
//! waits here only for an answer, its cache, or a slot at an engine that does not order its steps
//! itself.

use crate::bindings::BoundJobs;
use crate::estimates::{Forecast, Growing, WorkerGrowth};
use crate::programs::Purpose;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::program::Program;
use crate::programs::ranking::{Ranked, Ranking};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::step::{Step, StepState, priority_of};
use crate::programs::timers::Timer;
use crate::{Mode, Programs};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// True if a policy ranks the program's steps.
    pub(super) fn is_ranked(&self, program: ProgramId) -> bool {
        let can_be = !self.ranked_jobs.is_empty();
        let p = self.state.live.get(&program).filter(|_| can_be);
        p.is_some_and(|p| self.ranks(&p.job))
    }

    /// True if a policy ranks the steps of a job.
    pub(crate) fn ranks(&self, job: &str) -> bool {
        self.config.mode == Mode::ProgramAware && self.ranked_jobs.contains(job)
    }

    /// True if the program's steps may have to wait for others at its worker.
    pub(crate) fn waits_in_line(&self, program: ProgramId) -> bool {
        let has_bound = self.config.rollout.engine_steps_max > 0;
        has_bound && self.config.mode == Mode::ProgramAware || self.is_ranked(program)
    }

    /// Handles changed bindings: other jobs may have policies now.
    pub(crate) fn policies_bound(&mut self, ranked: &BoundJobs, placed: &BoundJobs) {
        self.placed_jobs.clone_from(placed);
        if self.ranked_jobs == *ranked {
            return;
        }
        self.ranked_jobs.clone_from(ranked);
        self.route_placed_again();
        let queued: Vec<ProgramId> = self.state.waiting.programs().collect();
        for program in queued {
            self.refile(program);
        }
    }

    /// Asks how urgent a step of a placed program is, and whether it goes to another worker.
    pub(super) fn ask_route(&mut self, step: StepId, program: ProgramId) {
        self.ask(Purpose::Route { step }, vec![program]);
    }

    /// Routes a waiting step again.
    pub(super) fn reroute(&mut self, step: StepId) {
        self.dequeue(step);
        self.route(step);
    }

    /// Questions are lost with the process that was asked: asks again about the steps that waited
    /// for an answer.
    pub(crate) fn ask_routes_again(&mut self) {
        let waits = |step: &StepId| {
            let s = self.state.steps.get(step);
            s.is_some_and(|s| s.state == StepState::Waiting && !s.routed)
        };
        let programs = self.state.live.values().filter(|p| p.placement.is_some());
        let programs = programs.filter(|p| self.waits_in_line(p.id));
        let open = programs.flat_map(|p| p.waiting.iter().copied());
        let open: Vec<StepId> = open.filter(waits).collect();
        for step in open {
            self.reroute(step);
        }
    }

    /// True if a program has to be asked about together with other new ones.
    pub(crate) fn is_newcomer(&self, program: ProgramId) -> bool {
        let p = self.state.live.get(&program);
        let waits = p.is_some_and(|p| p.queued.is_some() && p.placement.is_none());
        waits && p.is_some_and(|p| p.urgency.is_none()) && self.is_ranked(program)
    }

    /// Arms the placement question for new programs, if some wait for it.
    pub(super) fn settle_gathering(&mut self) {
        let is_due = self.state.waiting.are_newcomers_due();
        if !is_due && !self.state.waiting.newcomers().is_empty() {
            let at = self.state.now + self.config.rollout.gather;
            self.state.timers.arm_single(at, Timer::Gather);
        }
    }

    pub(crate) fn gathered(&mut self) {
        self.state.waiting.set_newcomers_due(true);
        self.state.waiting.want_restore();
    }

    /// Records the answer about a program that waits for placement.
    pub(super) fn note_urgency(&mut self, entry: &Ranked) {
        if self.is_ranked(entry.program)
            && let Some(p) = self.state.live.get_mut(&entry.program)
        {
            p.urgency = Some(priority_of(entry.score));
            p.remaining_tokens = entry.remaining_tokens.or(p.remaining_tokens);
            self.state.waiting.set_newcomer(entry.program, false);
        }
    }

    /// The worker for a program whose turn it is. A more urgent program keeps its turn: if its
    /// chosen worker lacks room, now or by prediction, less urgent ones wait for it too, until the
    /// starvation bound. One whose preferred class of hardware lacks room goes elsewhere instead.
    pub(super) fn worker_in_turn(
        &self,
        entry: &Ranked,
        forecast: &mut Forecast,
    ) -> Option<WorkerId> {
        let p = self.state.live.get(&entry.program)?;
        let waits = p.queued.is_some() && p.placement.is_none();
        let least = self.prompt_tokens_least(p);
        let wished = entry.wished.and_then(|id| self.state.workers.get(&id));
        let wished = wished.filter(|w| waits && self.may_take(w, p, least));
        let Some(w) = wished else {
            let worker = self.worker_with_room(p.id, None);
            return worker.filter(|worker| self.will_fit(p, *worker, forecast));
        };
        let is_loading = self.loading_for(p.id).contains(&w.id);
        let takes = !is_loading && self.admits(w, p, least) && self.will_fit(p, w.id, forecast);
        if !takes && p.is_of_class(w) {
            let other = self.worker_with_room(p.id, None);
            return other.filter(|worker| self.will_fit(p, *worker, forecast));
        }
        if !takes {
            forecast.keep(w.id);
        }
        takes.then_some(w.id)
    }

    /// True if a worker's memory suffices for all programs placed there, including this one, by
    /// their predicted growth; and no more urgent one waits for it.
    fn will_fit(&self, p: &Program, worker: WorkerId, forecast: &mut Forecast) -> bool {
        let share = self.config.rollout.memory_ppm;
        let w = self.state.workers.get(&worker);
        let Some(w) = w.filter(|_| !forecast.is_kept(worker)) else {
            return false;
        };
        if share == 0 || p.remaining_tokens.is_none() || w.capacity.tokens.is_none() {
            return true;
        }
        let memory = || {
            let placed = w.programs.iter().filter_map(|id| self.state.live.get(id));
            let capacity = w
                .watermark_tokens(share)
                .saturating_sub(w.ledger.shared_tokens());
            WorkerGrowth::new(capacity, placed.map(|p| self.growing(p)).collect())
        };
        forecast.admits(worker, memory, self.growing(p))
    }

    /// A program's present context and its predicted growth.
    fn growing(&self, p: &Program) -> Growing {
        Growing {
            remaining: p.remaining_tokens.unwrap_or(0),
            held: p.context_tokens.max(p.private_tokens()),
            growth_ppm: self.state.estimates.growth_ppm(&p.job),
        }
    }

    /// Dispatches a step. Its program moves with it if the placement policy wants that, there is
    /// room, and none of its steps runs elsewhere.
    pub(crate) fn route_in_order(&mut self, step: StepId, ranking: &Ranking) {
        let Some(program) = self.state.steps.get(&step).map(|s| s.program) else {
            return;
        };
        let Some(entry) = ranking.entries.first() else {
            return;
        };
        if !self.is_waiting(step) || self.waits_for_cache(program) {
            return;
        }
        let Some(at) = self.serving_worker_of(program) else {
            self.unplace(program);
            return;
        };
        let runs = !self.state.live[&program].running.is_empty();
        // A policy does not see a worker that can't be chosen, so it chooses another one for each
        // of its programs.
        let free = !runs && self.state.workers[&at].takes_programs();
        // What a policy is asked for one step does not say which class its program prefers.
        let stays = |to: WorkerId| self.leaves_class(program, at, to);
        let other = entry.wished.filter(|to| free && *to != at && !stays(*to));
        let worker = match other.filter(|to| self.could_take(program, *to)) {
            Some(to) => {
                self.record_decision(DecisionKind::Route, Because::Routed, to, entry, ranking);
                self.place_elsewhere(program, to);
                to
            }
            None => at,
        };
        self.send(step, worker, entry);
    }

    /// Sends the waiting steps of a program that was placed by an answer.
    pub(super) fn send_placed(&mut self, worker: WorkerId, entry: &Ranked) {
        let waiting = self.state.live.get(&entry.program);
        let waiting = waiting.map(|p| p.waiting.clone());
        for step in waiting.unwrap_or_default() {
            self.send(step, worker, entry);
        }
    }

    /// Sends a waiting step to its worker, if that takes another one.
    fn send(&mut self, step: StepId, worker: WorkerId, entry: &Ranked) {
        if !self.holds_context(worker, step, entry.program) {
            // Another of the program's steps ran there at the time of the question.
            return self.reroute(step);
        }
        // An earlier answer may have queued it there with another priority.
        let place = self
            .state
            .live
            .get(&entry.program)
            .and_then(|p| p.placement);
        self.dequeue_at(step, place);
        let is_ranked = self.is_ranked(entry.program);
        if let Some(s) = self.state.steps.get_mut(&step) {
            s.priority = if is_ranked {
                priority_of(entry.score)
            } else {
                0
            };
            s.routed = true;
            if let Some(p) = self.state.live.get_mut(&s.program) {
                p.remaining_tokens = entry.remaining_tokens;
            }
        }
        if !self.takes_a_step(worker) {
            self.enqueue_at(step, worker);
            self.ask_preempt(worker);
        } else if self.has_no_queue_ahead(worker) {
            self.dequeue(step);
            self.dispatch(step, worker);
            self.refresh_demand(entry.program);
            self.relieve(worker);
        } else {
            self.enqueue_at(step, worker);
            self.due.serve.insert(worker);
        }
    }

    pub(super) fn record_decision(
        &mut self,
        kind: DecisionKind,
        because: Because,
        worker: WorkerId,
        entry: &Ranked,
        ranking: &Ranking,
    ) {
        let mut explanation = Explanation::new(kind, because)
            .by(ranking.evaluator(entry))
            .among(&ranking.entries);
        if entry.wished == Some(worker) {
            explanation.placed_by = ranking.placer(entry);
        }
        self.explain(entry.program, worker, &explanation);
    }

    fn is_waiting(&self, step: StepId) -> bool {
        let waits = |s: &Step| s.state == StepState::Waiting;
        self.state.steps.get(&step).is_some_and(waits)
    }
}
