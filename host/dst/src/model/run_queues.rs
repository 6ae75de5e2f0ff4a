//! Rollouts: steps wait in the run queues of their workers, the most urgent first, for a slot or
//! for memory; and for nothing else but an answer or their cache.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::{Ask, At};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::explain::{Because, Decision};
use treadle_core::step::{GivesWay, priority_of};
use treadle_core::{Core, Event, Mode, PolicyAnswer, Purpose};
use treadle_model::{ProgramId, StepId, WorkerId};

/// An answer's row about a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnsweredRow {
    score: f64,
    remaining_tokens: Option<u64>,
}

/// An answer's rows about the programs that were asked about; none for those that it leaves out.
fn sayings(open: &Ask, answer: Option<&PolicyAnswer>) -> BTreeMap<ProgramId, AnsweredRow> {
    let mut said = BTreeMap::new();
    if let Some(PolicyAnswer::Order {
        programs,
        scores,
        remaining_tokens,
        ..
    }) = answer
    {
        for (row, program) in programs.iter().enumerate() {
            let remaining = remaining_tokens.get(row).copied();
            let saying = AnsweredRow {
                score: scores.get(row).copied().unwrap_or(0.0),
                remaining_tokens: remaining.and_then(|tokens| u64::try_from(tokens).ok()),
            };
            if open.candidates.contains(program) {
                said.entry(*program).or_insert(saying);
            }
        }
    }
    for program in &open.candidates {
        said.entry(*program).or_default();
    }
    said
}

impl Model {
    pub(super) fn is_rollout(&self) -> bool {
        self.config.mode == Mode::Rollout
    }

    /// A question of a rollout was answered, or will not be.
    pub(super) fn rollout_answered(&mut self, open: &Ask, answer: Option<&PolicyAnswer>) {
        let said = sayings(open, answer);
        match open.purpose {
            Purpose::Assign => self.assigned = said,
            Purpose::Route { step } => {
                let program = self.steps.get(&step).filter(|s| s.at == At::Queue);
                let Some(program) = program.map(|s| s.program) else {
                    return;
                };
                if self.has_live_placement(program) {
                    self.sent_on(step, said.get(&program).copied().unwrap_or_default());
                } else {
                    self.take_placement(program);
                }
            }
            _ => {}
        }
    }

    fn sent_on(&mut self, step: StepId, said: AnsweredRow) {
        if let Some(s) = self.steps.get_mut(&step) {
            s.priority = priority_of(said.score);
            s.routed = true;
            if let Some(p) = self.programs.get_mut(&s.program) {
                p.remaining_tokens = said.remaining_tokens;
            }
        }
    }

    /// A program is placed with others that came.
    pub(super) fn assigned_to(&mut self, decision: &Decision) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        self.check_taker(program, worker)?;
        self.place(program, worker);
        let said = self.assigned.get(&program).copied().unwrap_or_default();
        let steps = self.programs[&program].steps.clone();
        for step in steps {
            if self.steps[&step].at == At::Queue {
                self.sent_on(step, said);
            }
        }
        Ok(())
    }

    /// A step goes to another worker than its program's, and the program with it.
    pub(super) fn routed_to(&mut self, decision: &Decision) -> Checked {
        let (program, worker) = (decision.program, decision.worker);
        let p = &self.programs[&program];
        let (begun, ranked) = (p.begun, decision.because == Because::RankChanged);
        if p.place.is_none_or(|at| at == worker) || self.runs_anything(program) || (begun && ranked)
        {
            return broken(
                "placement",
                format!(
                    "{program} is at {:?} and goes to {worker}: {decision:?}",
                    p.place
                ),
            );
        }
        if decision.because == Because::Routed {
            self.check_taker(program, worker)?;
        }
        self.take_placement(program);
        self.place(program, worker);
        if let Some(p) = self.programs.get_mut(&program) {
            p.begun &= begun;
        }
        Ok(())
    }

    fn check_taker(&self, program: ProgramId, worker: WorkerId) -> Checked {
        match self.unable(program, worker) {
            None => Ok(()),
            Some(why) => broken(
                "admission",
                format!("{program} is placed on {worker}, which {why}"),
            ),
        }
    }

    /// In a rollout memory is the engines' to share out.
    fn unable(&self, program: ProgramId, worker: WorkerId) -> Option<&'static str> {
        let obstacle = self.obstacle(program, worker);
        obstacle.filter(|why| *why != super::rules::LACKS_ROOM)
    }

    /// A step is dispatched: its worker has a slot for it, no more urgent step waits there, and a
    /// program begins only if the memory suffices.
    pub(super) fn check_run_queue(
        &mut self,
        step: StepId,
        worker: WorkerId,
        priority: i32,
    ) -> Checked {
        let rollout = self.config.rollout.clone();
        let s = &self.steps[&step];
        let program = s.program;
        if !s.routed || s.priority != priority {
            return broken(
                "run-queues",
                format!(
                    "{step} is sent with {priority}, was answered: {}, with {}",
                    s.routed, s.priority
                ),
            );
        }
        let most = rollout.engine_steps_max;
        let running = self.running_at(worker).len();
        if most > 0 && running >= most as usize {
            return broken(
                "run-queues",
                format!("{step} is sent to {worker}, which runs {running} of {most} steps"),
            );
        }
        let begun = self.programs[&program].begun;
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
        if !begun {
            self.check_memory(program, worker)?;
        }
        if let Some(p) = self.programs.get_mut(&program) {
            p.begun = true;
        }
        Ok(())
    }

    fn running_at(&self, worker: WorkerId) -> Vec<StepId> {
        let here = |at: At| matches!(at, At::Worker(there, _) if there == worker);
        let running = self.steps.iter().filter(|(_, s)| here(s.at));
        running.map(|(id, _)| *id).collect()
    }

    /// Steps that wait for a worker alone.
    fn run_queue_of(&self, worker: WorkerId) -> impl Iterator<Item = StepId> {
        let waiting = self
            .steps
            .iter()
            .filter(|(_, s)| s.at == At::Queue && s.routed);
        let here = waiting.filter(move |(_, s)| self.programs[&s.program].place == Some(worker));
        here.map(|(id, _)| *id)
    }

    /// Steps that should have gone before this one. Programs that have begun may overtake those
    /// that wait for memory.
    fn overtaken(&self, step: StepId, worker: WorkerId) -> Option<StepId> {
        let begun = |step: StepId| {
            let s = &self.steps[&step];
            self.config.rollout.memory_ppm == 0 || self.programs[&s.program].begun
        };
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
        let mut line = line.filter(|other| self.may_stay(*other, worker));
        line.find(|other| before(other) && (begun(*other) || !begun(step)))
    }

    /// False if a step that waits in a line must go elsewhere: the worker does not
    /// take its prompt, and nothing of its program runs there any more.
    fn may_stay(&self, step: StepId, worker: WorkerId) -> bool {
        let s = &self.steps[&step];
        let most = self.workers[&worker].context_tokens_max();
        self.least_of(s) <= most || self.runs_anything(s.program)
    }

    /// Programs that have begun and one that begins, each of them grown by what it is predicted to
    /// write: at no time is that more than there is.
    fn check_memory(&self, program: ProgramId, worker: WorkerId) -> Checked {
        let (rollout, w) = (&self.config.rollout, &self.workers[&worker]);
        let begun: Vec<ProgramId> = self.begun_at(worker);
        if rollout.memory_ppm == 0 || w.capacity.tokens.is_none() || begun.is_empty() {
            return Ok(());
        }
        let shared = self.shared_tokens(w, &self.programs_on(worker));
        let most = w.watermark(rollout.memory_ppm).saturating_sub(shared);
        let all = begun.iter().chain([&program]);
        let all: Vec<(u64, u64)> = all
            .map(|id| {
                let p = &self.programs[id];
                let held = p.context_tokens.max(self.private_tokens(*id));
                (p.remaining_tokens.unwrap_or(0), held)
            })
            .collect();
        // When one of them ends, those with as much to come are all there, and
        // have grown by what it has.
        let at_end_of = |remaining: u64| {
            let grown = u128::from(remaining) * u128::from(rollout.growth_ppm) / 1_000_000;
            let there = all.iter().filter(|(r, _)| *r >= remaining);
            there.map(|(_, held)| held + grown as u64).sum::<u64>()
        };
        let peak = all.iter().map(|(remaining, _)| at_end_of(*remaining)).max();
        if peak.is_some_and(|peak| peak > most) {
            return broken(
                "begin",
                format!(
                    "{program} begins at {worker}, where {peak:?} tokens will be needed of {most}: {all:?}"
                ),
            );
        }
        Ok(())
    }

    fn begun_at(&self, worker: WorkerId) -> Vec<ProgramId> {
        let placed = self.programs_on(worker).into_iter();
        placed.filter(|id| self.programs[id].begun).collect()
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
        if !is_placed || self.leaves_placement(program, least) {
            if let Some(s) = self.steps.get_mut(&step) {
                s.at = At::Hand;
                s.routed = false;
            }
            if is_placed {
                self.take_placement(program);
            }
        }
    }

    /// In a rollout a placement on a lost worker, or on one that does not take what waits, may end
    /// at any time, unless a decision reports it.
    pub(super) fn settle_useless_placements(&mut self, core: &Core, decided: &BTreeSet<ProgramId>) {
        if !self.is_rollout() {
            return;
        }
        let placed: Vec<(ProgramId, WorkerId)> = self
            .programs
            .iter()
            .filter_map(|(id, p)| Some((*id, p.place?)))
            .collect();
        for (program, worker) in placed {
            let known = core.programs().live.get(&program).map(|p| p.placement);
            let p = &self.programs[&program];
            let waiting = p.steps.iter().filter(|s| self.steps[s].at == At::Queue);
            let least = waiting.map(|s| self.least_of(&self.steps[s])).max();
            let w = &self.workers[&worker];
            let useless = !w.healthy || least.is_some_and(|least| least > w.context_tokens_max());
            if known == Some(None) && useless && !decided.contains(&program) {
                self.take_placement(program);
            }
        }
    }

    /// No step waits for nothing.
    pub(super) fn check_run_queues(&mut self, core: &Core, event: &Event) -> Checked {
        if !self.is_rollout() {
            return Ok(());
        }
        if !core.programs().adopted.is_empty() {
            // A waiting step may be the next to be adopted, so that none is dispatched.
            return self.check_unplaced();
        }
        let waiting = self.steps.iter().filter(|(_, s)| s.at == At::Queue);
        for (id, s) in waiting {
            let p = &self.programs[&s.program];
            let Some(worker) = p.place else {
                continue;
            };
            if !self.workers.get(&worker).is_some_and(|w| w.healthy) {
                continue;
            }
            let asked = |ask: &Ask| matches!(ask.purpose, Purpose::Route { step } if step == *id);
            if !s.routed {
                if !self.asks.values().any(asked) && !self.caches.is_moving(s.program) {
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
            let full = most > 0 && self.running_at(worker).len() >= most as usize;
            let gated = self.config.rollout.memory_ppm > 0 && !p.begun;
            let lonely = self.begun_at(worker).is_empty();
            if !full && (!gated || lonely) {
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
        self.check_unplaced()
    }

    /// The program that has waited longest for placement is asked about once it has been gathered
    /// with others, and placed if there is a worker for it.
    fn check_unplaced(&mut self) -> Checked {
        let head = self.head_of_queue().map(|(_, program)| program);
        let able = |program: &ProgramId| {
            let mut workers = self.workers.keys();
            workers.any(|worker| self.unable(*program, *worker).is_none())
        };
        let Some(program) = head.filter(able) else {
            self.gathering = None;
            return Ok(());
        };
        let before = self.gathering.filter(|(of, _)| *of == program);
        let (_, since_us) = before.unwrap_or((program, self.settled_us));
        self.gathering = Some((program, since_us));
        let waited = self.settled_us - since_us;
        let bound = self.config.rollout.gather.0 + self.response_us_max();
        if waited > bound {
            return broken(
                "room",
                format!(
                    "{program} is the head of the queue and waits for {waited} us, though there is a worker for it"
                ),
            );
        }
        Ok(())
    }
}
