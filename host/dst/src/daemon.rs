//! The daemon: it owns the core, journals what it handles, carries out what
//! it decides, and can be killed between any two instructions.

use super::Scene;
use super::calendar::Happening;
use super::database::{Row, Snapshot};
use super::gateway::{Inbox, Order, Report, Told};
use super::observed::Observed;
use super::outcome::{Checked, broken};
use super::sabotage::Sabotage;
use super::schedule::FaultKind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use treadle_core::{Command, Event, Origin};
use treadle_model::{GatewayId, StepId, Timestamp};

/// Events in one transaction.
const TRANSACTION_EVENTS_MAX: usize = 64;

/// Who waits for an event to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AckTo {
    /// An agent that says goodbye.
    Agent(usize),
    /// The owner of an engine, and whether he wants it.
    Owner(usize, u64),
}

/// An event, where it came from, and who waits for it.
type Input = (Event, Option<Origin>, Option<AckTo>);

/// A running daemon.
pub(crate) struct Daemon {
    pub(super) observed: Observed,
    pub(super) seq: u64,
    inboxes: Vec<Inbox<Report>>,
    orders_sent: Vec<u64>,
    /// The gateway that handed a step over.
    routes: BTreeMap<StepId, usize>,
    seen: BTreeSet<StepId>,
    /// For each gateway whether both sides agree on its steps.
    pub(super) knows: Vec<bool>,
    pub(super) misses: Vec<u32>,
    pub(super) unwritten: VecDeque<Rc<Row>>,
    pub(super) transaction: Option<Vec<Rc<Row>>>,
    acks: VecDeque<(Rc<Row>, AckTo)>,
    snapshot: Option<Snapshot>,
    snapshot_seq: u64,
    orders: u64,
}

impl Daemon {
    /// A gateway has connected anew.
    pub(super) fn meet(&mut self, gateway: usize) {
        self.inboxes[gateway] = Inbox::default();
        self.orders_sent[gateway] = 0;
        self.knows[gateway] = false;
    }
}

impl Scene {
    /// Starts a daemon on what the database holds.
    pub(crate) fn start_daemon(&mut self) -> Checked {
        if self.daemon.is_some() {
            return Ok(());
        }
        self.check_acknowledged()?;
        let seq = self.database.rows.len() as u64;
        let state = self.database.recover(self.clock(), self.sabotage)?;
        self.session += 1;
        self.next_step = state.last_step + 1;
        let known = state.steps.keys().map(|step| step.gateway());
        let known = known.chain(state.gateways.keys().copied());
        let known: BTreeSet<GatewayId> = known.filter(|id| *id != GatewayId::LOCAL).collect();
        let model = self.database.auditor.model.clone();
        let (gateways, engines) = (self.gateways.len(), self.engines.len());
        self.daemon = Some(Daemon {
            observed: Observed::recovered(&self.plan.config, state, model, self.sabotage),
            seq,
            inboxes: std::iter::repeat_with(Inbox::default)
                .take(gateways)
                .collect(),
            orders_sent: vec![0; gateways],
            routes: BTreeMap::new(),
            seen: BTreeSet::new(),
            knows: self.gateways.iter().map(|g| g.remote.is_none()).collect(),
            misses: vec![0; engines],
            unwritten: VecDeque::new(),
            transaction: None,
            acks: VecDeque::new(),
            snapshot: None,
            snapshot_seq: seq,
            orders: 0,
        });
        let session = self.session;
        self.trace.line(self.now_us, || {
            format!("daemon {session} starts on {seq} events")
        });
        if seq > 0 {
            self.handle(Event::DaemonRestarted, None)?;
        }
        self.compare_copies();
        for engine in 0..engines {
            self.tell_owner_wish(engine)?;
            let at = self.now_us + self.streams.daemon.below(self.plan.habits.probe_us);
            self.calendar.put(at, Happening::Probe { session, engine });
        }
        self.connect_gateways(&known);
        self.goodbyes_lost();
        self.calendar
            .put(self.now_us, Happening::Publish { session });
        Ok(())
    }

    /// Kills the daemon: what it has not committed is gone.
    pub(crate) fn kill_daemon(&mut self) -> Checked {
        let Some(daemon) = self.daemon.take() else {
            return Ok(());
        };
        self.tally.count(FaultKind::DaemonKilled.name());
        self.end_transfers();
        self.trace.line(self.now_us, || {
            format!("daemon {} is killed at event {}", self.session, daemon.seq)
        });
        let reached = self.weather.strength(FaultKind::DatabaseDown).is_none()
            && self.streams.daemon.percent(50);
        if let Some(rows) = daemon.transaction.filter(|_| reached) {
            self.database.commit(&rows, daemon.snapshot.as_ref())?;
        }
        self.disconnect_gateways();
        Ok(())
    }

    /// A message has reached the daemon.
    pub(crate) fn reported(
        &mut self,
        gateway: usize,
        link: u64,
        number: u64,
        report: Report,
    ) -> Checked {
        if self.gateways[gateway].link != Some(link) {
            return Ok(());
        }
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        for report in daemon.inboxes[gateway].accept(number, report) {
            self.take_report(gateway, report)?;
        }
        Ok(())
    }

    fn take_report(&mut self, gateway: usize, report: Report) -> Checked {
        let event = match report.what {
            Told::Event(event) => event,
            Told::InHand(in_hand) => return self.gateway_met(gateway, &in_hand),
        };
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        if let Some(origin) = report.origin {
            if daemon.observed.core.has_handled(origin) {
                // If it is on record since the last daemon, nobody else is
                // going to say so.
                let recorded = self.database.recorded(origin.gateway) >= origin.number;
                if let Some(AckTo::Agent(agent)) = report.ack.filter(|_| recorded) {
                    self.goodbye_acknowledged(agent);
                }
                return Ok(());
            }
        } else if let Event::StepArrived(arrival) = &event {
            let live = daemon
                .observed
                .core
                .state()
                .steps
                .contains_key(&arrival.step);
            if !daemon.seen.insert(arrival.step) && !live {
                return Ok(());
            }
            daemon.routes.insert(arrival.step, gateway);
        }
        self.handle_from(event, report.origin, report.ack)
    }

    /// Handles an event and the answers to every question that it raised.
    pub(crate) fn handle(&mut self, event: Event, ack: Option<AckTo>) -> Checked {
        self.handle_from(event, None, ack)
    }

    fn handle_from(&mut self, event: Event, origin: Option<Origin>, ack: Option<AckTo>) -> Checked {
        if ack.is_some() {
            self.tempt();
        }
        self.handle_all(VecDeque::from([(event, origin, ack)]))
    }

    /// Handles events before any question that they raise is answered.
    pub(crate) fn handle_together(&mut self, events: Vec<Event>) -> Checked {
        self.handle_all(
            events
                .into_iter()
                .map(|event| (event, None, None))
                .collect(),
        )
    }

    fn handle_all(&mut self, mut inputs: VecDeque<Input>) -> Checked {
        while let Some((event, origin, ack)) = inputs.pop_front() {
            for command in self.handle_one(&event, origin, ack)? {
                self.carry_out(command, &mut inputs)?;
            }
        }
        self.write();
        Ok(())
    }

    /// A good moment for a kill: something was said that is not on record.
    fn tempt(&mut self) {
        if std::mem::take(&mut self.kill_after_promise) {
            let soon = self
                .streams
                .faults
                .below(2 * self.plan.habits.commit_us_max);
            self.calendar.put(self.now_us + soon, Happening::DaemonDies);
        }
    }

    fn handle_one(
        &mut self,
        event: &Event,
        origin: Option<Origin>,
        ack: Option<AckTo>,
    ) -> Checked<Vec<Command>> {
        let at = self.clock();
        let Some(daemon) = &mut self.daemon else {
            return Ok(Vec::new());
        };
        daemon.seq += 1;
        self.events += 1;
        let body =
            serde_json::to_string(event).or_else(|error| broken("journal", error.to_string()))?;
        self.trace.feed(&at.0.to_le_bytes());
        self.trace.feed(body.as_bytes());
        let seq = daemon.seq;
        self.trace.line(self.now_us, || format!("{seq:>6} {body}"));
        let row = Rc::new(Row {
            seq,
            at,
            sim_us: self.now_us,
            origin,
            body,
        });
        daemon.unwritten.push_back(Rc::clone(&row));
        if let Some(to) = ack {
            daemon.acks.push_back((Rc::clone(&row), to));
        }
        let commands = daemon.observed.handle(&row, event)?;
        if seq - daemon.snapshot_seq >= self.plan.habits.snapshot_events {
            daemon.snapshot_seq = seq;
            let bytes = daemon.observed.bytes()?;
            daemon.snapshot = Some(Snapshot { seq, bytes });
        }
        Ok(commands)
    }

    fn carry_out(&mut self, command: Command, inputs: &mut VecDeque<Input>) -> Checked {
        self.trace.feed(&command_bytes(&command));
        self.trace
            .line(self.now_us, || format!("       -> {}", brief(&command)));
        match command {
            Command::DispatchStep {
                step, worker, slot, ..
            } => {
                if step.gateway() != GatewayId::LOCAL && self.streams.faults.percent(20) {
                    self.tempt();
                }
                self.instruct(step, &Order::Dispatch { step, worker, slot });
            }
            Command::RefuseStep { step, refusal } => {
                self.instruct(step, &Order::Refuse { step, refusal });
            }
            Command::AbortStep { step, .. } => self.instruct(step, &Order::Abort { step }),
            Command::AskPolicy { ask, question, .. } => {
                for (event, delay) in self.ask(ask, &question) {
                    match delay {
                        None => inputs.push_back((event, None, None)),
                        Some(delay) => {
                            let (session, event) = (self.session, Box::new(event));
                            self.calendar
                                .put(self.now_us + delay, Happening::Answer { session, event });
                        }
                    }
                }
            }
            Command::PreemptStep { step } => {
                self.preempted.insert(step);
                self.instruct(step, &Order::Preempt { step });
            }
            Command::MigrateProgram { .. }
            | Command::OffloadProgram { .. }
            | Command::LoadProgram { .. }
            | Command::DropCopy { .. }
            | Command::CancelTransfer { .. } => return self.move_cache(command),
            Command::ForgetProgram { .. } => {}
        }
        Ok(())
    }

    pub(super) fn instruct(&mut self, step: StepId, order: &Order) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let id = step.gateway();
        let gateway = match id {
            GatewayId::LOCAL => daemon.routes.get(&step).copied(),
            _ => self.gateways.iter().position(|g| g.remote == Some(id)),
        };
        // What a gateway is told before both sides agree is lost on its way.
        let Some(gateway) = gateway.filter(|gateway| daemon.knows[*gateway]) else {
            return;
        };
        daemon.orders += 1;
        if self.sabotage == Some(Sabotage::ForgetDispatch) && daemon.orders.is_multiple_of(9) {
            return;
        }
        let number = daemon.orders_sent[gateway];
        daemon.orders_sent[gateway] += 1;
        self.order(gateway, number, order);
    }

    /// Begins a transaction, if none is under way and something is to write.
    fn write(&mut self) {
        let early = self.sabotage == Some(Sabotage::AckBeforeCommit);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if early {
            let acks = std::mem::take(&mut daemon.acks);
            self.acknowledge(acks);
        }
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if daemon.transaction.is_some() || daemon.unwritten.is_empty() {
            return;
        }
        let count = daemon.unwritten.len().min(TRANSACTION_EVENTS_MAX);
        daemon.transaction = Some(daemon.unwritten.drain(..count).collect());
        let at = self.now_us
            + self
                .streams
                .daemon
                .between(1, self.plan.habits.commit_us_max);
        let session = self.session;
        self.calendar.put(at, Happening::Commit { session });
    }

    /// The database answers, or the daemon gives up waiting for it.
    pub(crate) fn committed(&mut self, session: u32) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        let Some(rows) = daemon.transaction.take() else {
            return Ok(());
        };
        let down = self.weather.strength(FaultKind::DatabaseDown).is_some();
        let lost = self.weather.strength(FaultKind::CommitAnswerLost);
        let lost = lost.is_some_and(|strength| self.streams.daemon.percent(strength));
        let believes = self.sabotage == Some(Sabotage::DoubtIsCommit);
        if !down {
            self.database.commit(&rows, daemon.snapshot.as_ref())?;
        }
        if (down || lost) && !believes {
            self.tally.count(if down {
                FaultKind::DatabaseDown.name()
            } else {
                FaultKind::CommitAnswerLost.name()
            });
            daemon.transaction = Some(rows);
            let at = self.now_us + self.streams.daemon.between(10_000, 500_000);
            self.calendar.put(at, Happening::Commit { session });
            return Ok(());
        }
        let through = rows.last().map_or(0, |row| row.seq);
        let done = daemon
            .acks
            .iter()
            .take_while(|(row, _)| row.seq <= through)
            .count();
        let acks = daemon.acks.drain(..done).collect();
        self.acknowledge(acks);
        let origins = rows.iter().filter_map(|row| row.origin);
        let recorded: BTreeMap<GatewayId, u64> = origins.map(|o| (o.gateway, o.number)).collect();
        for gateway in 0..self.gateways.len() {
            let id = self.gateways[gateway].remote;
            if let Some(number) = id.and_then(|id| recorded.get(&id)) {
                self.tell_recorded(gateway, *number);
            }
        }
        self.write();
        Ok(())
    }

    fn acknowledge(&mut self, acks: VecDeque<(Rc<Row>, AckTo)>) {
        for (row, to) in acks {
            self.acknowledged.push(row);
            match to {
                AckTo::Agent(agent) => self.goodbye_acknowledged(agent),
                AckTo::Owner(engine, wish) => {
                    let engine = &mut self.engines[engine];
                    engine.acknowledged |= engine.wish == wish;
                }
            }
        }
    }

    /// What was acknowledged is in the journal, word for word.
    pub(crate) fn check_acknowledged(&self) -> Checked {
        for row in &self.acknowledged {
            let found = self.database.rows.get(row.seq as usize - 1);
            if found != Some(row) {
                return broken(
                    "acknowledged",
                    format!("{row:?} was acknowledged, the journal has {found:?}"),
                );
            }
        }
        Ok(())
    }

    /// When the core's next deadline has passed by the daemon's clock.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let core = &self.daemon.as_ref()?.observed.core;
        let deadline = core.next_deadline()?;
        if deadline <= core.state().now {
            return Some(self.now_us);
        }
        let at = deadline.0.cast_signed() - self.clock_offset_us;
        Some(u64::try_from(at).unwrap_or(0).max(self.now_us))
    }

    /// The daemon's clock: it may jump, but never runs backwards.
    pub(crate) fn clock(&self) -> Timestamp {
        let wall = (self.now_us.cast_signed() + self.clock_offset_us).max(0);
        let wall = Timestamp(wall.cast_unsigned());
        let latest = self
            .daemon
            .as_ref()
            .map(|daemon| daemon.observed.core.state().now);
        wall.max(latest.unwrap_or_default())
    }
}

fn command_bytes(command: &Command) -> [u8; 16] {
    let (kind, what, whom) = match command {
        Command::DispatchStep {
            step, worker, slot, ..
        } => (
            1,
            step.0,
            u64::from(worker.0) << 32 | u64::from(slot.unwrap_or(u32::MAX)),
        ),
        Command::RefuseStep { step, .. } => (2, step.0, 0),
        Command::AbortStep { step, .. } => (3, step.0, 0),
        Command::AskPolicy { ask, question, .. } => (4, ask.0, question.programs.len() as u64),
        Command::ForgetProgram { program } => (5, program.id.0, 0),
        Command::PreemptStep { step } => (6, step.0, 0),
        Command::MigrateProgram { program, to, .. } => (7, program.0, u64::from(to.0)),
        Command::OffloadProgram { program, from, .. } => {
            (7, program.0, 1 << 32 | u64::from(from.0))
        }
        Command::LoadProgram { program, to, .. } => (7, program.0, 2 << 32 | u64::from(to.0)),
        Command::DropCopy { program, .. } => (7, program.0, 3 << 32),
        Command::CancelTransfer { program } => (7, program.0, u64::MAX),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(what << 3 | kind).to_le_bytes());
    bytes[8..].copy_from_slice(&whom.to_le_bytes());
    bytes
}

fn brief(command: &Command) -> String {
    match command {
        Command::AskPolicy { ask, question, .. } => format!(
            "ask {ask}: {:?} of {:?}",
            question.purpose, question.programs.program
        ),
        Command::ForgetProgram { program } => format!("forget {} ({})", program.id, program.key),
        other => format!("{other:?}"),
    }
}
