//! The driver's thread: it passes inputs and the time to the scheduler, and carries out its
//! outputs.

use super::actions::{ActionInstruction, ActionStart, ActionWork, SubmitAction};
use super::forecasts::ForecastFeed;
use super::journal::{JournalBatch, JournalHandle};
use super::training::Waiting;
use super::{BindInput, Clock, DriverHandle, Input, RestoreInput, Stop, View};
use crate::instruction::Instruction;
use crate::link::ToGateway;
use crate::orders::{Order, Transferred};
use crate::recording::{Recorder, Recording};
use crate::scheduler::{self, ConnectionId, LinkInput, Output, Scheduler};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use treadle_core::actions::{ActionCommand, ActionEvent, Admission};
use treadle_core::weights::WeightsCommand;
use treadle_core::{Core, DaemonEvent, Event};
use treadle_model::{GatewayId, StepId};
use treadle_policy::evaluator::{Notice, PolicyEvaluator};

/// Maximum number of queued inputs; beyond it their senders block.
const INPUTS_MAX: usize = 65_536;
/// Number of inputs after which the changes go to the journal.
const BATCH_INPUTS_MAX: usize = 512;
/// Replay time above which a snapshot is made for the next start.
const REPLAY_MAX: Duration = Duration::from_millis(500);
/// Such snapshots take at most one part in this many of the time for handling events.
const SNAPSHOT_SHARE: u32 = 10;
/// The cause of failed transfers once their executor has ended.
const NO_EXECUTOR: &str = "the executor for KV transfers has ended";

/// The channel to a gateway in another process. Its length is bounded by the gateway's open steps;
/// a connection that does not read it is closed.
pub type GatewaySender = UnboundedSender<ToGateway>;

/// What a driver starts from.
pub struct DriverOptions {
    /// The core, new or recovered.
    pub core: Core,
    /// Position of the latest event in the journal.
    pub seq: u64,
    /// Whether the core is recovered: it is told so before any of its timers, which may be long due.
    pub restarted: bool,
    /// Position of the latest snapshot; 0 for none.
    pub snapshot_seq: u64,
    /// How long the replay of the events after it took.
    pub replay_time: Duration,
    /// The clock.
    pub clock: Clock,
    /// The policies.
    pub policies: PolicyEvaluator,
    /// Where events go; `None` journals nothing.
    pub journal: Option<JournalHandle>,
    /// Events between two snapshots.
    pub snapshot_events: u64,
    /// Where to report programs to be predicted.
    pub forecasts: Option<ForecastFeed>,
    /// The executor of KV transfers; without one, each transfer fails. The channel's length is
    /// bounded by the core, which opens one transfer per program, and ends it before the next.
    pub transfers: Option<UnboundedSender<Order>>,
    /// The executor of actions; without one they wait. The channel's length is bounded by the
    /// actions that the core starts at once.
    pub actions: Option<UnboundedSender<ActionInstruction>>,
    /// Where to report policies that lost their role by their own fault.
    pub notices: Option<UnboundedSender<Notice>>,
}

/// Starts the driver's thread.
pub fn spawn_driver(options: DriverOptions) -> std::io::Result<DriverHandle> {
    let (inputs, received) = sync_channel(INPUTS_MAX);
    let (running, ended) = watch::channel(());
    let (training_changes, changes) = watch::channel(0);
    let (work, wanted) = unbounded_channel();
    let (weights_calls, calls) = unbounded_channel();
    let last_step = options.core.programs().last_step;
    let handle = DriverHandle::new(inputs, last_step, ended, changes, wanted, calls);
    let from = scheduler::Options {
        core: options.core,
        seq: options.seq,
        snapshot_seq: options.snapshot_seq,
        journals: options.journal.is_some(),
        snapshot_events: options.snapshot_events,
        moves_caches: options.transfers.is_some(),
        started: Instant::now(),
    };
    let mut driver = Driver {
        scheduler: Scheduler::new(from, options.policies, ()),
        clock: options.clock,
        journal: options.journal,
        forecasts: options.forecasts,
        transfers: options.transfers,
        actions: options.actions,
        notices: options.notices,
        instructions: HashMap::new(),
        gateways: HashMap::new(),
        training: Waiting::new(training_changes, work),
        weights_calls,
        committed: Vec::new(),
        backlog: Backlog {
            handling: options.replay_time,
            last_snapshot: Duration::ZERO,
        },
    };
    std::thread::Builder::new()
        .name("treadle-driver".into())
        .spawn(move || {
            if options.restarted {
                driver.take_event(Event::Daemon(DaemonEvent::DaemonRestarted), None);
                driver.flush();
            }
            driver.run(&received);
            drop(running);
        })?;
    Ok(handle)
}

pub(super) struct Driver {
    pub(super) scheduler: Scheduler<PolicyEvaluator>,
    clock: Clock,
    journal: Option<JournalHandle>,
    forecasts: Option<ForecastFeed>,
    transfers: Option<UnboundedSender<Order>>,
    actions: Option<UnboundedSender<ActionInstruction>>,
    notices: Option<UnboundedSender<Notice>>,
    instructions: HashMap<StepId, UnboundedSender<Instruction>>,
    gateways: HashMap<ConnectionId, (GatewayId, GatewaySender)>,
    pub(super) training: Waiting,
    pub(super) weights_calls: UnboundedSender<WeightsCommand>,
    /// To be notified once the event with this number is on disk.
    pub(super) committed: Vec<(u64, Recorder)>,
    backlog: Backlog,
}

/// The work that the next start has to replay, as time: handling an event again takes about as
/// long.
struct Backlog {
    /// Time spent on events since the last snapshot.
    handling: Duration,
    /// Duration of the last snapshot.
    last_snapshot: Duration,
}

impl Backlog {
    /// Whether a snapshot is worth its time.
    fn wants_snapshot(&self) -> bool {
        self.handling >= REPLAY_MAX && self.handling >= self.last_snapshot * SNAPSHOT_SHARE
    }
}

impl Driver {
    fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let mut stop = match self.wait(inputs) {
                Ok(Some(input)) => self.take(input),
                Ok(None) => {
                    self.handle(scheduler::Input::Event(Event::Daemon(
                        DaemonEvent::TimerFired,
                    )));
                    None
                }
                Err(_) => return self.flush(),
            };
            for _ in 0..BATCH_INPUTS_MAX {
                let Ok(input) = inputs.try_recv() else { break };
                stop = stop.or(self.take(input));
            }
            self.flush();
            if self.journal.as_ref().is_some_and(JournalHandle::is_closed) {
                // Another scheduler has taken over; handlers that wait here see the end of their
                // channel.
                tracing::error!("the journal can no longer be written; the scheduler stops");
                return;
            }
            if let Some(stopped) = stop {
                if let Some(journal) = &self.journal {
                    if let Some(snapshot) = self.scheduler.snapshot() {
                        journal.snapshot(snapshot);
                    }
                    journal.close();
                }
                let _ = stopped.send(());
                return;
            }
        }
    }

    /// The next input, or nothing once the scheduler's deadline has passed.
    fn wait(&self, inputs: &Receiver<Input>) -> Result<Option<Input>, RecvTimeoutError> {
        let Some(deadline) = self.scheduler.next_deadline() else {
            return inputs
                .recv()
                .map(Some)
                .map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = self.clock.until(deadline);
        if left == Duration::ZERO {
            return Ok(None);
        }
        match inputs.recv_timeout(left) {
            Ok(input) => Ok(Some(input)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(gone @ RecvTimeoutError::Disconnected) => Err(gone),
        }
    }

    fn take_event(&mut self, event: Event, recorder: Option<Recorder>) {
        let seq = self.scheduler.seq() + 1;
        let is_waited_for = matches!(event, Event::Weights(_));
        self.handle(scheduler::Input::Event(event));
        self.committed
            .extend(recorder.map(|recorder| (seq, recorder)));
        if is_waited_for {
            self.training.changed();
        }
    }

    fn take(&mut self, input: Input) -> Option<Stop> {
        match input {
            Input::Schedule(input) => self.handle(*input),
            Input::Event { event, committed } => self.take_event(event, committed),
            Input::Submit {
                arrival,
                live,
                instructions,
            } => {
                self.instructions.insert(arrival.step, instructions);
                self.handle(scheduler::Input::Submit { arrival, live });
            }
            Input::SubmitAction(input) => self.submit_action(*input),
            Input::Train(input) => self.train(*input),
            Input::Publish(input) => self.publish(*input),
            Input::Joined {
                gateway,
                connection,
                sender,
            } => {
                // This drops its channel, which also ends an earlier connection of the same
                // gateway.
                self.gateways.retain(|_, (known, _)| *known != gateway);
                self.gateways.insert(connection, (gateway, sender));
                let joined = LinkInput::Joined {
                    gateway,
                    connection,
                };
                self.handle(scheduler::Input::Link(joined));
            }
            Input::Left(connection) => {
                self.gateways.remove(&connection);
            }
            Input::Read(read) => read(&View {
                core: self.scheduler.core(),
                profiles: self.scheduler.profiles(),
                policies: self.scheduler.policies(),
                seq: self.scheduler.seq(),
                now: self.clock.now(),
            }),
            Input::Record(recorder) => self.committed.push((self.scheduler.seq(), recorder)),
            Input::Bind(input) => {
                let BindInput {
                    event,
                    loaded,
                    done,
                } = *input;
                let bound = self.scheduler.bind(self.clock.now(), &event, loaded);
                let _ = done.send(bound);
                self.carry_out_all();
            }
            Input::Restore(input) => {
                let RestoreInput {
                    world,
                    scope,
                    change,
                } = *input;
                let now_ms = self.clock.now().0 / 1_000;
                let policies = self.scheduler.policies_mut();
                // A change that assigns a role is never refused.
                let _ = policies.change(world, &scope, change, now_ms);
            }
            Input::States(sender) => {
                let now_ms = self.clock.now().0 / 1_000;
                let _ = sender.send(self.scheduler.policies_mut().states(now_ms));
            }
            Input::Stop(stopped) => return Some(stopped),
        }
        None
    }

    pub(super) fn handle(&mut self, input: scheduler::Input) {
        let predicts = self.forecasts.as_ref().is_some_and(ForecastFeed::is_wanted);
        self.scheduler.set_predicts(predicts);
        let began = Instant::now();
        self.scheduler.handle(self.clock.now(), input);
        self.backlog.handling += began.elapsed();
        self.carry_out_all();
    }

    fn carry_out_all(&mut self) {
        while let Some(output) = self.scheduler.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Instruct(step, instruction) => {
                // A handler that is gone has reported, or is about to report, that its client
                // withdrew the step.
                if let Some(handler) = self.instructions.get(&step) {
                    let _ = handler.send(instruction);
                }
            }
            Output::StepOver(step) => {
                self.instructions.remove(&step);
            }
            Output::ToGateway(connection, message) => {
                if let Some((_, sender)) = self.gateways.get(&connection) {
                    let _ = sender.send(message);
                }
            }
            Output::Transfer(order) => self.order(order),
            Output::Observed(observation) => {
                if let Some(feed) = &self.forecasts {
                    feed.send(*observation);
                }
            }
            Output::Action(command) => self.instruct_executor(command),
            Output::Training(command) => self.training.commanded(&command),
            Output::Weights(command) => self.call_engine(command),
            Output::PolicyFailed(notice) => {
                if let Some(notices) = &self.notices {
                    let _ = notices.send(*notice);
                }
            }
        }
    }

    /// Submits an action. It is numbered here, so that no other event comes between its check and
    /// its event.
    fn submit_action(&mut self, input: SubmitAction) {
        let SubmitAction {
            mut spec,
            start_max,
            reply,
            recorder,
        } = input;
        spec.start_by = start_max.map(|after| self.clock.now() + after);
        let admitted = self.scheduler.core().check_action(&spec);
        if let Ok(Admission::New(action)) = admitted {
            let submitted = ActionEvent::ActionSubmitted { action, spec };
            self.handle(scheduler::Input::Event(submitted.into()));
        }
        // An action that was submitted before may not be on record yet either.
        self.committed.push((self.scheduler.seq(), recorder));
        let _ = reply.send(admitted);
    }

    /// Sends an instruction to the executor of actions, which waits until this is on record.
    fn instruct_executor(&mut self, command: ActionCommand) {
        let Some(executor) = &self.actions else {
            return;
        };
        let state = self.scheduler.core().actions();
        let work = match command {
            ActionCommand::StartAction {
                action,
                attempt,
                grants,
                load,
            } => state.action(action).map(|known| {
                ActionWork::Start(Box::new(ActionStart {
                    action,
                    attempt,
                    grants,
                    load,
                    spec: known.spec.clone(),
                }))
            }),
            ActionCommand::StopAction { action, attempt } => {
                Some(ActionWork::Stop { action, attempt })
            }
            ActionCommand::AnswerAction { action } => {
                state.action(action).map(|known| ActionWork::Over {
                    action,
                    attempt: known.attempt,
                    times: known.times(state.now),
                })
            }
            // The scheduler answers this question itself.
            ActionCommand::AskElastic { .. } => None,
        };
        let Some(work) = work else { return };
        let (committed, recorded) = Recording::new();
        self.committed.push((self.scheduler.seq(), committed));
        let _ = executor.send(ActionInstruction { recorded, work });
    }

    fn order(&mut self, order: Order) {
        let Some(transfers) = &self.transfers else {
            return;
        };
        let Err(refused) = transfers.send(order) else {
            return;
        };
        if let Order::Begin {
            transfer_id,
            program,
            work,
            ..
        } = refused.0
        {
            let event = work.failed(program, NO_EXECUTOR.into());
            self.handle(scheduler::Input::Transferred(Transferred {
                transfer_id,
                program,
                event,
            }));
        }
    }

    /// Passes the rows since the last flush to the journal.
    fn flush(&mut self) {
        let records = self.scheduler.take_records();
        let sender = |(gateway, connection, number)| {
            let (_, sender) = self.gateways.get(&connection)?;
            Some((gateway, sender.clone(), number))
        };
        let batch = JournalBatch {
            rows: records.rows,
            committed: std::mem::take(&mut self.committed),
            relayed: records.relayed.into_iter().filter_map(sender).collect(),
        };
        let Some(journal) = &self.journal else {
            // Without a journal, everything is as durable as it will be.
            return batch.notify(&[]);
        };
        if !batch.is_empty() {
            journal.append(batch);
        }
        let began = Instant::now();
        let wanted = || journal.lacks_an_event() || self.backlog.wants_snapshot();
        if let Some(snapshot) = self.scheduler.due_snapshot(wanted) {
            self.backlog = Backlog {
                handling: Duration::ZERO,
                last_snapshot: began.elapsed(),
            };
            journal.snapshot(snapshot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_worth_its_time_before_a_replay_takes_long() {
        let after = |handling_ms, snapshot_ms| Backlog {
            handling: Duration::from_millis(handling_ms),
            last_snapshot: Duration::from_millis(snapshot_ms),
        };
        for (handling_ms, snapshot_ms, wanted) in [
            (100, 0, false),
            (500, 0, true),
            (500, 50, true),
            (500, 100, false),
            (1_000, 100, true),
        ] {
            let backlog = after(handling_ms, snapshot_ms);
            let case = format!("{handling_ms} {snapshot_ms}");
            assert_eq!(backlog.wants_snapshot(), wanted, "{case}");
        }
    }
}
