//! The scheduler as a state machine: no thread, no clock, no socket. Each input comes with the
//! time, and the results are [`Output`]s and rows for the journal. The daemon's thread
//! ([`crate::driver`]) and the deterministic simulation drive the same one.

mod actions;
mod bind;
mod commands;
mod links;
mod observation;
mod policies;
mod profile;
mod projection;
mod step_annotations;
mod transfers;

pub use bind::Bound;
pub use links::{ConnectionId, LinkInput};
pub use observation::{Expected, Moment, Observation};
pub use policies::{Handled, Observer, Policies};
pub use profile::{Profile, Profiles};

use crate::instruction::{Instruction, LiveLimit};
use crate::link::ToGateway;
use crate::orders::{Order, Transferred};
use links::Links;
use observation::Returned;
use projection::Subject;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use step_annotations::StepAnnotations;
use transfers::Transfers;
use treadle_core::actions::{ActionCommand, ActionEvent};
use treadle_core::programs::{ProgramEvent, Refusal, StepArrival};
use treadle_core::training::TrainingCommand;
use treadle_core::weights::WeightsCommand;
use treadle_core::{Command, Core, Event, Origin};
use treadle_model::{ActionId, GatewayId, ProgramId, StepId, Timestamp, WorkerId};
use treadle_policy::evaluator::Notice;
use treadle_store::{Batch, Snapshot};

/// Minimum number of events between two snapshots, even for early ones.
const SNAPSHOT_EVENTS_MIN: u64 = 1_000;

/// An input to the scheduler.
#[allow(
    clippy::large_enum_variant,
    reason = "moved once; a box would cost every event an allocation"
)]
pub enum Input {
    /// An event.
    Event(Event),
    /// A step arrived at a gateway in this process. A new program beyond `live` never reaches the
    /// core.
    Submit {
        /// The step.
        arrival: StepArrival,
        /// The limit on its tenant's live programs.
        live: Option<LiveLimit>,
    },
    /// Forecasts for programs.
    Forecasts(Vec<Expected>),
    /// An input about a gateway in another process.
    Link(LinkInput),
    /// The result of a transfer.
    Transferred(Transferred),
}

/// An output of the scheduler.
#[derive(Debug)]
pub enum Output {
    /// An instruction about a step of a gateway in this process.
    Instruct(StepId, Instruction),
    /// There are no more instructions about this step.
    StepOver(StepId),
    /// A message for a gateway in another process.
    ToGateway(ConnectionId, ToGateway),
    /// An order for the transfer executor.
    Transfer(Order),
    /// A program to be predicted.
    Observed(Box<Observation>),
    /// A command for the executor of actions.
    Action(ActionCommand),
    /// A call to an engine, about its weights.
    Weights(WeightsCommand),
    /// A command for a training run.
    Training(TrainingCommand),
    /// A policy that lost its role by its own fault.
    PolicyFailed(Box<Notice>),
}

/// Rows to put on record.
#[derive(Default)]
pub struct Records {
    /// The rows.
    pub rows: Batch,
    /// Gateways in other processes to notify once the rows are on disk, with the number of their
    /// last event.
    pub relayed: Vec<(GatewayId, ConnectionId, u64)>,
}

/// What a scheduler starts from.
pub struct Options {
    /// The core, new or recovered.
    pub core: Core,
    /// Position of the latest event in the journal.
    pub seq: u64,
    /// Position of the latest snapshot; 0 for none.
    pub snapshot_seq: u64,
    /// Whether to produce rows for the journal.
    pub journals: bool,
    /// Events between two snapshots.
    pub snapshot_events: u64,
    /// Whether there is a transfer executor; without one, each transfer fails.
    pub moves_caches: bool,
    /// The present monotonic time.
    pub started: std::time::Instant,
}

/// The scheduler: the core, the policies, links to gateways, transfers, and pending journal rows.
pub struct Scheduler<P, O = ()> {
    core: Core,
    policies: P,
    observer: O,
    seq: u64,
    snapshot_seq: u64,
    snapshot_events: u64,
    journals: bool,
    /// Whether programs are to be predicted.
    predicts: bool,
    /// Programs whose last tool call has returned.
    returned: Returned,
    annotations: StepAnnotations,
    transfers: Transfers,
    links: Links,
    urls: HashMap<WorkerId, Arc<str>>,
    profiles: Profiles,
    rows: Batch,
    dirty: BTreeSet<ProgramId>,
    dirty_actions: BTreeSet<ActionId>,
    outputs: VecDeque<Output>,
}

impl<P: Policies, O: Observer> Scheduler<P, O> {
    /// Creates a scheduler from `options`.
    pub fn new(options: Options, policies: P, observer: O) -> Self {
        Self {
            core: options.core,
            policies,
            observer,
            seq: options.seq,
            snapshot_seq: options.snapshot_seq.min(options.seq),
            snapshot_events: options.snapshot_events.max(1),
            journals: options.journals,
            predicts: false,
            returned: Returned::default(),
            annotations: StepAnnotations::default(),
            transfers: Transfers::new(options.moves_caches),
            links: Links::new(options.started),
            urls: HashMap::new(),
            profiles: Profiles::default(),
            rows: Batch::default(),
            dirty: BTreeSet::new(),
            dirty_actions: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The policies.
    pub fn policies(&self) -> &P {
        &self.policies
    }

    /// The policies, mutably, to change a binding between two decisions.
    pub fn policies_mut(&mut self) -> &mut P {
        &mut self.policies
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, mutably.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Timings of live programs.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Position of the latest event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Sets whether programs are to be predicted.
    pub fn set_predicts(&mut self, predicts: bool) {
        self.predicts = predicts;
    }

    /// When [`DaemonEvent::TimerFired`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.core.next_deadline()
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Handles an input at `now`.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Event(event) => self.handle_event(now, event, None),
            Input::Submit { arrival, .. } if self.is_cut(&arrival) => {
                let refused = Instruction::Refuse(Refusal::ProgramReleased);
                self.instruct(arrival.step, refused);
                self.outputs.push_back(Output::StepOver(arrival.step));
            }
            Input::Submit { arrival, live } => match live.filter(|l| self.is_beyond(&arrival, l)) {
                Some(LiveLimit { programs_max, .. }) => {
                    let refused = Instruction::RefuseLive { programs_max };
                    self.instruct(arrival.step, refused);
                    self.outputs.push_back(Output::StepOver(arrival.step));
                }
                None => self.handle_event(
                    now,
                    Event::Program(ProgramEvent::StepArrived(arrival)),
                    None,
                ),
            },
            Input::Forecasts(forecasts) => {
                for expected in forecasts {
                    // The program may be over by now.
                    if self.core.programs().live.contains_key(&expected.program) {
                        self.rows
                            .steps
                            .extend(self.annotations.predicted(&expected));
                        self.policies.expect(expected.program, expected.forecast);
                    }
                }
            }
            Input::Link(input) => self.handle_link(now, input),
            Input::Transferred(done) => {
                if let Some(event) = self.transfers.take(done, &mut self.outputs) {
                    self.handle_event(now, event, None);
                }
            }
        }
    }

    /// Whether a step is of a member that was cut before it came here: it would open a program
    /// that nobody trains.
    fn is_cut(&self, arrival: &StepArrival) -> bool {
        let run = self.core.training().jobs.get(&arrival.job);
        let is_open = self.core.programs().keys.contains_key(&arrival.program);
        !is_open && run.is_some_and(|run| run.dropped.contains(&arrival.program))
    }

    /// Whether a step would open a program beyond its tenant's limit.
    fn is_beyond(&self, arrival: &StepArrival, live: &LiveLimit) -> bool {
        let state = self.core.programs();
        !state.keys.contains_key(&arrival.program)
            && state.estimates.jobs().live_programs(live.tenant.prefix()) >= live.programs_max
    }

    /// Handles an event, which a gateway in another process may have relayed, and the answers to
    /// every question that it raised. All external events pass through here.
    fn handle_event(&mut self, now: Timestamp, event: Event, origin: Option<Origin>) {
        let mut answers = VecDeque::new();
        self.handle_one(now, &event.within_bounds(), origin, &mut answers);
        self.handle_answers(now, answers);
    }

    /// Handles several events before any question that they raise is answered.
    fn handle_together(&mut self, now: Timestamp, events: Vec<Event>) {
        let mut answers = VecDeque::new();
        for event in events {
            self.handle_one(now, &event.within_bounds(), None, &mut answers);
        }
        self.handle_answers(now, answers);
    }

    fn handle_answers(&mut self, now: Timestamp, mut answers: VecDeque<Event>) {
        while let Some(answer) = answers.pop_front() {
            self.handle_one(now, &answer, None, &mut answers);
        }
    }

    fn handle_one(
        &mut self,
        now: Timestamp,
        event: &Event,
        origin: Option<Origin>,
        answers: &mut VecDeque<Event>,
    ) {
        let subject = Subject::of(&self.core, event);
        self.dirty
            .extend(projection::changed_beside(&self.core, event));
        self.profiles.observe(&self.core, event, now);
        self.observe_step(event, now);
        self.transfers.observe(&self.core, event, &mut self.outputs);
        if self.journals {
            let predicts = self.predicts;
            self.annotations
                .step_ends(&self.core, event, now, predicts, &mut self.rows);
        }
        let observed = self
            .predicts
            .then(|| self.returned.moment(&self.core, event))
            .flatten();
        match origin {
            // The caller has checked that it was not handled before.
            Some(origin) => {
                self.core.handle_relayed(now, origin, event);
            }
            None => self.core.handle(now, event),
        }
        self.seq += 1;
        if let Some((program, moment)) = observed
            && let Some(program) = self.core.programs().live.get(&program)
        {
            let mut observed = Observation::of(program, moment, now);
            if let Event::Program(ProgramEvent::StepFinished { step, .. }) = event {
                observed.after = Some(*step);
            }
            self.outputs.push_back(Output::Observed(Box::new(observed)));
        }
        self.record(now, event, origin, &subject);
        let mut commands: Vec<Command> = std::iter::from_fn(|| self.core.poll_command()).collect();
        self.record_decisions(now, event, origin, &mut commands);
        self.dirty.extend(subject.program);
        self.note_actions(event, &commands);
        for command in commands {
            self.carry_out(command, now, answers);
        }
        while let Some(notice) = self.policies.poll_notice() {
            answers.push_back(Event::Binding(notice.event()));
            self.outputs
                .push_back(Output::PolicyFailed(Box::new(notice)));
        }
        let step_is_over = |step: &StepId| !self.core.programs().steps.contains_key(step);
        if let Some(step) = subject.step.filter(step_is_over) {
            self.outputs.push_back(Output::StepOver(step));
        }
    }

    /// Reports to the policies the duration of a step that is about to end.
    fn observe_step(&mut self, event: &Event, now: Timestamp) {
        if let Event::Program(ProgramEvent::StepFinished { step, .. }) = event
            && let Some(step) = self.core.programs().steps.get(step)
        {
            let step_ms = now.since(step.arrived_at).millis() as f64;
            self.policies
                .observe_step(&self.core, step.program, step_ms);
        }
    }

    fn record(&mut self, now: Timestamp, event: &Event, origin: Option<Origin>, subject: &Subject) {
        if !self.journals {
            return;
        }
        let row = projection::event_row(self.seq, now, event, origin, subject);
        self.rows.events.push(row);
        let worker = subject.worker;
        if let Some(worker) = worker.and_then(|id| self.core.programs().workers.get(&id)) {
            self.rows.workers.push(projection::worker_row(worker, now));
        }
        self.rows
            .rewards
            .extend(projection::reward_row(event, subject));
        if let Event::Binding(change) = event {
            let set = projection::binding_set(&self.core, change);
            self.rows.bindings.push(set);
        }
    }

    /// Notes the actions whose rows have to be rewritten.
    fn note_actions(&mut self, event: &Event, commands: &[Command]) {
        if !self.journals {
            return;
        }
        if let Event::Action(event) = event {
            self.dirty_actions.extend(actions::about(event));
            if matches!(event, ActionEvent::ActionsRecovered) {
                self.dirty_actions.extend(self.core.actions().live.keys());
            }
        }
        let commanded = commands.iter().filter_map(|command| match command {
            Command::Action(command) => actions::commanded(command),
            Command::Program(_) | Command::Training(_) | Command::Weights(_) => None,
        });
        self.dirty_actions.extend(commanded);
    }

    /// Records the core's decisions, and passes event and decisions to the observer.
    fn record_decisions(
        &mut self,
        now: Timestamp,
        event: &Event,
        origin: Option<Origin>,
        commands: &mut Vec<Command>,
    ) {
        let decisions: Vec<_> = std::iter::from_fn(|| self.core.poll_decision()).collect();
        for decision in &decisions {
            self.dirty.insert(decision.program);
            if self.journals {
                let row = projection::decision_row(self.seq, decision);
                self.rows.decisions.push(row);
            }
        }
        let handled = Handled {
            seq: self.seq,
            at: now,
            event,
            origin,
            decisions: &decisions,
        };
        self.observer.handled(&mut self.core, &handled, commands);
    }

    /// The rows of everything handled since the last call.
    pub fn take_records(&mut self) -> Records {
        let now = self.core.now();
        for program in mem::take(&mut self.dirty) {
            let known = self.core.programs().live.get(&program);
            if let Some(p) = known.filter(|_| self.journals) {
                let row = projection::program_row(p, &self.core, now, None);
                self.rows.programs.push(row);
            }
        }
        for action in mem::take(&mut self.dirty_actions) {
            let known = self.core.actions().action(action);
            self.rows
                .actions
                .extend(known.map(|known| actions::row(action, known)));
        }
        Records {
            rows: mem::take(&mut self.rows),
            relayed: self.links.take_relayed(),
        }
    }

    /// A snapshot, if one is due. It is due early if `is_wanted`: without it, a replay would lack
    /// an event or take too long.
    pub fn due_snapshot(&mut self, is_wanted: impl FnOnce() -> bool) -> Option<Snapshot> {
        let events = self.seq - self.snapshot_seq;
        let is_due =
            events >= self.snapshot_events || (events >= SNAPSHOT_EVENTS_MIN && is_wanted());
        is_due.then(|| self.snapshot()).flatten()
    }

    /// A snapshot of the state after the latest event.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        self.snapshot_seq = self.seq;
        match treadle_core_json::write_state(&self.core.state()) {
            Ok(state) => Some(Snapshot {
                seq: self.seq,
                saved_at_us: self.core.now().0,
                state,
            }),
            Err(error) => {
                tracing::error!(%error, "serializing the state for a snapshot failed");
                None
            }
        }
    }
}
