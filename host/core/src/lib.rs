//! The scheduling state machine: synchronous, deterministic, without IO.
//!
//! It is composed of machines, each with its own state, events, bounds, timers and invariants:
//! [`programs`] (programs, their steps and the workers that serve them), [`bindings`] (which
//! policy has which role), [`actions`] (tool calls and rewards that treadle runs), [`training`]
//! (groups, batches and versions of training runs) and [`weights`] (which version each engine
//! holds). [`Core`] passes each event to its machine and events of the daemon to all, settles every machine after
//! each event, and combines their states into a snapshot. All events go to one journal.
//!
//! # Contract
//!
//! The driver passes events in order with the time at which they are handled, drains the commands
//! after each, and sends [`DaemonEvent::TimerFired`] when [`Core::next_deadline`] has passed.
//! Questions to a policy leave as [`programs::ProgramCommand::AskPolicy`]; answers return as
//! [`programs::ProgramEvent::PolicyAnswered`]. The same events at the same times give the same state, byte
//! for byte.
//!
//! This crate has no clocks, threads, sockets, logs, HTTP, storage or WebAssembly, and iterates
//! over nothing unordered.
//!
//! ```
//! use treadle_core::memory::Capacity;
//! use treadle_core::programs::{ProgramCommand, ProgramEvent, StepArrival};
//! use treadle_core::{Command, Core, CoreConfig};
//! use treadle_model::{EngineKind, StepId, Timestamp, WorkerId};
//!
//! let mut core = Core::new(CoreConfig::default());
//! core.handle(Timestamp(0), &ProgramEvent::WorkerAdded {
//!     worker: WorkerId(0),
//!     url: "http://127.0.0.1:8000".into(),
//!     engine: EngineKind::Vllm,
//!     capacity: Capacity { tokens: Some(100_000), ..Capacity::default() },
//!     role: None,
//! }.into());
//! core.handle(Timestamp(5), &ProgramEvent::StepArrived(StepArrival {
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
//!     parent: None,
//!     group: None,
//!     model: None,
//! }).into());
//! // A new program waits for placement, so the policy is asked first.
//! let asked = core.poll_command();
//! assert!(matches!(asked, Some(Command::Program(ProgramCommand::AskPolicy { .. }))));
//! ```

pub mod bindings;
mod captured;
mod command;
mod event;
#[cfg(test)]
mod further_machine;
pub mod programs;
mod publish;
mod state;

pub use captured::{CapturedVersion, ServedVersions, UnknownVersion, VersionBounds};
pub use command::Command;
pub use event::{Event, Origin};
pub use publish::PublishError;
pub use state::State;
pub use treadle_actions_machine as actions;
pub use treadle_estimates as estimates;
pub use treadle_machine::{ActionsConfig, CoreConfig, DaemonEvent, KvConfig, Mode, RolloutConfig};
pub use treadle_memory as memory;
pub use treadle_training_machine as training;
pub use treadle_weights_machine as weights;

use actions::{ActionError, ActionSpec, Actions, Admission, ProgramsView};
use bindings::{BindingMachine, Bindings};
use programs::{Decision, Programs, RunningUse, StepArrival, Worker};
use std::borrow::Cow;
use std::collections::BTreeMap;
use training::{Training, TrainingError, TrainingEvent};
use treadle_machine::{Machine, Notified, deliver};
use treadle_model::{GatewayId, Span, Timestamp, WorkerId, World};
use weights::{WeightsEvent, WeightsMachine};

/// Gateways whose last numbers are remembered; the oldest go first.
const GATEWAYS_KEPT: usize = 4_096;

/// The state machine. See the crate's contract.
#[derive(Clone, Debug)]
pub struct Core {
    now: Timestamp,
    /// Gateways in other processes, with the number of the last event that each has relayed.
    gateways: BTreeMap<GatewayId, u64>,
    programs: Programs,
    bindings: BindingMachine,
    actions: Actions,
    training: Training,
    weights: WeightsMachine,
}

impl Core {
    /// Creates a core with an empty state.
    pub fn new(config: CoreConfig) -> Self {
        Self::with_state(config, State::default())
    }

    /// Restores a core from a snapshot. Settings in the snapshot override `config`.
    pub fn with_state(config: CoreConfig, state: State<'_>) -> Self {
        let bindings = state.bindings.into_owned();
        let programs = Programs::with_state(config, state.programs.into_owned(), &bindings);
        let settings = programs.config().actions.clone();
        Self {
            now: state.now,
            gateways: state.gateways.into_owned(),
            actions: Actions::with_state(settings, state.actions.into_owned()),
            programs,
            training: Training::with_state(
                state.training.into_owned(),
                bindings.jobs_of(World::Shaping),
            ),
            bindings: BindingMachine::with_state(bindings),
            weights: WeightsMachine::with_state(state.weights.into_owned()),
        }
    }

    /// Handles one event at `now`. A time earlier than that of the previous event is replaced by
    /// it.
    pub fn handle(&mut self, now: Timestamp, event: &Event) {
        self.now = self.now.max(now);
        self.bindings.advance(self.now);
        self.programs.advance(self.now);
        self.actions.advance(self.now);
        self.training.advance(self.now);
        self.weights.advance(self.now);
        match event {
            Event::Daemon(event) => {
                self.bindings.daemon(event);
                self.programs.daemon(event);
                self.actions.daemon(event);
                self.training.daemon(event);
                self.weights.daemon(event);
                self.forget_gateways();
            }
            Event::Binding(event) => self.bindings.apply(event, &()),
            Event::Program(event) => self.programs.apply(event, &()),
            Event::Action(event) => self.actions.apply(event, &self.programs),
            Event::Training(event) => self.training.apply(event, &self.programs),
            Event::Weights(event) => self.weights.apply(event, &self.programs),
        }
        self.settle();
    }

    /// Training ends programs, whose memory others may have then.
    fn settle(&mut self) {
        loop {
            self.deliver();
            self.programs.settle(&());
            self.deliver();
            self.actions.settle(&self.programs);
            self.deliver();
            self.training.settle(&self.programs);
            self.deliver();
            self.weights.settle(&self.programs);
            if !self.deliver() {
                return;
            }
        }
    }

    fn deliver(&mut self) -> bool {
        let machines: &mut [&mut dyn Notified] = &mut [
            &mut self.bindings,
            &mut self.programs,
            &mut self.actions,
            &mut self.training,
            &mut self.weights,
        ];
        deliver(machines)
    }

    /// Handles an event that a gateway in another process has numbered. A gateway resends every
    /// event that is not confirmed to be on record; an event that was handled before changes
    /// nothing and gives `false`.
    pub fn handle_relayed(&mut self, now: Timestamp, origin: Origin, event: &Event) -> bool {
        if self.has_handled(origin) {
            return false;
        }
        self.gateways.insert(origin.gateway, origin.number);
        self.handle(now, event);
        true
    }

    /// Whether this gateway event was handled before.
    pub fn has_handled(&self, origin: Origin) -> bool {
        let handled = self.gateways.get(&origin.gateway);
        handled.is_some_and(|last| *last >= origin.number)
    }

    /// The next command to carry out, if any.
    pub fn poll_command(&mut self) -> Option<Command> {
        let of_programs = self.programs.poll_command().map(Command::from);
        of_programs
            .or_else(|| self.actions.poll_command().map(Command::from))
            .or_else(|| self.training.poll_command().map(Command::from))
            .or_else(|| self.weights.poll_command().map(Command::from))
    }

    /// The next decision to record, if any.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.programs.poll_decision()
    }

    /// When [`DaemonEvent::TimerFired`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let deadlines = [
            self.programs.next_deadline(),
            self.actions.next_deadline(),
            self.training.next_deadline(),
            self.weights.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The time of the latest event.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The whole state, as a snapshot stores it.
    pub fn state(&self) -> State<'_> {
        State {
            now: self.now,
            gateways: Cow::Borrowed(&self.gateways),
            programs: Cow::Borrowed(self.programs.state()),
            bindings: Cow::Borrowed(self.bindings.state()),
            actions: Cow::Borrowed(self.actions.state()),
            training: Cow::Borrowed(self.training.state()),
            weights: Cow::Borrowed(self.weights.state()),
        }
    }

    /// Programs, their steps and the workers that serve them.
    pub fn programs(&self) -> &programs::State {
        self.programs.state()
    }

    /// Which policies are bound.
    pub fn bindings(&self) -> &Bindings {
        self.bindings.state()
    }

    /// Actions that treadle runs, and the resources that they use.
    pub fn actions(&self) -> &actions::State {
        self.actions.state()
    }

    /// Training runs: their groups, batches and versions.
    pub fn training(&self) -> &training::State {
        self.training.state()
    }

    /// The weights that engines hold.
    pub fn weights(&self) -> &weights::State {
        self.weights.state()
    }

    /// Checks whether something may happen to the weights of engines. Call this before the event
    /// is handled; a refused one changes nothing.
    ///
    /// # Errors
    /// [`PublishError`], which names the limit or the remedy.
    pub fn check_weights(&self, event: &WeightsEvent) -> Result<(), PublishError> {
        if let WeightsEvent::WeightsPublished { job, weights, .. } = event {
            self.training.check(&TrainingEvent::VersionTold {
                job: job.clone(),
                lineage: weights.lineage,
                version: weights.version,
                digest: None,
            })?;
        }
        Ok(self.weights.check(event, &self.programs)?)
    }

    /// Checks whether something may happen to a training run. Call this before the event is
    /// handled; a refused one changes nothing.
    ///
    /// # Errors
    /// [`TrainingError`], which names the limit or the remedy.
    pub fn check_training(&self, event: &TrainingEvent) -> Result<(), TrainingError> {
        self.training.check(event)?;
        let Some(weights) = self.weights.state().jobs.get(event.job()) else {
            return Ok(());
        };
        match event {
            // Its trainer loads the weights, and reports their versions.
            _ if weights.driven => Ok(()),
            TrainingEvent::VersionTold { job, .. } => Err(TrainingError::Loaded(job.clone())),
            TrainingEvent::JobRemoved { job } if weights.update.is_some() => {
                Err(TrainingError::Loading(job.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether an action may be submitted. Call this before
    /// [`ActionEvent::ActionSubmitted`], and handle that event before the next check; a refused
    /// action changes nothing.
    ///
    /// # Errors
    /// [`ActionError`], which names the field and the remedy.
    pub fn check_action(&self, spec: &ActionSpec) -> Result<Admission, ActionError> {
        self.actions
            .check(spec, |program| self.programs.is_live(program))
    }

    /// Whether a priority policy ranks the steps of a job.
    pub fn ranks(&self, job: &str) -> bool {
        self.programs.ranks(job)
    }

    /// Gateways in other processes, with the number of the last event that each has relayed.
    pub fn gateways(&self) -> &BTreeMap<GatewayId, u64> {
        &self.gateways
    }

    /// The settings.
    pub fn config(&self) -> &CoreConfig {
        self.programs.config()
    }

    /// What a worker's running steps hold; `None` in modes without a ledger.
    pub fn running_use(&self, worker: WorkerId) -> Option<RunningUse> {
        self.programs.running_use(worker)
    }

    /// The number of tokens up to which a worker's ledger is filled.
    pub fn fill_tokens(&self, worker: &Worker) -> u64 {
        self.programs.fill_tokens(worker)
    }

    /// Whether an engine has enough prompts or loads pending that it admits no further program.
    pub fn is_busy(&self, worker: &Worker) -> bool {
        self.programs.is_busy(worker)
    }

    /// How long a program may wait before it goes first.
    pub fn starvation_bound(&self) -> Span {
        self.programs.starvation_bound()
    }

    /// The number of prompt tokens assumed for an arriving step.
    pub fn prompt_tokens(&self, arrival: &StepArrival) -> u64 {
        self.programs.prompt_tokens(arrival)
    }

    /// Panics with the first invariant that does not hold.
    pub fn assert_invariants(&self) {
        self.programs.assert_invariants();
        self.actions.assert_invariants();
        self.training.assert_invariants();
        self.weights.assert_invariants();
    }

    /// Drops the numbers of lost gateways beyond the limit. A lost gateway may reconnect and relay
    /// events that were handled before, so its number is kept as long as there is room.
    fn forget_gateways(&mut self) {
        while self.gateways.len() > GATEWAYS_KEPT {
            self.gateways.pop_first();
        }
    }
}
