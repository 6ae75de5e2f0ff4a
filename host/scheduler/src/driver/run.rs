//! The driver's thread.

use super::forecasts::{ForecastFeed, ended_step, opened_program};
use super::journal::{JournalBatch, JournalHandle};
use super::links::Links;
use super::profile::Profiles;
use super::projection::{self, Subject};
use super::transfers::Transfers;
use super::{ChangeInput, Clock, DriverHandle, Input, View};
use crate::instruction::{Dispatch, Instruction, LiveLimit};
use crate::orders::TransferFeed;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use treadle_core::{Command, Core, Event, Mode, Origin, StepArrival};
use treadle_model::{EngineKind, GatewayId, ProgramId, StepId, Timestamp, WorkerId};
use treadle_policy::evaluator::PolicyDesk;

/// Inputs that may wait for the driver; beyond it their senders are held up.
const INPUTS_MAX: usize = 65_536;
/// Inputs handled before what they changed is handed to the journal.
const BATCH_INPUTS_MAX: usize = 512;

/// Fewest events between two snapshots, even where a replay would lack one.
const SNAPSHOT_EVENTS_MIN: u64 = 1_000;

/// What a driver starts from.
pub struct DriverOptions {
    /// The core, new or recovered.
    pub core: Core,
    /// Position of the latest event in the journal.
    pub seq: u64,
    /// The clock.
    pub clock: Clock,
    /// The policies.
    pub policies: PolicyDesk,
    /// Where events go; `None` journals nothing.
    pub journal: Option<JournalHandle>,
    /// Events between two snapshots.
    pub snapshot_events: u64,
    /// Where to tell of programs whose future is to be predicted.
    pub forecasts: Option<ForecastFeed>,
    /// Who moves KV caches; without one each wish fails.
    pub transfers: Option<TransferFeed>,
}

/// Starts the driver's thread.
pub fn spawn_driver(options: DriverOptions) -> std::io::Result<DriverHandle> {
    let (inputs, received) = sync_channel(INPUTS_MAX);
    let (running, ended) = watch::channel(());
    let handle = DriverHandle::new(inputs, options.core.state().last_step, ended);
    let driver = Driver {
        core: options.core,
        clock: options.clock,
        policies: options.policies,
        journal: options.journal,
        seq: options.seq,
        snapshot_seq: options.seq,
        snapshot_events: options.snapshot_events.max(1),
        forecasts: options.forecasts,
        transfers: Transfers::new(options.transfers),
        instructions: HashMap::new(),
        links: Links::default(),
        urls: HashMap::new(),
        profiles: Profiles::default(),
        batch: JournalBatch::default(),
        dirty: BTreeSet::new(),
    };
    std::thread::Builder::new()
        .name("treadle-driver".into())
        .spawn(move || {
            driver.run(&received);
            drop(running);
        })?;
    Ok(handle)
}

pub(super) struct Driver {
    pub(super) core: Core,
    clock: Clock,
    policies: PolicyDesk,
    journal: Option<JournalHandle>,
    seq: u64,
    snapshot_seq: u64,
    snapshot_events: u64,
    forecasts: Option<ForecastFeed>,
    pub(super) transfers: Transfers,
    instructions: HashMap<StepId, mpsc::UnboundedSender<Instruction>>,
    pub(super) links: Links,
    urls: HashMap<WorkerId, Arc<str>>,
    profiles: Profiles,
    batch: JournalBatch,
    dirty: BTreeSet<ProgramId>,
}

impl Driver {
    fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let stop = match self.wait(inputs) {
                Ok(Some(input)) => self.take(input),
                Ok(None) => {
                    self.handle(Event::TimerFired);
                    None
                }
                Err(_) => return self.flush(),
            };
            let mut stop = stop;
            for _ in 0..BATCH_INPUTS_MAX {
                let Ok(input) = inputs.try_recv() else { break };
                stop = stop.or(self.take(input));
            }
            self.flush();
            if self.journal.as_ref().is_some_and(JournalHandle::is_closed) {
                // Another scheduler has taken over; whoever waits here sees the
                // end of its channel.
                tracing::error!("nothing can be put on record any more; the scheduler ends");
                return;
            }
            if let Some(stopped) = stop {
                self.save_snapshot();
                if let Some(journal) = &self.journal {
                    journal.close();
                }
                let _ = stopped.send(());
                return;
            }
        }
    }

    /// The next input, or nothing once the core's deadline has passed.
    fn wait(&self, inputs: &Receiver<Input>) -> Result<Option<Input>, RecvTimeoutError> {
        let Some(deadline) = self.core.next_deadline() else {
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

    fn take(&mut self, input: Input) -> Option<oneshot::Sender<()>> {
        match input {
            Input::Event { event, committed } => {
                let seq = self.seq + 1;
                self.handle(event);
                let committed = committed.map(|recorder| (seq, recorder));
                self.batch.committed.extend(committed);
            }
            Input::Submit {
                arrival,
                live,
                instructions,
            } => match live.filter(|live| self.is_beyond(&arrival, live)) {
                Some(LiveLimit { programs_max, .. }) => {
                    let _ = instructions.send(Instruction::RefuseLive { programs_max });
                }
                None => self.submit(arrival, instructions),
            },
            Input::Read(read) => read(&View {
                core: &self.core,
                profiles: &self.profiles,
                policies: &self.policies,
                seq: self.seq,
                now: self.clock.now(),
            }),
            Input::Record(recorder) => self.batch.committed.push((self.seq, recorder)),
            Input::Change(input) => {
                let ChangeInput {
                    world,
                    scope,
                    change,
                    done,
                } = *input;
                let now_ms = self.clock.now().0 / 1_000;
                let _ = done.send(self.policies.change(world, &scope, change, now_ms));
            }
            Input::Forecasts(forecasts) => {
                for (program, forecast) in forecasts {
                    // It may be over by now.
                    if self.core.state().programs.contains_key(&program) {
                        self.policies.expect(program, forecast);
                    }
                }
            }
            Input::States(sender) => {
                let now_ms = self.clock.now().0 / 1_000;
                let _ = sender.send(self.policies.states(now_ms));
            }
            Input::Link(input) => self.take_link(*input),
            Input::Transferred(done) => {
                if let Some(event) = self.transfers.take(*done) {
                    self.handle(event);
                }
            }
            Input::Stop(stopped) => return Some(stopped),
        }
        None
    }

    /// Whether a step would open a program beyond a limit.
    pub(super) fn is_beyond(&self, arrival: &StepArrival, live: &LiveLimit) -> bool {
        let keys = &self.core.state().keys;
        if keys.contains_key(&arrival.program) {
            return false;
        }
        let max = usize::try_from(live.programs_max).unwrap_or(usize::MAX);
        let prefix = live.tenant.prefix();
        let own = |key: &&str| live.tenant.outside(key).is_some();
        let keys = keys.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let alike = keys.map(|(key, _)| &**key);
        // Names of one tenant stand together, save those of the default one.
        let alike = alike.take_while(|key| prefix.is_empty() || own(key));
        alike.filter(own).take(max).count() >= max
    }

    fn submit(&mut self, arrival: StepArrival, instructions: mpsc::UnboundedSender<Instruction>) {
        self.instructions.insert(arrival.step, instructions);
        self.handle(Event::StepArrived(arrival));
    }

    /// Handles an event and the answers to every question that it raised.
    pub(super) fn handle(&mut self, event: Event) {
        self.handle_from(event, None);
    }

    /// The same for an event that a gateway in another process may have relayed.
    /// All that comes from outside comes in here.
    pub(super) fn handle_from(&mut self, event: Event, origin: Option<Origin>) {
        let mut answers = VecDeque::new();
        self.handle_one(&event.within_bounds(), origin, &mut answers);
        self.handle_answers(answers);
    }

    /// Handles events before any question that they raise is answered.
    pub(super) fn handle_together(&mut self, events: Vec<Event>) {
        let mut answers = VecDeque::new();
        for event in events {
            self.handle_one(&event.within_bounds(), None, &mut answers);
        }
        self.handle_answers(answers);
    }

    fn handle_answers(&mut self, mut answers: VecDeque<Event>) {
        while let Some(answer) = answers.pop_front() {
            self.handle_one(&answer, None, &mut answers);
        }
    }

    fn handle_one(&mut self, event: &Event, origin: Option<Origin>, answers: &mut VecDeque<Event>) {
        let now = self.clock.now();
        let subject = Subject::of(&self.core, event);
        self.profiles.observe(&self.core, event, now);
        self.observe_step(event, now);
        self.transfers.observe(&self.core, event);
        let rows = self
            .journal
            .is_some()
            .then(|| projection::step_rows(&self.core, event, now));
        let ended = ended_step(event).and_then(|step| self.core.state().steps.get(&step));
        let ended = ended.map(|step| step.program);
        let opened = opened_program(&self.core, event);
        match origin {
            // The caller has seen that it was not handled before.
            Some(origin) => {
                self.core.handle_relayed(now, origin, event);
            }
            None => self.core.handle(now, event),
        }
        self.seq += 1;
        if let (Some(program), Some(feed)) = (ended.or(opened), &self.forecasts) {
            feed.sighted(&self.core, &self.profiles, program);
        }
        let step_is_over = subject
            .step
            .filter(|s| !self.core.state().steps.contains_key(s));
        self.dirty.extend(subject.program);
        self.record(now, event, origin, &subject, rows.unwrap_or_default());
        while let Some(command) = self.core.poll_command() {
            self.carry_out(command, now, answers);
        }
        if let Some(step) = step_is_over {
            self.instructions.remove(&step);
        }
        while let Some(decision) = self.core.poll_decision() {
            self.dirty.insert(decision.program);
            if self.journal.is_some() {
                self.batch
                    .rows
                    .decisions
                    .push(projection::decision_row(self.seq, &decision));
            }
        }
    }

    /// Tells the policies how long a step took that is about to end.
    fn observe_step(&mut self, event: &Event, now: Timestamp) {
        if let Event::StepFinished { step, .. } = event
            && let Some(step) = self.core.state().steps.get(step)
        {
            let step_ms = now.since(step.arrived_at).millis() as f64;
            self.policies
                .observe_step(&self.core, step.program, step_ms);
        }
    }

    fn record(
        &mut self,
        now: Timestamp,
        event: &Event,
        origin: Option<Origin>,
        subject: &Subject,
        steps: Vec<treadle_store::StepRow>,
    ) {
        if self.journal.is_none() {
            return;
        }
        self.batch.rows.steps.extend(steps);
        let row = projection::event_row(self.seq, now, event, origin, subject);
        self.batch.rows.events.push(row);
        if let Some(worker) = subject
            .worker
            .and_then(|id| self.core.state().workers.get(&id))
        {
            self.batch
                .rows
                .workers
                .push(projection::worker_row(worker, now));
        }
    }

    fn carry_out(&mut self, command: Command, now: Timestamp, answers: &mut VecDeque<Event>) {
        match command {
            Command::DispatchStep {
                step,
                worker,
                slot,
                priority,
            } => {
                if let Some(dispatch) = self.dispatch(worker, slot, priority) {
                    self.instruct(step, Instruction::Dispatch(dispatch));
                }
            }
            Command::PreemptStep { step } => self.instruct(step, Instruction::Preempt),
            Command::MigrateProgram { .. }
            | Command::OffloadProgram { .. }
            | Command::LoadProgram { .. }
            | Command::CancelTransfer { .. }
            | Command::DropCopy { .. } => {
                answers.extend(self.transfers.order(&self.core, command));
            }
            Command::RefuseStep { step, refusal } => {
                self.instruct(step, Instruction::Refuse(refusal));
                self.instructions.remove(&step);
            }
            Command::AbortStep { step, cause } => self.instruct(step, Instruction::Abort(cause)),
            Command::AskPolicy { ask, question, .. } => {
                let answer = self.policies.answer(&self.core, &question, now.0 / 1_000);
                answers.push_back(Event::PolicyAnswered {
                    ask,
                    policy: answer.policy,
                    verdict: answer.verdict,
                    voices: answer.voices,
                });
            }
            Command::ForgetProgram { program } => {
                if let Some(feed) = &self.forecasts {
                    feed.program_ended(&program, &self.profiles);
                }
                self.profiles.forget(&program.key);
                self.transfers.forget(&program);
                self.policies.forget(program.id);
                self.dirty.remove(&program.id);
                if self.journal.is_some() {
                    let row = projection::program_row(&program, &self.core, now, Some("released"));
                    self.batch.rows.programs.push(row);
                }
            }
        }
    }

    fn instruct(&self, step: StepId, instruction: Instruction) {
        if step.gateway() != GatewayId::LOCAL {
            return self.links.instruct(step, instruction);
        }
        // A handler that is gone has reported, or is about to report, that its
        // client withdrew the step.
        if let Some(handler) = self.instructions.get(&step) {
            let _ = handler.send(instruction);
        }
    }

    pub(super) fn dispatch(
        &mut self,
        worker: WorkerId,
        slot: Option<u32>,
        priority: i32,
    ) -> Option<Dispatch> {
        let config = self.core.config();
        let is_rollout = config.mode == Mode::Rollout;
        let has_lines = is_rollout && config.rollout.engine_steps_max > 0;
        let w = self.core.state().workers.get(&worker)?;
        let url = self
            .urls
            .entry(worker)
            .or_insert_with(|| Arc::from(w.url.trim_end_matches('/')))
            .clone();
        Some(Dispatch {
            worker,
            url,
            engine: w.engine,
            slot,
            priority: is_rollout.then_some(priority),
            interruptible: has_lines && w.engine != EngineKind::Openai,
        })
    }

    /// Hands to the journal what was seen since the last time.
    fn flush(&mut self) {
        self.batch.relayed = self.links.take_relayed();
        let Some(journal) = &self.journal else {
            // Nothing is kept, so everything is as durable as it will be.
            std::mem::take(&mut self.batch).tell(&[]);
            return self.dirty.clear();
        };
        let now = self.core.state().now;
        for program in std::mem::take(&mut self.dirty) {
            if let Some(p) = self.core.state().programs.get(&program) {
                self.batch
                    .rows
                    .programs
                    .push(projection::program_row(p, &self.core, now, None));
            }
        }
        if !self.batch.is_empty() {
            journal.append(std::mem::take(&mut self.batch));
        }
        let events = self.seq - self.snapshot_seq;
        let is_due = events >= self.snapshot_events
            || (events >= SNAPSHOT_EVENTS_MIN && journal.lacks_an_event());
        if is_due {
            self.save_snapshot();
        }
    }

    fn save_snapshot(&mut self) {
        self.snapshot_seq = self.seq;
        if let Some(journal) = &self.journal {
            match serde_json::to_vec(self.core.state()) {
                Ok(state) => journal.snapshot(self.seq, self.core.state().now.0, state),
                Err(error) => tracing::error!(%error, "the state could not be written down"),
            }
        }
    }
}
