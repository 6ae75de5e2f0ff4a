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
mod learn;
mod outputs;
mod placements;
mod prefill;
mod rules;
mod run_queues;
mod sizes;
#[cfg(test)]
mod tests;
mod transfers;
mod turns;

use super::outcome::Checked;
use actions::ActionsFacts;
use caches::Caches;
use facts::{Answered, Ask, JobFacts, ProgramFacts, StepFacts, WorkerFacts};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::bindings::BoundJobs;
use treadle_core::programs::{Decision, DecisionKind};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event, Mode, ProgramEvent};
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
    jobs: BTreeMap<Box<str>, JobFacts>,
    /// Mean wait of programs for placement.
    wait_mean_us: u64,
    /// The starvation bound before the current event.
    starvation_bound: Span,
    /// Workers' median speed of computing prompts in tokens per second, once measured.
    median_speed: Option<u64>,
    asks: BTreeMap<AskId, Ask>,
    next_program: u64,
    next_ask: u64,
    /// Programs that ended with the current event and must be forgotten.
    closed: BTreeSet<ProgramId>,
    /// A step of the current event for which the program limit left no room.
    turned_away: Option<StepId>,
    /// The core's values for the sizes in the current event.
    core_sizes: sizes::CoreSizes,
    /// The restore question that the current event answered.
    answered: Option<Answered>,
    /// Steps that are refused with the current event.
    refused: BTreeSet<StepId>,
    /// Hashes of prefixes of programs placed by the current event.
    newly_shared: BTreeSet<u64>,
    head: Option<turns::HeadOfQueue>,
    stuck: Option<turns::Stuck>,
    caches: Caches,
    actions: ActionsFacts,
    ranked_jobs: BoundJobs,
    /// Scores of the answer about placements.
    placed: BTreeMap<ProgramId, f64>,
    /// Programs in run queues that this event has placed.
    placed_now: BTreeSet<ProgramId>,
    /// The step that the current event adopted, and its worker.
    adopted: Option<(StepId, WorkerId)>,
    /// Tokens of prompts that the current event's decisions send to each worker.
    decided_prompts: BTreeMap<WorkerId, u64>,
    /// Whether the current event serves run queues in their order, and dispatches no other step.
    exact_order: bool,
    /// Time of the next periodic check.
    tick_at: Option<Timestamp>,
    /// Number of times that a step began to wait.
    queued: u64,
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
            jobs: BTreeMap::new(),
            wait_mean_us: 0,
            starvation_bound: Span(0),
            median_speed: None,
            asks: BTreeMap::new(),
            next_program: 0,
            next_ask: 0,
            closed: BTreeSet::new(),
            turned_away: None,
            core_sizes: sizes::CoreSizes::default(),
            answered: None,
            refused: BTreeSet::new(),
            newly_shared: BTreeSet::new(),
            head: None,
            stuck: None,
            caches: Caches::default(),
            actions: ActionsFacts::default(),
            ranked_jobs: BoundJobs::default(),
            placed: BTreeMap::new(),
            placed_now: BTreeSet::new(),
            adopted: None,
            decided_prompts: BTreeMap::new(),
            exact_order: false,
            tick_at: None,
            queued: 0,
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
        self.pass(at, sim_us, event);
        self.ranked_jobs = core.bindings().jobs_of(World::Priority);
        self.learn(event)?;
        self.hear_of_reuse(core);
        self.learn_of_actions(event);
        let leaves = |d: &&Decision| matches!(d.kind, DecisionKind::Pause | DecisionKind::Offload);
        let leaving = decisions.iter().filter(leaves).map(|d| d.program);
        self.settle_useless_placements(core, &leaving.collect());
        self.hear(event, commands, decisions)?;
        if matches!(event, Event::Daemon(DaemonEvent::TimerFired)) {
            self.hear_of_shared(core);
        }
        Ok(())
    }

    /// Compares the core with the model, and checks limits on time.
    pub(crate) fn check(&mut self, core: &Core, event: &Event) -> Checked {
        self.compare(core)?;
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

    fn pass(&mut self, at: Timestamp, sim_us: u64, event: &Event) {
        let core_us = at.since(self.now).micros();
        let real_us = sim_us.saturating_sub(self.sim_us);
        if !matches!(event, Event::Daemon(DaemonEvent::DaemonRestarted)) {
            // A clock that stood still and then jumps does not show what could be done.
            let most = self.response_us_max() / 2;
            self.settled_us += core_us.min(real_us).min(most);
        }
        self.now = self.now.max(at);
        self.sim_us = sim_us;
        self.starvation_bound = self.longest_wait();
        self.closed.clear();
        self.turned_away = None;
        self.answered = None;
        self.newly_shared.clear();
        self.caches.next_event();
        self.actions.next_event(self.now);
        self.placed.clear();
        self.placed_now.clear();
        self.adopted = None;
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
