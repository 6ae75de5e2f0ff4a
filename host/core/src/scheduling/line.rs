//! Lines: where an engine does not order its steps itself, those beyond its
//! bound wait here, the most urgent first, and a running one may give way
//! (`Heddle` Algorithm 1).

use crate::explain::{Because, DecisionKind};
use crate::ranking::Ranking;
use crate::{Command, Core, Purpose};
use std::cmp::Reverse;
use treadle_model::{EngineKind, ProgramId, StepId, WorkerId};

impl Core {
    /// True unless the worker runs as many steps as it may.
    pub(crate) fn takes_a_step(&self, worker: WorkerId) -> bool {
        let most = self.config.rollout.engine_steps_max;
        let running = self.state.workers.get(&worker).map(|w| w.running_steps);
        most == 0 || running.is_some_and(|running| running < most)
    }

    /// Sends the most urgent of those that wait for a worker while it takes
    /// more.
    pub(crate) fn serve(&mut self, worker: WorkerId) {
        if self.state.queue.is_empty() || self.config.rollout.engine_steps_max == 0 {
            return;
        }
        while self.takes_a_step(worker) {
            let Some((_, step)) = self.line(worker).into_iter().min() else {
                return;
            };
            let program = self.state.steps[&step].program;
            self.dequeue(step);
            self.dispatch(step, worker);
            self.refresh_demand(program);
        }
    }

    /// Asks who gives way, if somebody waits who is more urgent than one that
    /// runs, and what was interrupted can be gone on with.
    pub(crate) fn ask_preempt(&mut self, worker: WorkerId) {
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        if !resumes(w.engine) {
            return;
        }
        let line = self.line(worker);
        let running = self.running_at(worker);
        let urgent = line.iter().map(|((Reverse(priority), _), _)| *priority);
        let least = running.iter().map(|(priority, _)| *priority).min();
        if urgent.max() <= least {
            return;
        }
        let waiting = line.iter().map(|(_, step)| *step);
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

    /// Takes steps back from their engine, at most as many as wait there, and
    /// none for a less urgent one.
    pub(crate) fn preempt_in_order(&mut self, worker: WorkerId, ranking: &Ranking) {
        let mut line = self.line(worker);
        line.sort_unstable();
        let mut waiting = line.into_iter();
        let running = self.running_at(worker);
        for entry in &ranking.entries {
            let of_program = |(_, step): &&(i32, StepId)| {
                let s = self.state.steps.get(step);
                s.is_some_and(|s| s.program == entry.program)
            };
            let Some((priority, victim)) = running.iter().filter(of_program).min().copied() else {
                continue;
            };
            let Some(((Reverse(urgent), _), _)) = waiting.next() else {
                break;
            };
            if urgent <= priority {
                break;
            }
            let (kind, because) = (DecisionKind::Preempt, Because::MoreUrgent);
            self.tell_why(kind, because, worker, entry, ranking);
            self.state.counters.preemptions += 1;
            self.command(Command::PreemptStep { step: victim });
            self.resume_waiting(victim);
            self.leave_engine(victim);
            self.enqueue(victim);
            self.refresh_idle(entry.program);
        }
        self.serve(worker);
    }

    /// Steps that wait for the worker alone: most urgent, then longest waiting
    /// first by the key.
    fn line(&self, worker: WorkerId) -> Vec<((Reverse<i32>, u64), StepId)> {
        let placed = self.state.workers.get(&worker).map(|w| &w.programs);
        let programs = placed.into_iter().flatten();
        let ready = programs
            .filter(|program| !self.state.migrations.moving.contains_key(program))
            .filter_map(|program| self.state.programs.get(program));
        let steps = ready.flat_map(|p| &p.waiting);
        let key = |step: &StepId| {
            let s = self.state.steps.get(step).filter(|s| s.routed)?;
            Some(((Reverse(s.priority), s.waits_since.0), *step))
        };
        steps.filter_map(key).collect()
    }

    fn running_at(&self, worker: WorkerId) -> Vec<(i32, StepId)> {
        let placed = self.state.workers.get(&worker).map(|w| &w.programs);
        let programs = placed
            .into_iter()
            .flatten()
            .filter_map(|program| self.state.programs.get(program));
        let steps = programs.flat_map(|p| &p.running);
        let here = |step: &StepId| {
            let s = self.state.steps.get(step)?;
            (s.state.worker() == Some(worker)).then_some((s.priority, *step))
        };
        steps.filter_map(here).collect()
    }
}

/// Engines that can go on from the answer so far.
const fn resumes(engine: EngineKind) -> bool {
    !matches!(engine, EngineKind::Openai)
}
