//! The driver: one thread that owns the scheduler, passes it inputs in one order, carries out its
//! outputs and journals its records.
//!
//! Handlers reach it through [`DriverHandle`]. It never waits for an engine or a client, and waits
//! for the disk only when the journal's channel is full, which limits how far it may run ahead of
//! the disk.

mod actions;
mod captured;
mod clock;
mod forecasts;
mod journal;
mod queries;
mod run;
mod training;
mod weights;

pub(crate) use actions::SubmitAction;
pub use actions::{ActionInstruction, ActionStart, ActionWork, ActionsOverview};
pub use clock::Clock;
pub use forecasts::ForecastFeed;
pub use journal::{JournalBatch, JournalHandle, JournalStatistics, spawn_journal};
pub use queries::{
    JobAccount, LiveProgram, LivePrograms, MemoryAccounts, OpenStep, Overview, WorkerAccount,
};
pub use run::{DriverOptions, GatewaySender, spawn_driver};
pub use training::MemberWork;
pub(crate) use training::Train;
pub(crate) use weights::Publish;

use crate::instruction::{Instruction, LiveLimit};
use crate::orders::Transferred;
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use crate::scheduler::{self, Bound, ConnectionId, LinkInput, Profiles};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot, watch};
use treadle_core::bindings::{BindingEvent, ChangeError};
use treadle_core::programs::StepArrival;
use treadle_core::weights::WeightsCommand;
use treadle_core::{Core, Event};
use treadle_model::{GatewayId, StepId, Timestamp, World};
use treadle_policy::evaluator::{BoundPolicy, Change, PolicyEvaluator, PolicyState, Scope};

/// The state that queries read.
pub(crate) struct View<'a> {
    /// The core.
    core: &'a Core,
    /// Timings of live programs.
    profiles: &'a Profiles,
    /// The policies.
    policies: &'a PolicyEvaluator,
    /// Position of the latest event.
    seq: u64,
    /// The scheduler's clock.
    now: Timestamp,
}

type Reading = Box<dyn FnOnce(&View<'_>) + Send>;

#[allow(
    clippy::large_enum_variant,
    reason = "moved once through a channel; a box would cost every event an allocation"
)]
pub(crate) enum Input {
    /// An input for the scheduler. Boxed, because room for every input in the queue is allocated at
    /// startup.
    Schedule(Box<scheduler::Input>),
    Event {
        event: Event,
        committed: Option<Recorder>,
    },
    Submit {
        arrival: StepArrival,
        live: Option<LiveLimit>,
        instructions: mpsc::UnboundedSender<Instruction>,
    },
    SubmitAction(Box<SubmitAction>),
    Train(Box<Train>),
    Publish(Box<Publish>),
    Read(Reading),
    /// Notified once everything before it is on disk.
    Record(Recorder),
    States(oneshot::Sender<Vec<PolicyState>>),
    Bind(Box<BindInput>),
    /// Only for the policies, as it is already on record.
    Restore(Box<RestoreInput>),
    Joined {
        gateway: GatewayId,
        connection: ConnectionId,
        sender: GatewaySender,
    },
    Left(ConnectionId),
    Stop(Stop),
}

/// Where to report that the driver has stopped.
type Stop = oneshot::Sender<()>;

/// A change of a binding, and where to report the result.
pub(crate) struct BindInput {
    event: BindingEvent,
    loaded: Option<BoundPolicy>,
    done: oneshot::Sender<Result<Bound, ChangeError>>,
}

/// A role that a policy had before a restart.
pub(crate) struct RestoreInput {
    world: World,
    scope: Scope,
    change: Change,
}

/// The handle through which all other code reaches the driver.
#[derive(Clone)]
pub struct DriverHandle {
    inputs: SyncSender<Input>,
    next_step: Arc<AtomicU64>,
    next_connection: Arc<AtomicU64>,
    /// Nothing is ever sent; it closes when the driver's thread ends.
    ended: watch::Receiver<()>,
    /// Counts what happened to training runs since the driver started.
    training_changes: watch::Receiver<u64>,
    /// Members whose rewards are to be computed.
    member_work: Arc<Mutex<Option<mpsc::UnboundedReceiver<MemberWork>>>>,
    /// Calls about weights, to engines.
    weights_calls: Arc<Mutex<Option<mpsc::UnboundedReceiver<WeightsCommand>>>>,
}

impl DriverHandle {
    pub(crate) fn new(
        inputs: SyncSender<Input>,
        last_step: u64,
        ended: watch::Receiver<()>,
        training_changes: watch::Receiver<u64>,
        member_work: mpsc::UnboundedReceiver<MemberWork>,
        weights_calls: mpsc::UnboundedReceiver<WeightsCommand>,
    ) -> Self {
        Self {
            inputs,
            ended,
            training_changes,
            member_work: Arc::new(Mutex::new(Some(member_work))),
            weights_calls: Arc::new(Mutex::new(Some(weights_calls))),
            next_step: Arc::new(AtomicU64::new(last_step + 1)),
            next_connection: Arc::default(),
        }
    }

    /// A fresh step id.
    pub fn step_id(&self) -> StepId {
        StepId(self.next_step.fetch_add(1, Ordering::Relaxed))
    }

    /// Submits a step and returns the channel for its instructions. A new program beyond `live`
    /// never reaches the core.
    pub fn submit(
        &self,
        arrival: StepArrival,
        live: Option<LiveLimit>,
    ) -> Result<mpsc::UnboundedReceiver<Instruction>, DriverStopped> {
        let (instructions, received) = mpsc::unbounded_channel();
        self.send(Input::Submit {
            arrival,
            live,
            instructions,
        })?;
        Ok(received)
    }

    /// Queues an event; it is handled soon and committed later.
    pub fn event(&self, event: Event) {
        // After a stop the event no longer matters.
        let _ = self.send(Input::Event {
            event,
            committed: None,
        });
    }

    /// Queues an event and waits until it is on disk.
    pub async fn event_committed(&self, event: Event) -> Result<(), NotRecorded> {
        self.event_to_record(event).await
    }

    /// Queues an event, and returns a future that completes once it is on disk, or fails if it
    /// never will be.
    pub fn event_to_record(&self, event: Event) -> Recording {
        let (committed, done) = Recording::new();
        // If the driver has stopped, the recorder is dropped.
        let _ = self.send(Input::Event {
            event,
            committed: Some(committed),
        });
        done
    }

    /// Completes once everything queued before is on disk, or fails if it never will be.
    pub async fn recorded(&self) -> Result<(), DriverStopped> {
        let (recorder, done) = Recording::new();
        self.send(Input::Record(recorder))?;
        done.await.map_err(|_| DriverStopped)
    }

    /// Connects a gateway in another process.
    pub fn join(
        &self,
        gateway: GatewayId,
        sender: GatewaySender,
    ) -> Result<ConnectionId, DriverStopped> {
        let connection = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        self.send(Input::Joined {
            gateway,
            connection,
            sender,
        })?;
        Ok(connection)
    }

    /// Queues an input about a gateway in another process.
    pub fn link(&self, input: LinkInput) -> Result<(), DriverStopped> {
        let left = match &input {
            LinkInput::Left { connection, .. } => Some(*connection),
            _ => None,
        };
        self.schedule(scheduler::Input::Link(input))?;
        left.map_or(Ok(()), |connection| self.send(Input::Left(connection)))
    }

    /// Queues the result of a transfer.
    pub fn transferred(&self, done: Transferred) {
        let _ = self.schedule(scheduler::Input::Transferred(done));
    }

    /// Reads from the state between two events.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, DriverStopped> {
        let (sender, answer) = oneshot::channel();
        self.send(Input::Read(Box::new(move |view| {
            let _ = sender.send(read(view));
        })))?;
        answer.await.map_err(|_| DriverStopped)
    }

    /// Changes a binding between two decisions. It is on record once [`Self::recorded`] completes.
    pub async fn bind(
        &self,
        event: BindingEvent,
        loaded: Option<BoundPolicy>,
    ) -> Result<Result<Bound, ChangeError>, DriverStopped> {
        let (done, bound) = oneshot::channel();
        let input = BindInput {
            event,
            loaded,
            done,
        };
        self.send(Input::Bind(Box::new(input)))?;
        bound.await.map_err(|_| DriverStopped)
    }

    /// Gives a policy the role that it had before a restart.
    pub fn restore(&self, world: World, scope: Scope, change: Change) -> Result<(), DriverStopped> {
        self.send(Input::Restore(Box::new(RestoreInput {
            world,
            scope,
            change,
        })))
    }

    /// Queues forecasts for programs.
    pub fn expect(&self, forecasts: Vec<scheduler::Expected>) -> Result<(), DriverStopped> {
        self.schedule(scheduler::Input::Forecasts(forecasts))
    }

    /// The stored and learnt state of the active policies.
    pub async fn states(&self) -> Result<Vec<PolicyState>, DriverStopped> {
        let (sender, states) = oneshot::channel();
        self.send(Input::States(sender))?;
        states.await.map_err(|_| DriverStopped)
    }

    /// Stops the driver once everything it has handled is on disk.
    pub async fn stop(&self) {
        let (stopped, done) = oneshot::channel();
        if self.send(Input::Stop(stopped)).is_ok() {
            let _ = done.await;
        }
    }

    /// Completes once the driver's thread has ended, for whatever reason.
    pub async fn stopped(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    fn schedule(&self, input: scheduler::Input) -> Result<(), DriverStopped> {
        self.send(Input::Schedule(Box::new(input)))
    }

    fn send(&self, input: Input) -> Result<(), DriverStopped> {
        let input = match self.inputs.try_send(input) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(_)) => return Err(DriverStopped),
            Err(TrySendError::Full(input)) => input,
        };
        // The driver waits for the disk. Threads that wait for the driver must not be those that
        // the journal's writer needs.
        let send = || self.inputs.send(input).map_err(|_| DriverStopped);
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavor {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(send),
            _ => send(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for every input in the queue is allocated at startup: 64 Ki times this.
    #[test]
    fn an_input_is_small() {
        assert!(size_of::<Input>() <= 256, "{}", size_of::<Input>());
    }
}
