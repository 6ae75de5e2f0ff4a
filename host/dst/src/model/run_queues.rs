//! Steps with priorities wait in the run queues of their workers, the most urgent first, for a
//! slot; otherwise they only wait for an answer or their cache.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::{Ask, At, StepFacts};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::programs::{Decision, GivesWay, priority_of};
use treadle_core::{Core, Event, PolicyAnswer, Purpose};
use treadle_model::{ProgramId, StepId, WorkerId};

/// An answer's scores of the programs in the question; 0 for those that it omits.
fn scores(open: &Ask, answer: Option<&PolicyAnswer>) -> BTreeMap<ProgramId, f64> {
    let mut said = BTreeMap::new();
    if let Some(PolicyAnswer::Order {
        programs, scores, ..
    }) = answer
    {
        for (row, program) in programs.iter().enumerate() {
            if open.candidates.contains(program) {
                let score = scores.get(row).copied().unwrap_or(0.0);
                said.entry(*program).or_insert(score);
            }
        }
    }
    said
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

    /// A question about a step was answered, or will not be.
    pub(super) fn route_answered(&mut self, open: &Ask, answer: Option<&PolicyAnswer>) {
        if open.purpose == Purpose::Restore {
            self.placed = scores(open, answer);
        }
        let Purpose::Route { step } = open.purpose else {
            return;
        };
        let program = self.steps.get(&step).filter(|s| s.at == At::Queue);
        let Some(program) = program.map(|s| s.program) else {
            return;
        };
        if self.caches.under_way.contains_key(&program) {
            // It is asked about again when its cache is there.
        } else if self.has_live_placement(program) {
            let said = scores(open, answer);
            self.sent_on(step, said.get(&program).copied().unwrap_or_default());
        } else {
            self.take_placement(program);
        }
    }

    /// The steps of a program that an answer placed; unless they have to wait for its cache.
    pub(super) fn sent_on_together(&mut self, program: ProgramId) {
        let score = self.placed.get(&program).copied().unwrap_or_default();
        self.placed_now.insert(program);
        let steps = self.programs[&program].steps.clone();
        for step in steps {
            if self.steps[&step].at == At::Queue {
                self.sent_on(step, score);
            }
        }
    }

    /// Steps that were sent on wait for their program's cache after all.
    pub(super) fn wait_for_cache(&mut self, program: ProgramId) {
        let steps = self.programs.get(&program).map(|p| p.steps.clone());
        for step in steps.unwrap_or_default() {
            if let Some(s) = self.steps.get_mut(&step).filter(|s| s.at == At::Queue) {
                s.routed = false;
            }
        }
    }

    fn sent_on(&mut self, step: StepId, score: f64) {
        let program = self.steps.get(&step).map(|s| s.program);
        let is_ranked = program.is_some_and(|program| self.is_ranked(program));
        let score = if is_ranked { score } else { 0.0 };
        if let Some(s) = self.steps.get_mut(&step) {
            s.priority = priority_of(score);
            s.routed = true;
        }
    }

    /// A step goes to another worker than its program's, and takes the program with it.
    pub(super) fn routed_to(&mut self, decision: &Decision) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        let p = &self.programs[&program];
        if p.place.is_none_or(|at| at == worker) || self.runs_anything(program) {
            return broken(
                "placement",
                format!(
                    "{program} is at {:?} and goes to {worker}: {decision:?}",
                    p.place
                ),
            );
        }
        self.check_in_service(program, worker)?;
        self.check_admission(program, worker)?;
        let routed = self.programs[&program].steps.clone();
        let routed = routed.into_iter().filter(|step| self.steps[step].routed);
        let routed: Vec<StepId> = routed.collect();
        self.take_placement(program);
        self.place(program, worker);
        for step in routed {
            if let Some(s) = self.steps.get_mut(&step) {
                s.routed = true;
            }
        }
        Ok(())
    }

    /// A step is dispatched: its worker has a slot for it, and no more urgent step waits there.
    pub(super) fn check_run_queue(
        &mut self,
        step: StepId,
        worker: WorkerId,
        priority: i32,
    ) -> Checked {
        let s = &self.steps[&step];
        if !s.routed || s.priority != priority {
            return broken(
                "run-queues",
                format!(
                    "{step} is sent with {priority}, was answered: {}, with {}",
                    s.routed, s.priority
                ),
            );
        }
        let most = self.config.rollout.engine_steps_max;
        let running = self.running_at(worker).len();
        if most > 0 && running >= most as usize {
            return broken(
                "run-queues",
                format!("{step} is sent to {worker}, which runs {running} of {most} steps"),
            );
        }
        if let Some(other) = self.overtaken(step, worker) {
            let (since, of) = (s.waits_since, &self.steps[&other]);
            return broken(
                "run-queues",
                format!(
                    "{step} ({priority}, since {since:?}) goes before {other} ({}, since {:?})",
                    of.priority, of.waits_since
                ),
            );
        }
        Ok(())
    }

    fn running_at(&self, worker: WorkerId) -> Vec<StepId> {
        let here = |at: At| matches!(at, At::Worker(there, _) if there == worker);
        let running = self.steps.iter().filter(|(_, s)| here(s.at));
        running.map(|(id, _)| *id).collect()
    }

    /// Steps that only wait for a worker.
    fn run_queue_of(&self, worker: WorkerId) -> impl Iterator<Item = StepId> {
        let waiting = self
            .steps
            .iter()
            .filter(|(_, s)| s.at == At::Queue && s.routed);
        let here = waiting.filter(move |(_, s)| self.programs[&s.program].place == Some(worker));
        here.map(|(id, _)| *id)
    }

    /// Steps that should have gone before this one.
    fn overtaken(&self, step: StepId, worker: WorkerId) -> Option<StepId> {
        let urgency = |step: StepId| {
            let s = &self.steps[&step];
            (std::cmp::Reverse(s.priority), s.waits_since, step)
        };
        let own = urgency(step);
        let before = |other: &StepId| {
            let other = urgency(*other);
            // An answer dispatches those that it places one after another.
            if self.exact_order {
                other < own
            } else {
                other.0 < own.0
            }
        };
        let line = self.run_queue_of(worker).filter(|other| *other != step);
        // An answer places programs and sends their steps one after another.
        let was_there = |other: &StepId| {
            let program = self.steps[other].program;
            !self.placed_now.contains(&program)
        };
        let line = line.filter(was_there);
        let mut line = line.filter(|other| self.may_stay(*other, worker));
        line.find(before)
    }

    /// False if a step that waits in a line must go elsewhere: the worker does not
    /// take its prompt, and nothing of its program runs there any more.
    fn may_stay(&self, step: StepId, worker: WorkerId) -> bool {
        let s = &self.steps[&step];
        let most = self.workers[&worker].context_tokens_max();
        self.least_of(s) <= most || self.runs_anything(s.program)
    }

    /// A step is to be preempted for one that is more urgent and waits for its worker.
    pub(super) fn preempted(&mut self, step: StepId) -> Checked {
        let open = self.steps.get(&step);
        let Some((At::Worker(worker, _), GivesWay::Unasked, priority)) =
            open.map(|s| (s.at, s.gives_way, s.priority))
        else {
            return broken(
                "run-queues",
                format!("{step} is to be preempted, but is {open:?}"),
            );
        };
        let line = self.run_queue_of(worker);
        let urgent = line
            .filter(|other| self.steps[other].priority > priority)
            .count();
        let is_asked = |other: &&StepId| self.steps[*other].gives_way == GivesWay::Asked;
        let asked = self.running_at(worker).iter().filter(is_asked).count();
        if urgent <= asked {
            return broken(
                "run-queues",
                format!(
                    "{step} ({priority}) is preempted at {worker} after {asked} others, where {urgent} more urgent ones wait",
                ),
            );
        }
        self.set_gives_way(step, GivesWay::Asked);
        Ok(())
    }

    /// A gateway can't take a step back.
    pub(super) fn runs_on(&mut self, step: StepId) {
        self.set_gives_way(step, GivesWay::Never);
    }

    fn set_gives_way(&mut self, step: StepId, gives_way: GivesWay) {
        if let Some(s) = self.steps.get_mut(&step) {
            s.gives_way = gives_way;
        }
    }

    /// Gateways may never have heard of it.
    pub(super) fn restart_forgets_who_was_asked(&mut self) {
        let asked = self.steps.values_mut();
        for s in asked.filter(|s| s.gives_way == GivesWay::Asked) {
            s.gives_way = GivesWay::Unasked;
        }
    }

    /// Steps that waited for an answer are asked about again. A prompt that was to follow its cache
    /// is sent when that answer comes, if at all.
    pub(super) fn restart_asks_again(&mut self) {
        let waits = |(_, s): &(&StepId, &StepFacts)| {
            let is_placed = self.programs[&s.program].place.is_some();
            s.at == At::Queue && !s.routed && is_placed && self.waits_in_line(s.program)
        };
        let asked: Vec<StepId> = self.steps.iter().filter(waits).map(|(id, _)| *id).collect();
        for step in asked {
            self.prompt_ends(step);
        }
    }

    /// A gateway took a step back from its engine.
    pub(super) fn taken_back(&mut self, step: StepId) {
        let now = self.now;
        let Some(s) = self.steps.get_mut(&step) else {
            return;
        };
        let At::Worker(worker, _) = s.at else {
            return;
        };
        s.waits_since.0 += now.since(s.sent_at).micros();
        s.at = At::Queue;
        s.routed = true;
        // Its preemption is no fault of its engine.
        s.attempts = s.attempts.saturating_sub(1);
        let program = s.program;
        self.prompt_ends(step);
        self.leave_dead_worker(program);
        let least = self.least_of(&self.steps[&step]);
        let is_placed = self.programs[&program].place == Some(worker);
        let waits = self.waits_in_line(program);
        let leaves = self.is_to_leave(program) || self.leaves_placement(program, least);
        if !is_placed || !waits || leaves {
            if let Some(s) = self.steps.get_mut(&step) {
                s.at = At::Hand;
                s.routed = false;
            }
            if is_placed {
                self.take_placement(program);
            }
        }
    }

    /// The placement of a program that waits in line on a lost worker, or on one that does not take
    /// what waits, may end at any time, unless a decision reports it; so may that of one that is to
    /// leave a draining worker.
    pub(super) fn settle_useless_placements(&mut self, core: &Core, decided: &BTreeSet<ProgramId>) {
        let placed: Vec<(ProgramId, WorkerId)> = self
            .programs
            .iter()
            .filter_map(|(id, p)| Some((*id, p.place?)))
            .filter(|(id, _)| self.waits_in_line(*id) || self.is_to_leave(*id))
            .collect();
        for (program, worker) in placed {
            let known = core.programs().live.get(&program).map(|p| p.placement);
            let p = &self.programs[&program];
            let waiting = p.steps.iter().filter(|s| self.steps[s].at == At::Queue);
            let least = waiting.map(|s| self.least_of(&self.steps[s])).max();
            let w = &self.workers[&worker];
            let useless = !w.healthy
                || self.is_to_leave(program)
                || least.is_some_and(|least| least > w.context_tokens_max());
            if known == Some(None) && useless && !decided.contains(&program) {
                self.take_placement(program);
            }
        }
    }

    /// Checks that no step waits without a reason.
    pub(super) fn check_run_queues(&mut self, core: &Core, event: &Event) -> Checked {
        if !core.programs().adopted.is_empty() {
            // A waiting step may be the next to be adopted, so that none is dispatched.
            return Ok(());
        }
        let waiting = self.steps.iter().filter(|(_, s)| s.at == At::Queue);
        for (id, s) in waiting {
            let p = &self.programs[&s.program];
            let Some(worker) = p.place.filter(|_| self.waits_in_line(s.program)) else {
                continue;
            };
            if !self.workers.get(&worker).is_some_and(|w| w.healthy) {
                continue;
            }
            let asked = |ask: &Ask| matches!(ask.purpose, Purpose::Route { step } if step == *id);
            if !s.routed {
                if !self.asks.values().any(asked) && !self.caches.under_way.contains_key(&s.program)
                {
                    return broken(
                        "run-queues",
                        format!(
                            "{id} of {} waits at {worker} and is not asked about",
                            s.program
                        ),
                    );
                }
                continue;
            }
            let most = self.config.rollout.engine_steps_max;
            if self.is_draining(worker) {
                // It waits to leave with its program.
                continue;
            }
            let full = most > 0 && self.running_at(worker).len() >= most as usize;
            if !full {
                return broken(
                    "run-queues",
                    format!(
                        "{id} of {} waits at {worker}, which has room for it, after {}",
                        s.program,
                        event.kind()
                    ),
                );
            }
        }
        Ok(())
    }
}
