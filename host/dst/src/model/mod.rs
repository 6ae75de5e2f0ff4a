//! An independent model of the scheduler, computed from events, commands and decisions only.
//!
//! The model sees the core's inputs and outputs; it derives ledgers, placements, waits and
//! questions itself, and reads the core's state only to compare. It is written for clarity: every
//! sum is computed from scratch.

mod action_programs;
mod actions;
mod caches;
mod commands;
mod cordons;
mod facts;
mod fill;
mod learn;
mod memory;
mod outputs;
mod placements;
mod rules;
mod run_queues;
#[cfg(test)]
mod tests;
mod transfers;
mod turns;

use actions::ActionsFacts;
use caches::Caches;
use facts::{Answered, Ask, ProgramFacts, StepFacts, WorkerFacts};
use fill::Learnt;
use run_queues::Dispatched;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::bindings::BoundJobs;
use treadle_core::programs::Decision;
use treadle_core::programs::ProgramEvent;
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event, Mode};
use treadle_dst_outcome::Checked;
use treadle_model::{AskId, ProgramId, Span, StepId, Timestamp, WorkerId, World};

pub(crate) use facts::Ending;

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    config: CoreConfig,
    /// Whether no policy omits programs.
    honest: bool,
    now: Timestamp,
    sim_us: u64,
    /// Time during which the scheduler could act, without downtime and jumps of the clock. Limits
    /// on its reactions are measured in it.
    settled_us: u64,
    programs: BTreeMap<ProgramId, ProgramFacts>,
    keys: BTreeMap<Box<str>, ProgramId>,
    steps: BTreeMap<StepId, StepFacts>,
    ended: BTreeMap<StepId, Ending>,
    workers: BTreeMap<WorkerId, WorkerFacts>,
    /// The larger one of the starvation bounds before and after the current event.
    starvation_bound: Span,
    /// The starvation bound after the current event.
    present_bound: Span,
    asks: BTreeMap<AskId, Ask>,
    next_program: u64,
    next_ask: u64,
    /// Programs that ended with the current event and must be forgotten.
    closed: BTreeSet<ProgramId>,
    /// A step of the current event for which the program limit left no room.
    turned_away: Option<StepId>,
    /// The restore question that the current event answered.
    answered: Option<Answered>,
    /// Steps that are refused with the current event.
    refused: BTreeSet<StepId>,
    /// Hashes of prefixes of programs that the current event has placed.
    newly_shared: BTreeSet<u64>,
    head: Option<turns::HeadOfQueue>,
    stuck: Option<turns::Stuck>,
    caches: Caches,
    actions: ActionsFacts,
    ranked_jobs: BoundJobs,
    /// Programs that this event has placed.
    placed_now: BTreeSet<ProgramId>,
    /// Whether the current event serves run queues in their order, and dispatches no other step.
    exact_order: bool,
    /// Steps that the current event has sent to engines.
    dispatched: Vec<Dispatched>,
    /// Steps that the current event has preempted.
    preempted: Vec<StepId>,
    /// Programs that the current event has placed, or moves, and their workers.
    admitted: Vec<(ProgramId, WorkerId)>,
    /// Whether an engine found all of a program's context, as the current event reports.
    found_all: bool,
    learnt: Learnt,
}

impl Model {
    /// A model of a new scheduler.
    pub(crate) fn new(config: CoreConfig, honest: bool) -> Self {
        Self {
            config,
            honest,
            now: Timestamp(0),
            sim_us: 0,
            settled_us: 0,
            programs: BTreeMap::new(),
            keys: BTreeMap::new(),
            steps: BTreeMap::new(),
            ended: BTreeMap::new(),
            workers: BTreeMap::new(),
            starvation_bound: Span(0),
            present_bound: Span(0),
            asks: BTreeMap::new(),
            next_program: 0,
            next_ask: 0,
            closed: BTreeSet::new(),
            turned_away: None,
            answered: None,
            refused: BTreeSet::new(),
            newly_shared: BTreeSet::new(),
            head: None,
            stuck: None,
            caches: Caches::default(),
            actions: ActionsFacts::default(),
            ranked_jobs: BoundJobs::default(),
            placed_now: BTreeSet::new(),
            exact_order: false,
            dispatched: Vec::new(),
            preempted: Vec::new(),
            admitted: Vec::new(),
            found_all: false,
            learnt: Learnt::default(),
        }
    }

    /// Applies an event and the core's output, and checks both.
    pub(crate) fn follow(
        &mut self,
        core: &Core,
        at: Timestamp,
        sim_us: u64,
        event: &Event,
        commands: &[Command],
        decisions: &[Decision],
    ) -> Checked {
        self.pass(core, at, sim_us, event);
        self.ranked_jobs = core.bindings().jobs_of(World::Priority);
        self.learn(core, event)?;
        self.learn_of_actions(event);
        self.hear(core, event, commands, decisions)
    }

    /// Compares the core with the model, and checks limits on time.
    pub(crate) fn check(&mut self, core: &Core, event: &Event) -> Checked {
        self.compare(core)?;
        self.check_fill(core, event)?;
        self.check_admissions(core)?;
        self.check_caches(core, event)?;
        self.check_run_queues(core, event)?;
        self.check_draining(core)?;
        self.check_actions(core)?;
        self.check_time(core, event)
    }

    /// How each step ended.
    pub(crate) fn endings(&self) -> impl Iterator<Item = Ending> + '_ {
        self.ended.values().copied()
    }

    /// A daemon starts: nothing could be done before.
    pub(crate) fn daemon_starts(&mut self, sim_us: u64) {
        self.sim_us = sim_us;
    }

    fn pass(&mut self, core: &Core, at: Timestamp, sim_us: u64, event: &Event) {
        let core_us = at.since(self.now).micros();
        let real_us = sim_us.saturating_sub(self.sim_us);
        if !matches!(event, Event::Daemon(DaemonEvent::DaemonRestarted)) {
            // A clock that stood still and then jumps does not show what could be done.
            let most = self.response_us_max() / 2;
            self.settled_us += core_us.min(real_us).min(most);
        }
        self.now = self.now.max(at);
        self.sim_us = sim_us;
        let bound = self.longest_wait(core);
        self.starvation_bound = bound.max(self.present_bound);
        self.present_bound = bound;
        self.closed.clear();
        self.turned_away = None;
        self.answered = None;
        self.newly_shared.clear();
        self.caches.next_event();
        self.actions.next_event(self.now);
        self.placed_now.clear();
        self.dispatched.clear();
        self.preempted.clear();
        self.admitted.clear();
        self.found_all = false;
        self.exact_order = !matches!(
            event,
            Event::Program(ProgramEvent::PolicyAnswered { .. })
                | Event::Daemon(DaemonEvent::TimerFired)
        );
    }

    fn is_aware(&self) -> bool {
        self.config.mode == Mode::ProgramAware
    }
}
