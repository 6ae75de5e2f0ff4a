//! Deterministic simulation testing: the core under a seeded schedule of
//! faults, watched by a model that knows nothing of the core's own books.
//!
//! One seed decides everything: the agents, the engines, the settings, the
//! faults and when they strike. Faults stop at some time; after it, everything
//! must finish. `docs/internals/simulation-testing.md` lists the rules.

mod agents;
mod calendar;
mod carrier;
mod daemon;
mod database;
mod ending;
mod engines;
mod gateway;
mod interruption;
mod model;
mod observed;
mod outcome;
mod plan;
mod policy;
mod remote;
mod sabotage;
mod schedule;
mod settings;
mod shrink;
mod sink;
mod stream;
mod watch;

pub use outcome::{Outcome, Tally, Violation};
pub use sabotage::Sabotage;
pub use schedule::FaultKind;
pub use shrink::{Shrunk, shrink};

use agents::Agent;
use calendar::{Calendar, Happening};
use carrier::Carrier;
use daemon::Daemon;
use database::{Database, Row};
use engines::{Engine, Request};
use gateway::Gateway;
use outcome::{Checked, Trace, broken};
use plan::Plan;
use schedule::Weather;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stream::Stream;
use treadle_core::Event;
use treadle_model::StepId;
use treadle_policy::native::NativeEviction;

/// Virtual time within which everything ends after the last fault, where nobody holds
/// up others by going away without a word.
pub const LIVENESS_US_MAX: u64 = 2 * 3_600 * 1_000_000;
/// What the clock shows when a story begins; it may jump back by less.
const CLOCK_START_US: i64 = 1_000_000_000_000;

/// What of a seed's story to tell, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only so many of its programs.
    pub programs_max: Option<usize>,
    /// Only so many of its faults.
    pub faults_max: Option<usize>,
    /// No faults of these kinds.
    pub without: Vec<FaultKind>,
    /// A deliberate fault of a part that must not have any.
    pub sabotage: Option<Sabotage>,
    /// Write down what happens.
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
    carrier: Stream,
}

struct Scene {
    plan: Plan,
    sabotage: Option<Sabotage>,
    now_us: u64,
    clock_offset_us: i64,
    calendar: Calendar,
    weather: Weather,
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
    carrier: Carrier,
    /// Steps that were to give way: their gateways may have them run on.
    preempted: BTreeSet<StepId>,
    native: NativeEviction,
    next_request: u64,
    next_step: u64,
    next_gateway: u32,
    links: u64,
    acknowledged: Vec<Rc<Row>>,
    events: u64,
    tally: Tally,
    ends: Tally,
    trace: Trace,
}

/// Tells the story of a seed.
pub fn explore(seed: u64, options: &Options) -> Outcome {
    let plan = Plan::draw(seed, options);
    let mut scene = Scene::new(seed, plan, options);
    let violation = scene.play().err();
    if let Some(violation) = &violation {
        let text = format!("broken: {}: {}", violation.rule, violation.what);
        scene.trace.line(scene.now_us, || text);
    }
    Outcome {
        seed,
        programs: scene.agents.len(),
        faults_planned: scene.plan.faults.len(),
        trace_hash: scene.trace.hash(),
        events: scene.events,
        lasted_us: scene.now_us,
        faults: scene.tally,
        ends: scene.ends,
        violation,
        trace: scene.trace.into_lines(),
    }
}

impl Scene {
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
        });
        let gateways = (1..).zip(&plan.gateways).map(|(id, remote)| Gateway {
            remote: remote.then_some(treadle_model::GatewayId(id)),
            ..Gateway::default()
        });
        Self {
            sabotage: options.sabotage,
            now_us: 0,
            clock_offset_us: CLOCK_START_US,
            calendar: Calendar::default(),
            weather: Weather::default(),
            streams: Streams {
                agents: Stream::new(seed, "agents' doings"),
                engines: Stream::new(seed, "engines' doings"),
                network: Stream::new(seed, "network"),
                daemon: Stream::new(seed, "daemon"),
                policies: Stream::new(seed, "policies"),
                sink: Stream::new(seed, "sink"),
                faults: Stream::new(seed, "faults' doings"),
                carrier: Stream::new(seed, "carrier's doings"),
            },
            session: 0,
            daemon: None,
            kill_after_promise: false,
            database: Database::new(&plan.config, honest, options.sabotage),
            consumer: sink::Consumer::default(),
            gateways: gateways.collect(),
            engines: engines.collect(),
            requests: BTreeMap::new(),
            agents: plan.agents.iter().map(|_| Agent::new()).collect(),
            carrier: Carrier::default(),
            preempted: BTreeSet::new(),
            native: NativeEviction::default(),
            next_request: 1,
            next_step: 1,
            next_gateway: plan.gateways.len() as u32,
            links: 0,
            acknowledged: Vec::new(),
            events: 0,
            tally: Tally::default(),
            ends: Tally::default(),
            trace: Trace::new(options.trace),
            plan,
        }
    }

    fn play(&mut self) -> Checked {
        self.calendar.put(0, Happening::DaemonStarts);
        for (index, agent) in self.plan.agents.iter().enumerate() {
            self.calendar
                .put(agent.starts_us, Happening::AgentDue(index));
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.calendar
                .put(fault.at_us, Happening::FaultBegins(index));
            self.calendar
                .put(fault.until_us, Happening::FaultEnds(index));
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
                self.handle(Event::TimerFired, None)?;
            } else if let Some(happening) = self.calendar.pop() {
                self.happen(happening)?;
            }
        }
        self.check_end()
    }

    fn happen(&mut self, happening: Happening) -> Checked {
        match happening {
            Happening::AgentDue(agent) => self.agent_due(agent),
            Happening::ClientLeaves {
                agent,
                branch,
                attempt,
            } => self.client_leaves(agent, branch, attempt),
            Happening::Report {
                gateway,
                link,
                number,
                report,
            } => return self.reported(gateway, link, number, *report),
            Happening::Order {
                gateway,
                link,
                number,
                order,
            } => return self.ordered(gateway, link, number, order),
            Happening::Engine { request, progress } => self.progressed(request, progress),
            Happening::Stalled { request, seen } => self.stalled(request, seen),
            Happening::GatewayConnects { gateway, session } => {
                self.gateway_connects(gateway, session);
            }
            Happening::GatewayMissed { session, id } => return self.gateway_missed(session, id),
            Happening::Answer { session, event } => {
                if !self.session_is_over(session) {
                    return self.handle(*event, None);
                }
            }
            Happening::TransferEnds { session, ticket } => self.transfer_ends(session, ticket),
            Happening::TransferStops { session, ticket } => self.transfer_stops(session, ticket),
            Happening::TransferTold {
                session,
                ticket,
                event,
            } => return self.transfer_told(session, ticket, *event),
            Happening::Probe { session, engine } => return self.probe(session, engine),
            Happening::Commit { session } => return self.committed(session),
            Happening::Publish { session } => return self.publish(session),
            Happening::FaultBegins(index) => return self.fault_begins(index),
            Happening::FaultEnds(index) => return self.fault_ends(index),
            Happening::DaemonDies if self.weather.until(FaultKind::DaemonKilled).is_some() => {
                return self.kill_daemon();
            }
            Happening::DaemonDies => {}
            Happening::DaemonStarts => return self.start_daemon(),
        }
        Ok(())
    }

    fn session_is_over(&self, session: u32) -> bool {
        session != self.session || self.daemon.is_none()
    }

    fn fault_begins(&mut self, index: usize) -> Checked {
        let fault = self.plan.faults[index];
        self.trace.line(self.now_us, || format!("fault: {fault:?}"));
        self.weather.begin(index, fault);
        let engine = fault.target % self.engines.len();
        let gateway = fault.target % self.gateways.len();
        let count = |tally: &mut Tally| tally.count(fault.kind.name());
        match fault.kind {
            FaultKind::EngineCrash => {
                count(&mut self.tally);
                self.engines[engine].up = false;
                self.break_connections(engine, 100);
                self.break_transfers(engine);
            }
            FaultKind::ConnectionsBroken => {
                count(&mut self.tally);
                self.break_connections(engine, fault.strength);
            }
            FaultKind::CapacityChanged => {
                count(&mut self.tally);
                self.change_capacity(engine, fault.strength);
            }
            FaultKind::WorkerRemoved => {
                count(&mut self.tally);
                self.engines[engine].wanted = false;
                self.engines[engine].wish += 1;
                self.engines[engine].acknowledged = false;
                return self.tell_owner_wish(engine);
            }
            FaultKind::FalseAlarm if self.daemon.is_some() => {
                count(&mut self.tally);
                let worker = treadle_model::WorkerId(engine as u32);
                let cause = "a false alarm".into();
                return self.handle(Event::WorkerLost { worker, cause }, None);
            }
            FaultKind::GatewayCrash => self.gateway_crashes(gateway),
            FaultKind::GatewayCutOff => self.gateway_cut_off(gateway),
            // Half of the kills wait for a promise, and follow it closely.
            FaultKind::DaemonKilled if fault.target.is_multiple_of(2) => return self.kill_daemon(),
            FaultKind::DaemonKilled => self.kill_after_promise = true,
            FaultKind::CopyLost => self.lose_copy(fault.strength),
            FaultKind::HostLost => return self.lose_host(),
            FaultKind::ClockForward => {
                count(&mut self.tally);
                self.clock_offset_us += (fault.strength * fault.strength * 100_000).cast_signed();
            }
            FaultKind::ClockBackward => {
                count(&mut self.tally);
                self.clock_offset_us -= (fault.strength * 1_000_000).cast_signed();
            }
            _ => {}
        }
        Ok(())
    }

    fn fault_ends(&mut self, index: usize) -> Checked {
        let fault = self.plan.faults[index];
        self.weather.end(index);
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
                return self.tell_owner_wish(engine);
            }
            FaultKind::DaemonKilled | FaultKind::HostLost if !self.keeps_daemon_down() => {
                self.kill_after_promise = false;
                return self.start_daemon();
            }
            _ => {}
        }
        Ok(())
    }

    /// A fault goes on under which no daemon runs.
    fn keeps_daemon_down(&self) -> bool {
        let until = |kind| self.weather.until(kind).is_some();
        until(FaultKind::DaemonKilled) || until(FaultKind::HostLost)
    }

    /// An engine is started anew, with more or less memory.
    fn change_capacity(&mut self, engine: usize, strength: u64) {
        self.break_connections(engine, 100);
        self.break_transfers(engine);
        let planned = self.plan.engines[engine].capacity.tokens.unwrap_or(4_000);
        let tokens = (planned * strength / 45).max(200);
        self.engines[engine].capacity = plan::draw_capacity(&mut self.streams.faults, tokens);
    }
}
