//! The scheduling state machine: synchronous, deterministic, without IO.
//!
//! # Contract
//!
//! Hand it events in order with the time at which they are handled; drain its commands after each;
//! hand it [`Event::TimerFired`] when [`Core::next_deadline`] has passed. It answers no question
//! itself: every question to a policy leaves as [`Command::AskPolicy`] and comes back as
//! [`Event::PolicyAnswered`]. The same events at the same times give the same state, byte for byte.
//!
//! This crate knows nothing of clocks, threads, sockets, logs, HTTP, storage
//! or WebAssembly, and iterates over nothing unordered.
//!
//! ```
//! use treadle_core::{Capacity, Command, Core, CoreConfig, Event, StepArrival};
//! use treadle_model::{EngineKind, StepId, Timestamp, WorkerId};
//!
//! let mut core = Core::new(CoreConfig::default());
//! core.handle(Timestamp(0), &Event::WorkerAdded {
//!     worker: WorkerId(0),
//!     url: "http://127.0.0.1:8000".into(),
//!     engine: EngineKind::Vllm,
//!     capacity: Capacity { tokens: Some(100_000), ..Capacity::default() },
//! });
//! core.handle(Timestamp(5), &Event::StepArrived(StepArrival {
//!     step: StepId(1),
//!     program: "agent-1".into(),
//!     job: "default".into(),
//!     prompt_tokens: 900,
//!     exact: true,
//!     prompt_bytes: 3_600,
//!     text: None,
//!     output_tokens_max: None,
//!     prefix: vec![],
//!     one_shot: false,
//!     inferred: false,
//! }));
//! // A new program waits for a place, so the policy is asked first.
//! assert!(matches!(core.poll_command(), Some(Command::AskPolicy { .. })));
//! ```

pub mod accounts;
pub mod action;
pub mod backlog;
pub mod bindings;
mod bounds;
mod command;
mod config;
pub mod distribution;
mod event;
pub mod explain;
mod invariants;
pub mod jobs;
pub mod lingering;
pub mod link;
pub mod migration;
pub mod offload;
pub mod program;
mod question;
pub mod queue;
mod ranking;
mod scheduling;
pub mod state;
pub mod step;
mod timers;
pub mod tokens;
mod transitions;
mod view;
pub mod worker;

pub use command::{Command, Refusal};
pub use config::{CoreConfig, KvConfig, Mode, RolloutConfig};
pub use event::{
    About, Capacity, Event, Origin, PrefixSegment, PromptText, StepArrival, StepFailure, StepTokens,
};
pub use question::{
    Attribution, CacheAction, CostEstimates, NEVER, PolicyAnswer, ProgramColumns, Purpose, Question,
};
pub use state::State;
pub use view::{CacheLocation, CacheTotals, RunningUse, Totals, WorkerTotals};

use explain::Decision;
use std::collections::{BTreeSet, VecDeque};
use treadle_model::{Timestamp, WorkerId};

/// The state machine. See the crate's contract.
#[derive(Clone, Debug)]
pub struct Core {
    config: CoreConfig,
    state: State,
    commands: VecDeque<Command>,
    decisions: VecDeque<Decision>,
    due: Due,
}

/// What an event made due; done before the next one.
#[derive(Clone, Debug, Default)]
struct Due {
    /// Workers that may take another step.
    serve: BTreeSet<WorkerId>,
    /// Moves may be started.
    moves: bool,
    /// Offloads may be started.
    offloads: bool,
}

impl Core {
    /// A core that knows nothing yet.
    pub fn new(config: CoreConfig) -> Self {
        Self::with_state(config, State::default())
    }

    /// A core that goes on from a snapshot. Settings that the snapshot holds
    /// come before those that are given.
    pub fn with_state(config: CoreConfig, state: State) -> Self {
        let mut core = Self {
            config: state.config.clone().unwrap_or(config),
            state,
            commands: VecDeque::new(),
            decisions: VecDeque::new(),
            due: Due::default(),
        };
        let live = core.state.programs.values().map(|p| &*p.job);
        core.state.jobs.recount(live);
        core.account_all();
        core
    }

    /// Handles one event at `now`. A time earlier than the last counts as the last.
    pub fn handle(&mut self, now: Timestamp, event: &Event) {
        self.state.now = self.state.now.max(now);
        self.apply(event);
        self.settle_adopted(event);
        self.settle();
    }

    /// Handles an event that a gateway in another process has numbered. A gateway resends what has
    /// not been confirmed to be on record, so what was handled before changes nothing; `false`
    /// means that it was.
    pub fn handle_relayed(&mut self, now: Timestamp, origin: Origin, event: &Event) -> bool {
        if self.has_handled(origin) {
            return false;
        }
        self.state.gateways.insert(origin.gateway, origin.number);
        self.handle(now, event);
        true
    }

    /// Whether an event of a gateway was handled before.
    pub fn has_handled(&self, origin: Origin) -> bool {
        let handled = self.state.gateways.get(&origin.gateway);
        handled.is_some_and(|last| *last >= origin.number)
    }

    /// The next thing to do, if any.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next decision to record, if any.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// When [`Event::TimerFired`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.state.timers.next()
    }

    /// All that the core knows.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The settings.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    fn command(&mut self, command: Command) {
        self.commands.push_back(command);
    }
}
