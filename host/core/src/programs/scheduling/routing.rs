//! Routing: where an arriving step goes in each mode, including the two plain modes used for
//! comparison.

use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::worker::Worker;
use crate::{Mode, Programs};
use treadle_model::{PolicyRef, ProgramId, StepId, WorkerId};

impl Programs {
    /// Routes a new step: to its program's worker, or into the queue.
    pub(crate) fn route(&mut self, step: StepId) {
        let Some(program) = self.state.steps.get(&step).map(|s| s.program) else {
            return;
        };
        match self.config.mode {
            Mode::ProgramAware => self.route_program_aware(step, program),
            Mode::Sticky => self.route_sticky(step, program),
            Mode::LeastLoad => self.route_least_load(step, program),
        }
    }

    fn route_program_aware(&mut self, step: StepId, program: ProgramId) {
        if let Some(s) = self.state.steps.get_mut(&step) {
            s.routed = false;
        }
        let stays = |worker: &WorkerId| {
            self.takes_steps(*worker) && self.holds_context(*worker, step, program)
        };
        let Some(worker) = self.healthy_worker_of(program).filter(stays) else {
            // A placement is useless to a new step if its worker is lost, takes no steps, or takes
            // no context of this length.
            self.unplace(program);
            return self.enqueue(step);
        };
        self.state.memory.migrations_mut().withdraw(program);
        if self.waits_for_cache(program) {
            return self.enqueue(step);
        }
        if self.is_to_leave(program) {
            self.unplace(program);
            return self.enqueue(step);
        }
        if self.waits_in_line(program) {
            self.enqueue(step);
            return self.ask_route(step, program);
        }
        if self.is_draining(worker) {
            // Otherwise a program whose steps overlap would never leave.
            return self.enqueue(step);
        }
        // A program stays placed through its tool calls; growth is checked at once.
        let worker = self.or_faster(step, program, worker);
        self.dispatch(step, worker);
        self.refresh_demand(program);
        self.relieve(worker);
    }

    fn route_sticky(&mut self, step: StepId, program: ProgramId) {
        let worker = self.serving_worker_of(program).or_else(|| {
            let worker = self.least(program, Worker::used_tokens)?;
            self.unplace(program);
            self.explain_plain(program, worker);
            self.place(program, worker);
            Some(worker)
        });
        match worker.filter(|worker| !self.is_draining(*worker)) {
            Some(worker) => {
                self.dispatch(step, worker);
                self.refresh_demand(program);
            }
            None => self.enqueue(step),
        }
    }

    fn route_least_load(&mut self, step: StepId, program: ProgramId) {
        match self.least(program, |w| u64::from(w.running_steps)) {
            Some(worker) => self.dispatch(step, worker),
            None => self.enqueue(step),
        }
    }

    /// In the plain modes steps wait only while no worker takes any.
    pub(crate) fn route_waiting(&mut self) {
        let waiting: Vec<ProgramId> = self.state.waiting.programs().collect();
        for program in waiting {
            let steps = self
                .state
                .live
                .get(&program)
                .map(|p| p.waiting.clone())
                .unwrap_or_default();
            for step in steps {
                self.dequeue(step);
                self.route(step);
            }
        }
    }

    /// The program's worker, if it is placed on a healthy one.
    pub(crate) fn healthy_worker_of(&self, program: ProgramId) -> Option<WorkerId> {
        let place = self.state.live.get(&program)?.placement?;
        self.state
            .workers
            .get(&place.worker)?
            .is_healthy()
            .then_some(place.worker)
    }

    /// The program's worker, if steps may be sent there and the program is not about to leave it.
    pub(crate) fn serving_worker_of(&self, program: ProgramId) -> Option<WorkerId> {
        let worker = self.healthy_worker_of(program);
        worker.filter(|worker| self.takes_steps(*worker) && !self.is_to_leave(program))
    }

    fn takes_steps(&self, worker: WorkerId) -> bool {
        let w = self.state.workers.get(&worker);
        w.is_some_and(Worker::takes_steps)
    }

    fn least(&self, program: ProgramId, load: impl Fn(&Worker) -> u64) -> Option<WorkerId> {
        let p = self.state.live.get(&program)?;
        let now = self.state.now;
        let takes = |w: &&Worker| w.takes_programs() && self.serves_program(w, p);
        let open = self.state.workers.values().filter(takes);
        open.min_by_key(|w| (w.is_busy(now), load(w), w.id))
            .map(|w| w.id)
    }

    fn explain_plain(&mut self, program: ProgramId, worker: WorkerId) {
        let policy = PolicyRef("plain-routing".into());
        let explanation = Explanation::new(DecisionKind::Place, Because::PlainRouting).by(&policy);
        self.explain(program, worker, &explanation);
    }
}
