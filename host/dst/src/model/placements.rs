//! Where programs are placed, and what ends placements.

use super::Model;
use super::facts::{At, WorkerFacts};
use treadle_model::{ProgramId, WorkerId};

impl Model {
    /// True if a worker takes the prompt that the program's first waiting step has.
    pub(super) fn takes_waiting(&self, program: ProgramId, worker: WorkerId) -> bool {
        let p = self.programs.get(&program);
        let steps = p.into_iter().flat_map(|p| &p.steps);
        let steps = steps.map(|id| (id, &self.steps[id]));
        let waiting = steps.filter(|(_, s)| s.at == At::Queue);
        let first = waiting.min_by_key(|(id, s)| (s.waits_since, **id));
        let most = self
            .workers
            .get(&worker)
            .map(WorkerFacts::context_tokens_max);
        first.is_none_or(|(_, s)| most.is_some_and(|most| self.least_of(s) <= most))
    }

    /// A step that finds its program's worker dead, or too small for it while nothing else runs
    /// there, makes the program leave; unless it is refused at once.
    pub(super) fn leaves_placement(&self, program: ProgramId, least_tokens: u64) -> bool {
        if !self.has_run_queues_or_caches() || least_tokens > self.longest_context() {
            return false;
        }
        let place = self.programs.get(&program).and_then(|p| p.place);
        let worker = place.and_then(|worker| self.workers.get(&worker));
        let too_small = worker.is_some_and(|w| least_tokens > w.context_tokens_max());
        !self.has_live_placement(program) || (too_small && !self.runs_anything(program))
    }

    /// Whether placements may be lost and change workers in this mode.
    pub(super) fn has_run_queues_or_caches(&self) -> bool {
        self.is_aware()
    }

    pub(super) fn has_live_placement(&self, program: ProgramId) -> bool {
        let place = self.programs.get(&program).and_then(|p| p.place);
        place.is_some_and(|worker| self.workers.get(&worker).is_some_and(|w| w.healthy))
    }

    pub(super) fn leave_dead_worker(&mut self, program: ProgramId) {
        if !self.runs_anything(program) && !self.has_live_placement(program) {
            self.take_placement(program);
        }
    }

    pub(super) fn take_placement(&mut self, program: ProgramId) {
        self.prompts_stay_away(program);
        if let Some(p) = self.programs.get_mut(&program) {
            p.place = None;
            for step in &p.steps {
                if let Some(s) = self.steps.get_mut(step) {
                    s.routed &= s.at != At::Queue;
                }
            }
            p.is_warm = false;
        }
        self.caches.stays(program);
    }

    pub(super) fn runs_anything(&self, program: ProgramId) -> bool {
        self.programs.get(&program).is_some_and(|p| {
            p.steps
                .iter()
                .any(|step| matches!(self.steps[step].at, At::Worker(..)))
        })
    }
}
