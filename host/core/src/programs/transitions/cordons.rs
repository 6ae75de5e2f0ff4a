//! Operators take workers out of service and back into it. A cordoned worker gets no program; a
//! draining one also loses its programs, each as soon as none of its steps runs there. Until then
//! no further step of it begins there: a program whose steps overlap would stay forever.

use crate::Mode;
use crate::Programs;
use crate::estimates::NEVER;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::worker::{Worker, WorkerState};
use treadle_model::{ProgramId, WorkerId};

impl Programs {
    pub(crate) fn worker_state_set(&mut self, worker: WorkerId, state: WorkerState) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        let drained_until_now = std::mem::replace(&mut w.state, state) == WorkerState::Draining;
        self.state.waiting.want_restore();
        if drained_until_now && state != WorkerState::Draining {
            self.due.serve.insert(worker);
            self.due.resumed.insert(worker);
        }
        if state == WorkerState::Active {
            return;
        }
        self.state.waiting.unreserve(worker);
        self.end_moves_to(worker);
    }

    /// Makes programs leave draining workers. While steps are being adopted none does: a waiting
    /// step may be the next to be adopted.
    pub(crate) fn settle_draining(&mut self) {
        if !self.state.adopted.is_empty() {
            return;
        }
        let is_draining = |w: &&Worker| w.loses_programs() && w.is_healthy();
        let draining = self.state.workers.values().filter(is_draining);
        let placed = draining.flat_map(|w| w.programs.iter().copied());
        for program in placed.collect::<Vec<ProgramId>>() {
            self.leave_draining(program);
        }
    }

    /// Resumes steps that waited to leave with their programs, at workers that are no longer
    /// draining.
    pub(crate) fn settle_resumed(&mut self) {
        while let Some(worker) = self.due.resumed.pop_first() {
            let w = self.state.workers.get(&worker);
            let placed = w.into_iter().flat_map(|w| &w.programs);
            let placed = placed.filter_map(|program| self.state.live.get(program));
            let waited = placed.filter(|p| !p.waiting.is_empty() && !p.running.is_empty());
            // Other steps wait in the worker's run queue, or for an answer.
            let waited = waited.filter(|p| !self.waits_in_line(p.id));
            for program in waited.map(|p| p.id).collect::<Vec<ProgramId>>() {
                self.ask_again(program);
            }
        }
    }

    /// True if a worker is to lose its programs.
    pub(crate) fn is_draining(&self, worker: WorkerId) -> bool {
        let w = self.state.workers.get(&worker);
        w.is_some_and(Worker::loses_programs)
    }

    /// True if a program is to leave its draining worker: none of its steps runs.
    pub(crate) fn is_to_leave(&self, program: ProgramId) -> bool {
        let p = self.state.live.get(&program);
        let place = p.filter(|p| p.running.is_empty()).and_then(|p| p.placement);
        place.is_some_and(|place| self.is_draining(place.worker))
    }

    /// Makes a program leave with its cache if that is quicker than recomputing it, otherwise
    /// without it. A program with a waiting step does not wait for a migration.
    pub(crate) fn leave_draining(&mut self, program: ProgramId) {
        let leaves = self.is_moving(program) || self.state.memory.offloads().is_leaving(program);
        if leaves || !self.is_to_leave(program) {
            return;
        }
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let Some(worker) = p.placement.map(|place| place.worker) else {
            return;
        };
        if !p.is_between_steps() {
            self.unplace(program);
            return self.ask_again(program);
        }
        if self.state.memory.wanted_at(program).is_some() {
            return;
        }
        let because = Because::WorkerDraining;
        if let Some(to) = self.worth_moving(program, worker) {
            self.explain(
                program,
                to,
                &Explanation::new(DecisionKind::Migrate, because),
            );
            return self.want_move(program, to);
        }
        let way_out = self.way_out(program);
        self.explain(program, worker, &Explanation::new(way_out, because));
        self.send_away(program);
    }

    /// A worker that a program's cache can be moved to sooner than it can be recomputed.
    fn worth_moving(&self, program: ProgramId, from: WorkerId) -> Option<WorkerId> {
        let p = self.state.live.get(&program)?;
        let moves = self.move_time(p.context_tokens);
        let is_worth_it = moves != NEVER && moves < self.prefill_time(p.context_tokens);
        let has_cache = self.config.mode == Mode::ProgramAware && p.steps_finished > 0;
        let is_movable = has_cache && is_worth_it && self.state.memory.is_at_rest(program);
        self.roomiest_but(program, from).filter(|_| is_movable)
    }
}
