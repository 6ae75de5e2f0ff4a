//! Steps with priorities wait in the run queues of their workers, the most urgent first, for a
//! slot; otherwise they only wait for an answer or their cache.

use super::Model;
use super::facts::{Ask, At};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use treadle_core::programs::Decision;
use treadle_core::programs::QueuedStep;
use treadle_core::programs::{GivesWay, priority_of};
use treadle_core::programs::{PolicyAnswer, Purpose};
use treadle_core::{Core, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, WorkerId};

/// A step that the current event sent to an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dispatched {
    pub(super) worker: WorkerId,
    pub(super) as_queued: QueuedStep,
    /// Whether it may have waited in the worker's run queue.
    pub(super) in_line: bool,
}

impl Model {
    /// Whether a policy ranks the program's steps.
    pub(super) fn is_ranked(&self, program: ProgramId) -> bool {
        let p = self.programs.get(&program);
        self.is_aware() && p.is_some_and(|p| self.ranked_jobs.contains(&p.job))
    }

    /// Whether its steps may wait for others at its worker.
    pub(super) fn waits_in_line(&self, program: ProgramId) -> bool {
        let has_bound = self.config.rollout.engine_steps_max > 0;
        has_bound && self.is_aware() || self.is_ranked(program)
    }

    /// An answer says how urgent the waiting steps of programs are.
    pub(super) fn hear_priorities(&mut self, open: &Ask, answer: &PolicyAnswer) {
        let PolicyAnswer::Order {
            programs, scores, ..
        } = answer
        else {
            return;
        };
        for (row, program) in programs.iter().enumerate() {
            let score = scores
                .get(row)
                .filter(|_| open.candidates.contains(program));
            let p = self.programs.get(program);
            let (Some(score), Some(p)) = (score, p.filter(|_| self.is_ranked(*program))) else {
                continue;
            };
            for step in &p.steps {
                let waits = self.steps.get_mut(step).filter(|s| s.at == At::Queue);
                if let Some(s) = waits {
                    s.priorities.insert(priority_of(*score));
                }
            }
        }
    }

    /// A step goes to another worker than its program's, and takes the program with it.
    pub(super) fn routed_to(&mut self, core: &Core, decision: &Decision) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        let place = self.programs[&program].place;
        if place.is_none_or(|at| at == worker) || self.runs_anything(program) {
            return broken(
                "placement",
                format!("{program} is at {place:?} and goes to {worker}: {decision:?}"),
            );
        }
        self.check_in_service(program, worker)?;
        self.is_admitted(program, worker)?;
        self.place(core, program, worker);
        Ok(())
    }

    /// A step is sent to a worker. If it may have waited there, the worker has a slot for it, and an
    /// answer has given it this priority; without an answer it has none.
    pub(super) fn sent(&mut self, step: StepId, worker: WorkerId, priority: i32) -> Checked {
        let s = &self.steps[&step];
        let in_line = self.waits_in_line(s.program);
        let as_queued = QueuedStep {
            priority: Reverse(priority),
            since: s.waits_since,
            step,
        };
        self.dispatched.push(Dispatched {
            worker,
            as_queued,
            in_line,
        });
        let s = &self.steps[&step];
        if in_line && priority != priority_of(0.0) && !s.priorities.contains(&priority) {
            return broken(
                "run-queues",
                format!(
                    "{step} is sent with {priority}, not one of {:?}",
                    s.priorities
                ),
            );
        }
        let most = self.config.rollout.engine_steps_max;
        let running = self.running_at(worker).count();
        if in_line && most > 0 && running >= most as usize {
            return broken(
                "run-queues",
                format!("{step} is sent to {worker}, which runs {running} of {most} steps"),
            );
        }
        Ok(())
    }

    fn running_at(&self, worker: WorkerId) -> impl Iterator<Item = StepId> {
        let here = move |at: At| matches!(at, At::Worker(there, _) if there == worker);
        let running = self.steps.iter().filter(move |(_, s)| here(s.at));
        running.map(|(id, _)| *id)
    }

    /// Checks the order in which the current event served run queues, and that no step waits
    /// without a reason.
    pub(super) fn check_run_queues(&self, core: &Core, event: &Event) -> Checked {
        for sent in self.dispatched.iter().filter(|sent| sent.in_line) {
            self.check_overtaken(core, sent)?;
        }
        self.check_preempted(core)?;
        if !core.programs().adopted.is_empty() {
            // A waiting step may be the next to be adopted, so that none is dispatched.
            return Ok(());
        }
        let waiting = self.steps.iter().filter(|(_, s)| s.at == At::Queue);
        for (id, s) in waiting {
            let place = self.programs[&s.program].place;
            let place = place.filter(|_| self.waits_in_line(s.program));
            let Some((worker, w)) = place.and_then(|id| Some((id, self.workers.get(&id)?))) else {
                continue;
            };
            if !w.healthy || self.is_draining(worker) {
                // It waits for another one, or to leave with its program.
                continue;
            }
            let asked = |ask: &Ask| matches!(ask.purpose, Purpose::Route { step } if step == *id);
            let most = self.config.rollout.engine_steps_max as usize;
            let is_full = most > 0 && self.running_at(worker).count() >= most;
            let comes = self.caches.under_way.contains_key(&s.program);
            if !is_full && !comes && !self.asks.values().any(asked) {
                let (program, event) = (s.program, event.kind());
                return broken(
                    "run-queues",
                    format!("{id} of {program} waits at {worker}, which has room, after {event}"),
                );
            }
        }
        Ok(())
    }

    /// A step that stays in the run queue was not more urgent than one that was sent.
    fn check_overtaken(&self, core: &Core, sent: &Dispatched) -> Checked {
        let w = core.programs().workers.get(&sent.worker);
        let line = w.into_iter().flat_map(|w| &w.line);
        // An answer places programs and sends their steps one after another.
        let was_there = |other: &&QueuedStep| {
            let program = self.steps.get(&other.step).map(|s| s.program);
            program.is_some_and(|program| !self.placed_now.contains(&program))
        };
        let line = line.filter(was_there);
        let mut line = line.filter(|other| self.may_stay(other.step, sent.worker));
        let before = |other: &&QueuedStep| {
            if self.exact_order {
                **other < sent.as_queued
            } else {
                other.priority < sent.as_queued.priority
            }
        };
        match line.find(before) {
            Some(other) => broken("run-queues", format!("{sent:?} went before {other:?}")),
            None => Ok(()),
        }
    }

    /// False if a step that waits in a line must go elsewhere: the worker does not
    /// take its prompt, and nothing of its program runs there any more.
    fn may_stay(&self, step: StepId, worker: WorkerId) -> bool {
        let s = &self.steps[&step];
        let w = self.workers.get(&worker);
        let most = w.map_or(0, super::facts::WorkerFacts::context_tokens_max);
        self.least_of(s) <= most || self.runs_anything(s.program)
    }

    /// A step is preempted only for one that is more urgent and waits for its worker, one for each.
    fn check_preempted(&self, core: &Core) -> Checked {
        let steps = &core.programs().steps;
        let mut seen = BTreeSet::new();
        for (index, step) in self.preempted.iter().enumerate() {
            let known = steps.get(step);
            let Some((s, worker)) = known.and_then(|s| Some((s, s.state.worker()?))) else {
                return broken(
                    "run-queues",
                    format!("{step} is preempted, but does not run"),
                );
            };
            let is_asked = |other: &StepId| {
                let asked = steps.get(other).map(|s| s.gives_way) == Some(GivesWay::Asked);
                asked && !self.preempted.contains(other)
            };
            let asked = self.running_at(worker).filter(is_asked).count() + index;
            let w = core.programs().workers.get(&worker);
            let line = w.into_iter().flat_map(|w| &w.line);
            let urgent = line
                .filter(|other| other.priority < Reverse(s.priority))
                .count();
            if urgent <= asked || !seen.insert(*step) {
                return broken(
                    "run-queues",
                    format!(
                        "{step} is preempted at {worker} after {asked} others, where {urgent} more urgent ones wait"
                    ),
                );
            }
        }
        Ok(())
    }
}
