//! Deterministic simulation testing: the scheduler and its link to gateways under a seeded schedule of
//! faults, checked by a model that is independent of the core's own state.
//!
//! One seed decides everything: the agents, the engines, the settings, the faults and their times.
//! Faults stop at some time, after which everything must finish.
//! `docs/internals/simulation-testing.md` lists the rules.

mod action_plans;
mod actions;
mod agents;
mod calendar;
mod daemon;
mod database;
mod ending;
mod engines;
mod gateway;
mod injected_bug;
mod interruption;
mod model;
mod observed;
mod plan;
mod policy;
mod remote;
mod schedule;
mod settings;
mod shrink;
mod sink;
mod transfers;
mod watch;
mod writer;

pub use injected_bug::InjectedBug;
pub use schedule::FaultKind;
pub use shrink::{Shrunk, shrink};
pub use treadle_dst_outcome::{EventCounts, Outcome, Violation};

use actions::{ActionExecutor, ScheduledActionEvent};
use agents::Agent;
use calendar::{Calendar, ScheduledEvent};
use daemon::Daemon;
use database::{Database, Row};
use engines::{Engine, Request};
use gateway::Gateway;
use plan::Plan;
use remote::Remote;
use schedule::ActiveFaults;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;
use transfers::TransferExecutor;
use treadle_core::programs::ProgramEvent;
use treadle_core::{DaemonEvent, Event};
use treadle_dst_outcome::{Checked, Stream, Trace, broken};
use treadle_policy::native::NativeEviction;

/// Virtual time after the last fault within which everything must end, unless a program blocks
/// others by disappearing silently.
pub const LIVENESS_US_MAX: u64 = 2 * 3_600 * 1_000_000;
/// Clock time at the beginning of a simulation; it may jump back by less.
const CLOCK_START_US: i64 = 1_000_000_000_000;

/// Options of a seed's simulation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Maximum number of programs.
    pub programs_max: Option<usize>,
    /// Maximum number of faults.
    pub faults_max: Option<usize>,
    /// Kinds of faults that are excluded.
    pub without: Vec<FaultKind>,
    /// A deliberate fault of the code under test.
    pub injected_bug: Option<InjectedBug>,
    /// Whether actions are always submitted and run.
    pub actions: bool,
    /// Whether to record a trace.
    pub trace: bool,
}

struct Streams {
    agents: Stream,
    engines: Stream,
    network: Stream,
    daemon: Stream,
    policies: Stream,
    sink: Stream,
    faults: Stream,
    transfers: Stream,
    actions: Stream,
}

struct Simulation {
    plan: Plan,
    injected_bug: Option<InjectedBug>,
    now_us: u64,
    clock_offset_us: i64,
    /// The monotonic clock's value at the beginning.
    epoch: Instant,
    calendar: Calendar,
    active_faults: ActiveFaults,
    streams: Streams,
    session: u32,
    daemon: Option<Daemon>,
    kill_after_promise: bool,
    database: Database,
    consumer: sink::Consumer,
    gateways: Vec<Gateway>,
    engines: Vec<Engine>,
    requests: BTreeMap<u64, Request>,
    agents: Vec<Agent>,
    transfers: TransferExecutor,
    executor: ActionExecutor,
    native: NativeEviction,
    next_request: u64,
    next_step: u64,
    next_gateway: u32,
    links: u64,
    acknowledged: Vec<Rc<Row>>,
    events: u64,
    counts: EventCounts,
    ends: EventCounts,
    trace: Trace,
}

/// Runs the simulation of a seed.
pub fn explore(seed: u64, options: &Options) -> Outcome {
    let plan = Plan::draw(seed, options);
    let mut simulation = Simulation::new(seed, plan, options);
    let violation = simulation.play().err();
    if let Some(violation) = &violation {
        let text = format!("broken: {}: {}", violation.rule, violation.what);
        simulation.trace.line(simulation.now_us, || text);
    }
    Outcome {
        seed,
        programs: simulation.agents.len(),
        faults_planned: simulation.plan.faults.len(),
        trace_hash: simulation.trace.hash(),
        events: simulation.events,
        lasted_us: simulation.now_us,
        faults: simulation.counts,
        ends: simulation.ends,
        violation,
        trace: simulation.trace.into_lines(),
    }
}

impl Simulation {
    fn new(seed: u64, plan: Plan, options: &Options) -> Self {
        let misleading = [FaultKind::PolicyWrong, FaultKind::PolicyNonsense];
        let honest = !plan
            .faults
            .iter()
            .any(|fault| misleading.contains(&fault.kind));
        let engines = plan.engines.iter().map(|plan| Engine {
            plan: *plan,
            capacity: plan.capacity,
            up: true,
            wanted: true,
            wish: 0,
            acknowledged: false,
            state: treadle_core::programs::WorkerState::Active,
            orders: 0,
            orders_acknowledged: 0,
        });
        let gateways = (1..).zip(&plan.gateways).map(|(id, remote)| Gateway {
            remote: remote.then(|| Remote::new(treadle_model::GatewayId(id))),
            ..Gateway::default()
        });
        Self {
            injected_bug: options.injected_bug,
            now_us: 0,
            clock_offset_us: CLOCK_START_US,
            epoch: Instant::now(),
            calendar: Calendar::default(),
            active_faults: ActiveFaults::default(),
            streams: Streams {
                agents: Stream::new(seed, "agents' doings"),
                engines: Stream::new(seed, "engines' doings"),
                network: Stream::new(seed, "network"),
                daemon: Stream::new(seed, "daemon"),
                policies: Stream::new(seed, "policies"),
                sink: Stream::new(seed, "sink"),
                faults: Stream::new(seed, "faults' doings"),
                transfers: Stream::new(seed, "carrier's doings"),
                actions: Stream::new(seed, "actions' doings"),
            },
            session: 0,
            daemon: None,
            kill_after_promise: false,
            database: Database::new(&plan.config, honest, options.injected_bug),
            consumer: sink::Consumer::default(),
            gateways: gateways.collect(),
            engines: engines.collect(),
            requests: BTreeMap::new(),
            agents: plan.agents.iter().map(|_| Agent::new()).collect(),
            transfers: TransferExecutor::default(),
            executor: ActionExecutor::new(&plan.actions),
            native: NativeEviction::default(),
            next_request: 1,
            next_step: 1,
            next_gateway: plan.gateways.len() as u32,
            links: 0,
            acknowledged: Vec::new(),
            events: 0,
            counts: EventCounts::default(),
            ends: EventCounts::default(),
            trace: Trace::new(options.trace),
            plan,
        }
    }

    fn play(&mut self) -> Checked {
        self.calendar.put(0, ScheduledEvent::DaemonStarts);
        for (index, agent) in self.plan.agents.iter().enumerate() {
            self.calendar
                .put(agent.starts_us, ScheduledEvent::AgentDue(index));
        }
        for (index, action) in self.plan.actions.actions.iter().enumerate() {
            let due = ScheduledEvent::Action(ScheduledActionEvent::Due(index));
            self.calendar.put(action.at_us, due);
            if let Some(after_us) = action.cancelled_us {
                let withdrawn = ScheduledEvent::Action(ScheduledActionEvent::Withdrawn(index));
                self.calendar.put(action.at_us + after_us, withdrawn);
            }
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.calendar
                .put(fault.at_us, ScheduledEvent::FaultBegins(index));
            self.calendar
                .put(fault.until_us, ScheduledEvent::FaultEnds(index));
        }
        while !self.is_over() {
            let deadline = self.deadline_us();
            let next = self.calendar.next_at();
            let Some(at) = deadline.into_iter().chain(next).min() else {
                return broken("liveness", "nothing is going to happen any more");
            };
            self.now_us = self.now_us.max(at);
            if self.now_us > self.plan.ends_by_us() {
                return broken("liveness", self.what_is_left());
            }
            if deadline.is_some_and(|deadline| deadline <= self.now_us) {
                self.handle(Event::Daemon(DaemonEvent::TimerFired), None)?;
            } else if let Some(happening) = self.calendar.pop() {
                self.happen(happening)?;
            }
        }
        self.check_end()
    }

    fn happen(&mut self, happening: ScheduledEvent) -> Checked {
        match happening {
            ScheduledEvent::AgentDue(agent) => self.agent_due(agent),
            ScheduledEvent::ClientLeaves {
                agent,
                branch,
                attempt,
            } => self.client_leaves(agent, branch, attempt),
            ScheduledEvent::Report {
                gateway,
                link,
                number,
                report,
            } => return self.reported(gateway, link, number, *report),
            ScheduledEvent::Order {
                gateway,
                link,
                number,
                order,
            } => return self.ordered(gateway, link, number, order),
            ScheduledEvent::Engine { request, progress } => self.progressed(request, progress),
            ScheduledEvent::Stalled { request, seen } => self.stalled(request, seen),
            ScheduledEvent::GatewayConnects { gateway, session } => {
                self.gateway_connects(gateway, session);
            }
            ScheduledEvent::GatewayLeft { session, id, link } => {
                return self.gateway_left(session, id, link);
            }
            ScheduledEvent::GatewayMissed { session, id } => {
                return self.gateway_missed(session, id);
            }
            ScheduledEvent::Answer { session, event } => {
                if !self.session_is_over(session) {
                    return self.handle(*event, None);
                }
            }
            ScheduledEvent::TransferEnds {
                session,
                transfer_id,
            } => self.transfer_ends(session, transfer_id),
            ScheduledEvent::TransferStops {
                session,
                transfer_id,
            } => self.transfer_stops(session, transfer_id),
            ScheduledEvent::TransferReported {
                session,
                transfer_id,
                event,
            } => return self.transfer_reported(session, transfer_id, *event),
            ScheduledEvent::Action(happening) => return self.action_happens(happening),
            ScheduledEvent::Probe { session, engine } => return self.probe(session, engine),
            ScheduledEvent::Commit { session } => return self.committed(session),
            ScheduledEvent::Publish { session } => return self.publish(session),
            ScheduledEvent::FaultBegins(index) => return self.fault_begins(index),
            ScheduledEvent::FaultEnds(index) => return self.fault_ends(index),
            ScheduledEvent::DaemonDies
                if self.active_faults.until(FaultKind::DaemonKilled).is_some() =>
            {
                return self.kill_daemon();
            }
            ScheduledEvent::DaemonDies => {}
            ScheduledEvent::DaemonStarts => return self.start_daemon(),
        }
        Ok(())
    }

    fn session_is_over(&self, session: u32) -> bool {
        session != self.session || self.daemon.is_none()
    }

    fn fault_begins(&mut self, index: usize) -> Checked {
        let fault = self.plan.faults[index];
        self.trace.line(self.now_us, || format!("fault: {fault:?}"));
        self.active_faults.begin(index, fault);
        let engine = fault.target % self.engines.len();
        let gateway = fault.target % self.gateways.len();
        let count = |counts: &mut EventCounts| counts.count(fault.kind.name());
        match fault.kind {
            FaultKind::EngineCrash => {
                count(&mut self.counts);
                self.engines[engine].up = false;
                self.break_connections(engine, 100);
                self.break_transfers(engine);
            }
            FaultKind::ConnectionsBroken => {
                count(&mut self.counts);
                self.break_connections(engine, fault.strength);
            }
            FaultKind::CapacityChanged => {
                count(&mut self.counts);
                self.change_capacity(engine, fault.strength);
            }
            FaultKind::WorkerRemoved => {
                count(&mut self.counts);
                self.engines[engine].wanted = false;
                self.engines[engine].wish += 1;
                self.engines[engine].acknowledged = false;
                return self.report_owner_wish(engine);
            }
            FaultKind::WorkerCordoned | FaultKind::WorkerDrained => {
                count(&mut self.counts);
                return self.operators_change(engine);
            }
            FaultKind::FalseAlarm if self.daemon.is_some() => {
                count(&mut self.counts);
                let worker = treadle_model::WorkerId(engine as u32);
                let cause = "a false alarm".into();
                return self.handle(
                    Event::Program(ProgramEvent::WorkerLost { worker, cause }),
                    None,
                );
            }
            FaultKind::GatewayCrash => self.gateway_crashes(gateway),
            FaultKind::GatewayCutOff => self.gateway_cut_off(gateway),
            // Half of the kills follow an acknowledgement closely.
            FaultKind::DaemonKilled if fault.target.is_multiple_of(2) => return self.kill_daemon(),
            FaultKind::DaemonKilled => self.kill_after_promise = true,
            FaultKind::CopyLost => self.lose_copy(fault.strength),
            FaultKind::HostLost => return self.lose_host(),
            FaultKind::ClockForward => {
                count(&mut self.counts);
                self.clock_offset_us += (fault.strength * fault.strength * 100_000).cast_signed();
            }
            FaultKind::ClockBackward => {
                count(&mut self.counts);
                self.clock_offset_us -= (fault.strength * 1_000_000).cast_signed();
            }
            _ => {}
        }
        Ok(())
    }

    fn fault_ends(&mut self, index: usize) -> Checked {
        let fault = self.plan.faults[index];
        self.active_faults.end(index);
        let engine = fault.target % self.engines.len();
        match fault.kind {
            // Another crash of the same engine may still last.
            FaultKind::EngineCrash => {
                self.engines[engine].up = self
                    .strikes_engine(FaultKind::EngineCrash, engine)
                    .is_none();
            }
            FaultKind::WorkerRemoved
                if self
                    .strikes_engine(FaultKind::WorkerRemoved, engine)
                    .is_none() =>
            {
                self.engines[engine].wanted = true;
                self.engines[engine].wish += 1;
                self.engines[engine].acknowledged = false;
                return self.report_owner_wish(engine);
            }
            FaultKind::WorkerCordoned | FaultKind::WorkerDrained => {
                return self.operators_change(engine);
            }
            FaultKind::DaemonKilled | FaultKind::HostLost if !self.keeps_daemon_down() => {
                self.kill_after_promise = false;
                return self.start_daemon();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a fault is active during which no daemon runs.
    fn keeps_daemon_down(&self) -> bool {
        let until = |kind| self.active_faults.until(kind).is_some();
        until(FaultKind::DaemonKilled) || until(FaultKind::HostLost)
    }

    /// An engine is restarted, with more or less memory.
    fn change_capacity(&mut self, engine: usize, strength: u64) {
        self.break_connections(engine, 100);
        self.break_transfers(engine);
        let planned = self.plan.engines[engine].capacity.tokens.unwrap_or(4_000);
        let tokens = (planned * strength / 45).max(200);
        self.engines[engine].capacity = plan::draw_capacity(&mut self.streams.faults, tokens);
    }
}
