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
        let rollout = &self.config.rollout;
        if self.state.queue.is_empty() || (rollout.engine_steps_max, rollout.memory_ppm) == (0, 0) {
            return;
        }
        let mut line = self.line(worker);
        line.sort_unstable();
        let mut room = self.room_for_beginners(worker);
        for (_, step) in line {
            if !self.takes_a_step(worker) {
                return;
            }
            let program = self.state.steps[&step].program;
            if !self.has_begun(program) {
                // The first of all fits an empty worker, however large.
                let need = self.needed_tokens(program);
                match &mut room {
                    Some(room) if need <= *room || self.has_begun_none(worker) => {
                        *room = room.saturating_sub(need);
                    }
                    Some(room) => {
                        // Nobody overtakes: the most urgent waits for room.
                        *room = 0;
                        continue;
                    }
                    None => {}
                }
            }
            self.dequeue(step);
            self.dispatch(step, worker);
            self.refresh_demand(program);
        }
    }

    /// True once a program has run a step where it is.
    pub(crate) fn has_begun(&self, program: ProgramId) -> bool {
        let p = self.state.programs.get(&program);
        p.is_some_and(|p| p.steps_finished > 0 || !p.running.is_empty())
    }

    fn has_begun_none(&self, worker: WorkerId) -> bool {
        let w = self.state.workers.get(&worker);
        w.is_none_or(|w| !w.programs.iter().any(|program| self.has_begun(*program)))
    }

    /// Context of a program, and what it will come to by what is predicted.
    fn needed_tokens(&self, program: ProgramId) -> u64 {
        let Some(p) = self.state.programs.get(&program) else {
            return 0;
        };
        let grows = u128::from(p.remaining_tokens.unwrap_or(0));
        let grows = grows * u128::from(self.config.rollout.growth_ppm) / 1_000_000;
        let grows = u64::try_from(grows).unwrap_or(u64::MAX);
        p.context_tokens.max(p.private_tokens()).saturating_add(grows)
    }

    /// Tokens left of a worker's memory for programs that have not begun;
    /// nothing where that is not looked at.
    fn room_for_beginners(&self, worker: WorkerId) -> Option<u64> {
        let ppm = self.config.rollout.memory_ppm;
        let w = self.state.workers.get(&worker)?;
        if ppm == 0 || w.capacity.tokens.is_none() {
            return None;
        }
        let begun = w.programs.iter().filter(|program| self.has_begun(**program));
        let needed = begun.map(|program| self.needed_tokens(*program));
        let needed = needed.fold(w.shared_tokens, u64::saturating_add);
        Some(w.watermark_tokens(ppm).saturating_sub(needed))
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
