//! Suspended waits: while every worker that could take a program's steps is fenced for its weights,
//! the time does not count as theirs. An update of weights that takes minutes neither refuses steps
//! nor makes all of them starve.
//!
//! Only fences suspend, as an update ends them. A worker that is paused or asleep has only reported
//! that, and nothing that treadle knows of will end it; nor will one come back that does not answer:
//! there the limit on waits has to.

use crate::Programs;
use crate::programs::program::Program;
use crate::programs::timers::Timer;
use crate::programs::worker::{Worker, WorkerState};
use std::collections::BTreeMap;
use treadle_model::{ProgramId, Span, StepId};

impl Programs {
    /// Handles a change of a worker: others may be fenced.
    pub(crate) fn worker_changes(&mut self) {
        if self.state.workers.values().any(|w| w.fenced) {
            self.state.waiting.look_for_suspensions();
        }
    }

    /// Suspends waits, or continues them, after workers changed.
    pub(crate) fn settle_suspensions(&mut self) {
        if !self.state.waiting.take_suspensions_due() {
            return;
        }
        let mut of_models = BTreeMap::new();
        let mut changes: Vec<(ProgramId, bool)> = Vec::new();
        for program in self.state.waiting.programs() {
            let Some(p) = self.state.live.get(&program) else {
                continue;
            };
            let model = p.model.as_deref();
            let is_suspended = of_models
                .entry(model)
                .or_insert_with(|| self.suspends(model));
            changes.push((program, *is_suspended));
        }
        for (program, is_suspended) in changes {
            let p = self.state.live.get(&program);
            let waiting = p.map(|p| p.waiting.clone()).unwrap_or_default();
            let mut has_changed = false;
            for step in waiting {
                has_changed |= self.set_suspended(step, is_suspended);
            }
            if has_changed {
                self.refile(program);
            }
        }
    }

    /// Whether the waits of a program are suspended.
    pub(crate) fn is_suspended(&self, program: ProgramId) -> bool {
        let p = self.state.live.get(&program);
        p.is_some_and(|p| self.suspends(p.model.as_deref()))
    }

    /// Whether a worker that answers and could take steps for a model is fenced, and none takes
    /// them.
    fn suspends(&self, model: Option<&str>) -> bool {
        let could = |w: &&Worker| {
            let is_in_service = w.is_healthy() && w.state == WorkerState::Active;
            is_in_service && w.holds_programs() && self.serves(w, model)
        };
        let workers = || self.state.workers.values();
        workers().filter(|w| w.fenced).any(|w| could(&w))
            && !workers().filter(|w| w.takes_steps()).any(|w| could(&w))
    }

    /// Suspends the wait of a step, or continues it. Returns whether that is a change.
    pub(crate) fn set_suspended(&mut self, step: StepId, is_suspended: bool) -> bool {
        let (now, most) = (self.state.now, self.config.queue_wait_max);
        let Some(s) = self.state.steps.get_mut(&step) else {
            return false;
        };
        if s.suspended_since.is_some() == is_suspended {
            return false;
        }
        let (deadline, before) = (s.wait_deadline(most), s.queued_step(step));
        match s.suspended_since.take() {
            Some(since) => s.waits_since = s.waits_since + now.since(since),
            None => s.suspended_since = Some(now),
        }
        let timer = Timer::StepWait(step);
        self.state.timers.disarm(deadline, timer);
        self.state.timers.arm(s.wait_deadline(most), timer);
        let after = s.queued_step(step);
        let place = self.state.live.get(&s.program).and_then(|p| p.placement);
        let w = place.and_then(|place| self.state.workers.get_mut(&place.worker));
        if let Some(w) = w
            && w.line.remove(&before)
        {
            w.line.insert(after);
        }
        true
    }

    /// How long the longest waiting step of a program has waited.
    pub(crate) fn waited(&self, p: &Program) -> Option<Span> {
        let steps = p.waiting.iter();
        let steps = steps.filter_map(|step| self.state.steps.get(step));
        steps.map(|s| s.waited(self.state.now)).max()
    }
}
