//! The machine of programs: their steps, the workers that serve them, and the memory of both.

mod action;
mod asks;
mod bounds;
mod command;
mod event;
mod explain;
mod invariants;
mod link;
mod program;
mod question;
mod queue;
mod ranking;
mod scheduling;
mod state;
mod step;
mod timers;
mod transitions;
mod view;
mod waiting_list;
mod worker;

pub use action::{ACTIONS_MAX, Action, SUBAGENT};
pub use asks::{Ask, Asks};
pub use command::{ProgramCommand, Refusal, RefusedStep};
pub use event::{About, Parent, ProgramEvent, PromptText, StepArrival, StepFailure, StepTokens};
pub use explain::{Alternative, Because, Decision, DecisionKind};
pub use link::{OpenStep, Reconciliation, reconcile};
pub use program::{
    Awaited, FULL_WEIGHT_PPM, KvPlacement, Lineage, Outcome, Prefilled, Program, QueueEntry,
};
pub use question::{
    Attribution, CacheAction, CostEstimates, PolicyAnswer, ProgramColumns, Purpose, Question,
};
pub use queue::Queue;
pub use state::{Counters, State};
pub use step::{GivesWay, Prefill, PrefillLeg, Step, StepState, priority_of, score_of};
pub use timers::{Timer, Timers};
pub use view::{CacheLocation, CacheTotals, RunningUse, Totals, WorkerTotals};
pub use waiting_list::WaitingList;
pub use worker::{Health, QueuedStep, Rest, Worker, WorkerRole, WorkerState};

use crate::CoreConfig;
use crate::actions::{ProgramsView, RankInputs};
use crate::bindings::{Bindings, BoundJobs};
use crate::training::LivePrograms;
use crate::weights::Engines;
use std::collections::{BTreeSet, VecDeque};
use treadle_machine::DaemonEvent;
use treadle_machine::{Machine, Notice};
use treadle_model::{Timestamp, WorkerId, World};

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    config: CoreConfig,
    /// Jobs with a priority policy; derived from the bindings.
    ranked_jobs: BoundJobs,
    /// Jobs with a placement policy; derived from the bindings.
    placed_jobs: BoundJobs,
    state: State,
    commands: VecDeque<ProgramCommand>,
    decisions: VecDeque<Decision>,
    /// Of the programs that ended with this event.
    closed: Vec<Notice>,
    notices: VecDeque<Notice>,
    due: Due,
}

/// Work that an event made due; done before the next event.
#[derive(Clone, Debug, Default)]
struct Due {
    /// Workers that may take another step.
    serve: BTreeSet<WorkerId>,
    /// Workers that are no longer draining.
    resumed: BTreeSet<WorkerId>,
    /// Migrations may be started.
    moves: bool,
    /// Offloads may be started.
    offloads: bool,
    /// The event handed a step over; more of them follow.
    adopts: bool,
}

impl Programs {
    pub(crate) fn with_state(config: CoreConfig, state: State, bindings: &Bindings) -> Self {
        let mut programs = Self {
            config: state.config.clone().unwrap_or(config),
            ranked_jobs: bindings.jobs_of(World::Priority),
            placed_jobs: bindings.jobs_of(World::Placement),
            state,
            commands: VecDeque::new(),
            decisions: VecDeque::new(),
            closed: Vec::new(),
            notices: VecDeque::new(),
            due: Due::default(),
        };
        let live = programs.state.live.values().map(|p| &*p.job);
        programs.state.estimates.recount(live);
        // A snapshot of an older version has no sum.
        let contexts = programs.state.live.values().map(|p| p.context_tokens);
        programs.state.context_tokens = contexts.sum();
        programs.account_all();
        programs
    }

    pub(crate) fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn config(&self) -> &CoreConfig {
        &self.config
    }

    fn command(&mut self, command: ProgramCommand) {
        self.commands.push_back(command);
    }
}

impl Machine for Programs {
    type Event = ProgramEvent;
    type Command = ProgramCommand;
    type View = ();

    fn advance(&mut self, now: Timestamp) {
        self.state.now = now;
    }

    fn apply(&mut self, event: &ProgramEvent, (): &()) {
        if matches!(event.about(), About::Worker(_)) {
            self.worker_changes();
        }
        self.transition(event);
        self.due.adopts = matches!(event, ProgramEvent::StepAdopted { .. });
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        match event {
            DaemonEvent::TimerFired => self.timer_fired(),
            DaemonEvent::Configured { config } => self.configured(config),
            DaemonEvent::DaemonRestarted => self.daemon_restarted(),
            DaemonEvent::GatewayLost { gateway } => self.gateway_lost(*gateway),
            DaemonEvent::RecordRefused { .. } => {}
        }
    }

    fn settle(&mut self, (): &()) {
        self.settle_adopted();
        self.settle_workers();
        self.settle_suspensions();
        self.settle_draining();
        self.settle_resumed();
        self.settle_transfers();
        self.settle_restores();
        self.settle_lines();
        self.due = Due::default();
        self.settle_tick();
        self.notices.extend(self.closed.drain(..));
    }

    fn poll_command(&mut self) -> Option<ProgramCommand> {
        self.commands.pop_front()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.state.timers.next()
    }

    fn assert_invariants(&self) {
        self.check_invariants();
    }
}

impl ProgramsView for Programs {
    fn is_live(&self, program: &str) -> bool {
        self.state.keys.contains_key(program)
    }

    fn any_unplaced(&self) -> bool {
        self.has_unplaced()
    }

    fn rank_inputs(&self, program: &str, unplaced: bool) -> RankInputs {
        self.memory_of(program, unplaced)
    }
}

/// The ranks of an endpoint have the same weights: the first stands for all.
impl Engines for Programs {
    fn engines(&self) -> Vec<WorkerId> {
        let workers = self.state.workers.values().filter(|w| !w.leaving);
        let firsts = workers.filter(|w| self.first_rank(w.id) == w.id);
        firsts.map(|w| w.id).collect()
    }

    fn answers(&self, worker: WorkerId) -> bool {
        let mut ranks = self.ranks_of(worker);
        ranks.any(Worker::is_healthy)
    }

    fn ends_steps(&self, worker: WorkerId) -> bool {
        let ranks: BTreeSet<WorkerId> = self.ranks_of(worker).map(|w| w.id).collect();
        let here = self.state.steps.values();
        let is_here = |step: &&Step| step.state.worker().is_some_and(|at| ranks.contains(&at));
        let mut here = here.filter(is_here);
        here.any(|step| {
            let program = self.state.live.get(&step.program);
            program.is_some_and(Program::is_cut)
        })
    }
}

impl LivePrograms for Programs {
    fn is_live(&self, program: &str) -> bool {
        self.state.keys.contains_key(program)
    }

    fn sampled(&self, program: &str) -> Option<(u64, u32)> {
        let id = self.state.keys.get(program)?;
        let program = self.state.live.get(id)?;
        let running = program.running.iter();
        let steps = running.filter_map(|step| self.state.steps.get(step));
        let running: u64 = steps.map(|step| step.output_tokens).sum();
        let tokens = program.output_tokens_total.saturating_add(running);
        Some((tokens, program.steps_finished))
    }
}
