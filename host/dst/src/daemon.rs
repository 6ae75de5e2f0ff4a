//! The daemon: the real scheduler, with faults at its interfaces. It can be killed between any two
//! inputs.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::database::Row;
use super::gateway::{Inbox, Order, Report, ReportBody};
use super::injected_bug::InjectedBug;
use super::observed::Watcher;
use super::policy::Asked;
use super::schedule::FaultKind;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};
use treadle_core::bindings::BindingEvent;
use treadle_core::programs::ProgramEvent;
use treadle_core::{CoreConfig, DaemonEvent, Event, Origin};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{GatewayId, PolicyRef, Role, StepId, Timestamp, World};
use treadle_scheduler::link::{FromGateway, ToGateway, WireInstruction};
use treadle_scheduler::scheduler::{ConnectionId, Input, LinkInput, Options, Output, Scheduler};
use treadle_store::Snapshot;

/// Whom to acknowledge an event to once it is committed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AckTo {
    /// An agent that released its program.
    Agent(usize),
    /// The owner of an engine, with the number of its request.
    Owner(usize, u64),
    /// Operators of an engine, with the number of their order.
    Operator(usize, u64),
}

/// A running daemon.
pub(crate) struct Daemon {
    pub(super) scheduler: Scheduler<Asked, Watcher>,
    inboxes: Vec<Inbox<Report>>,
    orders_sent: Vec<u64>,
    /// The gateway in this process that submitted a step.
    routes: BTreeMap<StepId, usize>,
    seen: BTreeSet<StepId>,
    pub(super) misses: Vec<u32>,
    pub(super) unwritten: VecDeque<Rc<Row>>,
    pub(super) transaction: Option<Vec<Rc<Row>>>,
    pub(super) acks: VecDeque<(Rc<Row>, AckTo)>,
    /// Gateways in other processes to notify once all rows up to the first number are on record.
    pub(super) relayed: VecDeque<(u64, ConnectionId, u64)>,
    pub(super) snapshot: Option<Snapshot>,
    orders: u64,
}

impl Daemon {
    /// A gateway has reconnected.
    pub(super) fn meet(&mut self, gateway: usize) {
        self.inboxes[gateway] = Inbox::default();
        self.orders_sent[gateway] = 0;
    }
}

impl Simulation {
    /// Starts a daemon on the database's content.
    pub(crate) fn start_daemon(&mut self) -> Checked {
        if self.daemon.is_some() {
            return Ok(());
        }
        self.check_acknowledged()?;
        let seq = self.database.rows.len() as u64;
        let core = self.database.recover(self.clock(), self.injected_bug)?;
        self.session += 1;
        self.next_step = core.programs().last_step + 1;
        let known = core.programs().steps.keys().map(|step| step.gateway());
        let known = known.chain(core.gateways().keys().copied());
        let known: BTreeSet<GatewayId> = known.filter(|id| *id != GatewayId::LOCAL).collect();
        let options = Options {
            core,
            seq,
            snapshot_seq: seq,
            journals: true,
            snapshot_events: self.plan.behaviour.snapshot_events,
            moves_caches: true,
            started: self.instant(),
        };
        self.database.auditor.model.daemon_starts(self.now_us);
        let model = self.database.auditor.model.clone();
        let watcher = Watcher::new(model, self.injected_bug);
        let (gateways, engines) = (self.gateways.len(), self.engines.len());
        self.daemon = Some(Daemon {
            scheduler: Scheduler::new(options, Asked::default(), watcher),
            inboxes: std::iter::repeat_with(Inbox::default)
                .take(gateways)
                .collect(),
            orders_sent: vec![0; gateways],
            routes: BTreeMap::new(),
            seen: BTreeSet::new(),
            misses: vec![0; engines],
            unwritten: VecDeque::new(),
            transaction: None,
            acks: VecDeque::new(),
            relayed: VecDeque::new(),
            snapshot: None,
            orders: 0,
        });
        let session = self.session;
        self.trace.line(self.now_us, || {
            format!("daemon {session} starts on {seq} events")
        });
        self.configure(self.plan.config.clone())?;
        if seq > 0 {
            self.handle(Event::Daemon(DaemonEvent::DaemonRestarted), None)?;
        }
        self.bind_policies()?;
        self.report_actions()?;
        self.compare_copies();
        for engine in 0..engines {
            self.report_owner_wish(engine)?;
            self.report_order(engine)?;
            let at = self.now_us + self.streams.daemon.below(self.plan.behaviour.probe_us);
            self.calendar
                .put(at, ScheduledEvent::Probe { session, engine });
        }
        self.connect_gateways(&known);
        self.goodbyes_lost();
        self.calendar
            .put(self.now_us, ScheduledEvent::Publish { session });
        Ok(())
    }

    /// Updates the daemon's plan to the engines' detected capabilities.
    pub(crate) fn settle_means(&mut self) -> Checked {
        let lacks = |kind| self.active_faults.until(kind).is_some();
        let mut config = self.plan.config.clone();
        if lacks(FaultKind::NoOffloads) {
            config.kv.host_tokens_max = 0;
        }
        if lacks(FaultKind::NoMoves) {
            config.kv.migration_tokens_per_s = 0;
        }
        self.configure(config)
    }

    /// Applies a configuration; settings of injected bugs stay.
    fn configure(&mut self, config: CoreConfig) -> Checked {
        let Some(daemon) = self.daemon.as_ref().filter(|_| self.injected_bug.is_none()) else {
            return Ok(());
        };
        let before = daemon.scheduler.core().config().kv.clone();
        if before == config.kv {
            return Ok(());
        }
        if before.host_tokens_max > config.kv.host_tokens_max {
            self.counts.count(FaultKind::NoOffloads.name());
        }
        if before.migration_tokens_per_s > config.kv.migration_tokens_per_s {
            self.counts.count(FaultKind::NoMoves.name());
        }
        let config = Box::new(config);
        self.handle(Event::Daemon(DaemonEvent::Configured { config }), None)
    }

    /// Binds policies, of which only the scope is real: the simulation answers for them.
    fn bind_policies(&mut self) -> Checked {
        let daemon = self.daemon.as_ref();
        let is_bound = daemon.is_none_or(|d| !d.scheduler.core().bindings().is_unused());
        let Some(scope) = self.plan.ranked.filter(|_| !is_bound) else {
            return Ok(());
        };
        for world in [World::Placement, World::Priority] {
            let bound = BindingEvent::PolicyBound {
                world,
                scope: scope.into(),
                role: Role::Active,
                policy: PolicyRef("story".into()),
                digest: "story".into(),
                config: "{}".into(),
                share_ppm: 0,
                by_default: false,
            };
            self.handle(Event::Binding(bound), None)?;
        }
        Ok(())
    }

    /// Kills the daemon: everything that is not committed is lost.
    pub(crate) fn kill_daemon(&mut self) -> Checked {
        let Some(daemon) = self.daemon.take() else {
            return Ok(());
        };
        self.counts.count(FaultKind::DaemonKilled.name());
        self.end_transfers();
        self.trace.line(self.now_us, || {
            let seq = daemon.scheduler.seq();
            format!("daemon {} is killed at event {seq}", self.session)
        });
        let reached = self
            .active_faults
            .strength(FaultKind::DatabaseDown)
            .is_none()
            && self.streams.daemon.percent(50);
        if let Some(rows) = daemon.transaction.filter(|_| reached) {
            self.database.commit(&rows, daemon.snapshot.as_ref())?;
        }
        self.disconnect_gateways();
        self.daemon_of_actions_died();
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
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        let arrival = match report.body {
            ReportBody::Link(frame) => return self.take_frame(gateway, frame),
            ReportBody::Event(Event::Program(ProgramEvent::StepArrived(arrival))) => arrival,
            ReportBody::Event(event) => return self.handle(event, report.ack),
        };
        let steps = &daemon.scheduler.core().programs().steps;
        let is_live = steps.contains_key(&arrival.step);
        if !daemon.seen.insert(arrival.step) && !is_live {
            return Ok(());
        }
        daemon.routes.insert(arrival.step, gateway);
        let live = None;
        self.give(Input::Submit { arrival, live }, report.ack)
    }

    /// A message of a gateway in another process.
    fn take_frame(&mut self, gateway: usize, frame: FromGateway) -> Checked {
        let g = &self.gateways[gateway];
        let (Some(remote), Some(link)) = (&g.remote, g.link) else {
            return Ok(());
        };
        let id = remote.link.gateway();
        let connection = ConnectionId(link);
        let input = match frame {
            FromGateway::Event {
                number,
                event,
                live,
            } => LinkInput::Relayed {
                origin: Origin {
                    gateway: id,
                    number,
                },
                event: Box::new(event),
                live: live.map(Into::into),
            },
            FromGateway::Open { steps } => LinkInput::Open {
                gateway: id,
                connection,
                steps,
            },
            FromGateway::Hello { .. } => LinkInput::Joined {
                gateway: id,
                connection,
            },
        };
        self.give(Input::Link(input), None)
    }

    /// Handles an event, and the answers to every question that it raised.
    pub(crate) fn handle(&mut self, event: Event, ack: Option<AckTo>) -> Checked {
        self.give(Input::Event(event), ack)
    }

    /// Passes an input to the scheduler and carries out its output.
    pub(crate) fn give(&mut self, input: Input, ack: Option<AckTo>) -> Checked {
        if ack.is_some() {
            self.tempt();
        }
        let mut inputs = VecDeque::from([(input, ack)]);
        while let Some((input, ack)) = inputs.pop_front() {
            self.give_one(input, ack)?;
            inputs.extend(self.answers().map(|event| (Input::Event(event), None)));
        }
        self.write();
        Ok(())
    }

    fn give_one(&mut self, input: Input, ack: Option<AckTo>) -> Checked {
        let now = self.clock();
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        let scheduler = &mut daemon.scheduler;
        scheduler.observer_mut().sim_us = self.now_us;
        let handled = catch_unwind(AssertUnwindSafe(|| scheduler.handle(now, input)));
        if let Err(panic) = handled {
            return broken("core", panic_text(panic.as_ref()));
        }
        let records = scheduler.take_records();
        let snapshot = scheduler.due_snapshot(|| false);
        daemon.snapshot = snapshot.or(daemon.snapshot.take());
        self.journal(records, ack);
        while let Some(output) = self.poll_output() {
            self.carry_out(output)?;
        }
        let daemon = self.daemon.as_mut();
        let violation = daemon.and_then(|d| d.scheduler.observer_mut().violation.take());
        violation.map_or(Ok(()), Err)
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.daemon.as_mut()?.scheduler.poll_output()
    }

    /// Answers that come at once; later ones are scheduled.
    fn answers(&mut self) -> impl Iterator<Item = Event> + use<> {
        let asked = self
            .daemon
            .as_mut()
            .map(|d| &mut d.scheduler.policies_mut().0);
        let asked = asked.map(std::mem::take).unwrap_or_default();
        let mut answers = Vec::new();
        for (ask, question) in asked {
            for (event, delay) in self.ask(ask, &question) {
                let Some(delay) = delay else {
                    answers.push(event);
                    continue;
                };
                let (session, event) = (self.session, Box::new(event));
                self.calendar.put(
                    self.now_us + delay,
                    ScheduledEvent::Answer { session, event },
                );
            }
        }
        answers.into_iter()
    }

    /// Possibly schedules a kill, because something was acknowledged that is not on record.
    fn tempt(&mut self) {
        if std::mem::take(&mut self.kill_after_promise) {
            let soon = self
                .streams
                .faults
                .below(2 * self.plan.behaviour.commit_us_max);
            self.calendar
                .put(self.now_us + soon, ScheduledEvent::DaemonDies);
        }
    }

    fn carry_out(&mut self, output: Output) -> Checked {
        match output {
            Output::Instruct(step, instruction) => {
                let daemon = self.daemon.as_ref();
                let gateway = daemon.and_then(|d| d.routes.get(&step).copied());
                if let Some(gateway) = gateway.filter(|_| !self.forgets()) {
                    self.send_order(gateway, &Order::Local(step, instruction));
                }
            }
            Output::StepOver(step) => {
                if let Some(daemon) = &mut self.daemon {
                    daemon.routes.remove(&step);
                }
            }
            Output::ToGateway(connection, message) => {
                let is_dispatch = matches!(
                    message,
                    ToGateway::Step {
                        word: WireInstruction::Dispatch { .. },
                        ..
                    }
                );
                if is_dispatch && self.streams.faults.percent(20) {
                    self.tempt();
                }
                let is_step = matches!(message, ToGateway::Step { .. });
                if !(is_step && self.forgets()) {
                    self.send_message(connection, message);
                }
            }
            Output::Transfer(order) => return self.order_transfer(order),
            Output::Action(command) => return self.hold_action(command),
            Output::Observed(_)
            | Output::PolicyFailed(_)
            | Output::Training(_)
            | Output::Weights(_) => {}
        }
        Ok(())
    }

    /// Sends a message over a connection, if that still exists.
    pub(super) fn send_message(&mut self, connection: ConnectionId, message: ToGateway) {
        let mut gateways = self.gateways.iter();
        if let Some(gateway) = gateways.position(|g| g.link == Some(connection.0)) {
            self.send_order(gateway, &Order::Link(message));
        }
    }

    /// Whether an injected bug loses this instruction.
    fn forgets(&mut self) -> bool {
        let Some(daemon) = &mut self.daemon else {
            return false;
        };
        daemon.orders += 1;
        self.injected_bug == Some(InjectedBug::ForgetDispatch) && daemon.orders.is_multiple_of(9)
    }

    fn send_order(&mut self, gateway: usize, order: &Order) {
        if let Some(daemon) = &mut self.daemon {
            let number = daemon.orders_sent[gateway];
            daemon.orders_sent[gateway] += 1;
            self.order(gateway, number, order);
        }
    }

    /// Time at which the core's next deadline passes by the daemon's clock.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let core = self.daemon.as_ref()?.scheduler.core();
        let deadline = core.next_deadline()?;
        if deadline <= core.now() {
            return Some(self.now_us);
        }
        let at = deadline.0.cast_signed() - self.clock_offset_us;
        Some(u64::try_from(at).unwrap_or(0).max(self.now_us))
    }

    /// The monotonic clock.
    pub(crate) fn instant(&self) -> Instant {
        self.epoch + Duration::from_micros(self.now_us)
    }

    /// The daemon's clock: it may jump, but never runs backwards.
    pub(crate) fn clock(&self) -> Timestamp {
        let wall = (self.now_us.cast_signed() + self.clock_offset_us).max(0);
        let wall = Timestamp(wall.cast_unsigned());
        let latest = self
            .daemon
            .as_ref()
            .map(|daemon| daemon.scheduler.core().now());
        wall.max(latest.unwrap_or_default())
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "the core panicked".to_owned())
}
