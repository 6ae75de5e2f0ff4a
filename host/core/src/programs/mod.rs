//! The machine of programs: their steps, the workers that serve them, and the memory of both.

pub mod accounts;
pub mod action;
pub mod backlog;
mod bounds;
pub mod classes;
mod command;
mod event;
pub mod explain;
pub mod habits;
mod invariants;
pub mod lineage;
pub mod lingering;
pub mod link;
pub mod migration;
pub mod offload;
pub mod pace;
pub mod program;
mod question;
pub mod queue;
mod ranking;
pub mod reuse;
mod scheduling;
pub mod speed;
mod state;
pub mod step;
mod timers;
pub mod tokens;
mod transitions;
mod view;
pub mod worker;

pub use command::{Command, Refusal, RefusedStep};
pub use event::{
    About, Capacity, Parent, PrefixSegment, ProgramEvent, PromptText, StepArrival, StepFailure,
    StepTokens,
};
pub use question::{
    Attribution, CacheAction, CostEstimates, NEVER, PolicyAnswer, ProgramColumns, Purpose, Question,
};
pub use state::{Ask, Counters, JobStatistics, State};
pub use view::{CacheLocation, CacheTotals, RunningUse, Totals, WorkerTotals};

use crate::CoreConfig;
use crate::bindings::{Bindings, BoundJobs};
use explain::Decision;
use std::collections::{BTreeSet, VecDeque};
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
    commands: VecDeque<Command>,
    decisions: VecDeque<Decision>,
    /// Keys of ended programs whose actions are to end.
    closed: Vec<Box<str>>,
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
            due: Due::default(),
        };
        let live = programs.state.live.values().map(|p| &*p.job);
        programs.state.jobs.recount(live);
        // A snapshot of an older version has no sum.
        let contexts = programs.state.live.values().map(|p| p.context_tokens);
        programs.state.context_tokens = contexts.sum();
        programs.account_all();
        programs
    }

    /// Sets the time of the event that is handled next.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.state.now = now;
    }

    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(crate) fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// The programs that ended since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.closed)
    }

    /// Whether this program is live.
    pub(crate) fn is_live(&self, program: &str) -> bool {
        self.state.keys.contains_key(program)
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.state.timers.next()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn config(&self) -> &CoreConfig {
        &self.config
    }

    fn command(&mut self, command: Command) {
        self.commands.push_back(command);
    }
}
