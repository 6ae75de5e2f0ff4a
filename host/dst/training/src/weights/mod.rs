//! Simulations of weight updates: the core with its machines of weights, of training runs and of
//! programs, among engines that hold weights, in virtual time.
//!
//! One seed decides everything. Up to some time engines fail at any call, tear their weights, hang,
//! lie, die and restart; trainers leave updates unfinished and go back to checkpoints; the daemon is
//! killed. After that the world keeps answering, and each engine has to come back into service.

mod bug;
mod engines;
mod model;
mod plan;
mod programs;
mod relay;
mod trainer;

pub use bug::WeightsBug;

use crate::bug::TrainingBug;
use crate::daemon::Daemon;
use crate::plan::SECOND_US;
use engines::{Content, Engine, Job, Seen};
use model::{Model, Version};
use plan::Plan;
use programs::{Client, Step};
use relay::Chain;
use std::collections::{BTreeMap, BTreeSet};
use trainer::Trainer;
use treadle_core::memory::Capacity;
use treadle_core::programs::ProgramEvent;
use treadle_core::training::{MemberRef, TrainingCommand, TrainingEvent};
use treadle_core::weights::{Call, Update, WeightsCommand};
use treadle_core::{Command, CoreConfig, DaemonEvent, Event, Mode};
use treadle_dst_outcome::{Checked, EventCounts, Outcome, Stream, Trace, broken};
use treadle_model::{EngineKind, Span, StepId, WorkerId};

/// The job whose engines are updated.
const JOB: &str = "job";
/// Time after which all engines must serve again, once nothing fails any more. A call that hangs
/// takes up to 40 minutes.
const BACK_US_MAX: u64 = 7_200 * SECOND_US;

/// Options of a seed's simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct WeightsOptions {
    /// A deliberate fault of the code under test.
    pub bug: Option<WeightsBug>,
    /// Whether to record a trace.
    pub trace: bool,
}

/// A scheduled event.
#[derive(Clone, Debug)]
enum Due {
    Client {
        client: usize,
        epoch: u64,
    },
    /// A step's next tokens.
    Token(StepId),
    /// An engine has ended a step that was withdrawn.
    Aborted(StepId),
    Assemble(MemberRef),
    Trainer(u64),
    /// A trainer's call that is passed on.
    Relay(u64),
    /// A call that an engine carries out ends.
    Called {
        worker: WorkerId,
        process: u64,
    },
    Timeout {
        worker: WorkerId,
        number: u64,
    },
    Broken(WorkerId, Box<Job>),
    /// An engine's process starts.
    Starts(WorkerId),
    /// The core is told that an engine is lost, or answers again.
    Told {
        worker: WorkerId,
        lost: bool,
    },
    Disturb,
    Restart,
}

struct Simulation {
    plan: Plan,
    bug: Option<WeightsBug>,
    daemon: Daemon,
    /// Daemons that were started.
    daemons: u64,
    model: Model,
    calendar: BTreeMap<(u64, u64), Due>,
    scheduled: u64,
    now_us: u64,
    draws: Stream,
    engines: BTreeMap<WorkerId, Engine>,
    /// Numbers of the core's calls whose answers it waits for.
    awaited: BTreeSet<u64>,
    chains: BTreeMap<u64, Chain>,
    trainer: Trainer,
    clients: Vec<Client>,
    steps: BTreeMap<StepId, Step>,
    /// The oldest version in the samples of programs.
    oldest: BTreeMap<Box<str>, u64>,
    numbers: u64,
    counts: EventCounts,
    trace: Trace,
}

/// Runs the simulation of a seed.
pub fn explore_weights(seed: u64, options: WeightsOptions) -> Outcome {
    let mut simulation = Simulation::new(seed, options);
    let violation = simulation.play().err();
    if let Some(violation) = &violation {
        let text = format!("broken: {}: {}", violation.rule, violation.what);
        simulation.trace.line(simulation.now_us, || text);
    }
    Outcome {
        seed,
        programs: simulation.numbers as usize,
        faults_planned: simulation.plan.restarts_us.len(),
        trace_hash: simulation.trace.hash(),
        events: simulation.daemon.events,
        lasted_us: simulation.now_us,
        faults: EventCounts::default(),
        ends: simulation.counts,
        violation,
        trace: simulation.trace.into_lines(),
    }
}

impl Simulation {
    fn new(seed: u64, options: WeightsOptions) -> Self {
        let plan = Plan::draw(seed);
        let config = CoreConfig {
            mode: Mode::LeastLoad,
            program_idle_max: Span::from_secs(60),
            explain: false,
            ..CoreConfig::default()
        };
        let drops = options.bug == Some(WeightsBug::ReplayDropsEvent);
        let drops = drops.then_some(TrainingBug::ReplayDropsEvent);
        let mut daemon = Daemon::new(config, drops, plan.snapshot_events);
        if options.bug.is_some() {
            daemon = daemon.unsound();
        }
        let engines = (0..plan.engines).map(|id| (WorkerId(id), Engine::new()));
        let mut trace = Trace::new(options.trace);
        trace.line(0, || format!("{plan:?}"));
        Self {
            bug: options.bug,
            daemon,
            daemons: 1,
            model: Model::default(),
            calendar: BTreeMap::new(),
            scheduled: 0,
            now_us: 0,
            draws: Stream::new(seed, "weight updates"),
            engines: engines.collect(),
            awaited: BTreeSet::new(),
            chains: BTreeMap::new(),
            trainer: Trainer::default(),
            clients: vec![Client::default(); plan.clients],
            steps: BTreeMap::new(),
            oldest: BTreeMap::new(),
            numbers: 0,
            counts: EventCounts::default(),
            trace,
            plan,
        }
    }

    fn play(&mut self) -> Checked {
        self.prepare()?;
        while !self.is_over() {
            let wakes_us = self.wakes_us();
            let next_us = self.calendar.keys().next().map(|(at, _)| *at);
            if let Some(at) = wakes_us.filter(|at| next_us.is_none_or(|next| *at <= next)) {
                self.now_us = at;
                self.handle(DaemonEvent::TimerFired.into())?;
                continue;
            }
            let Some(((at, _), due)) = self.calendar.pop_first() else {
                return broken("liveness", "nothing happens any more");
            };
            self.now_us = at;
            if at > self.plan.calm_us + BACK_US_MAX {
                return broken("liveness", self.describe());
            }
            self.happens(due)?;
        }
        self.daemon.restart().map(drop)
    }

    /// When the core wants to be woken.
    fn wakes_us(&self) -> Option<u64> {
        let at = self.daemon.wakes_at()?;
        if self.bug == Some(WeightsBug::NoTimer) {
            let weights = self.daemon.core().weights();
            let updates = weights.jobs.values().filter_map(|job| job.update.as_ref());
            let mut rests = weights.holdings.values().map(|holding| holding.rests_until);
            let mut ready = updates.map(Update::ready_by);
            if rests.any(|rest| rest == at) || ready.any(|by| by == at) {
                return None;
            }
        }
        Some(at.0.max(self.now_us))
    }

    /// The engines, the job, and what is planned.
    fn prepare(&mut self) -> Checked {
        for worker in self.engines.keys().copied().collect::<Vec<_>>() {
            let added = ProgramEvent::WorkerAdded {
                worker,
                url: format!("http://engine-{}", worker.0).into(),
                engine: EngineKind::Vllm,
                capacity: Capacity::default(),
                role: None,
            };
            self.handle(added.into())?;
        }
        self.call(TrainingEvent::JobDeclared {
            job: JOB.into(),
            settings: Box::new(self.plan.settings.clone()),
        })?;
        self.trainer_in(0);
        for at in self.plan.restarts_us.clone() {
            self.at(at, Due::Restart);
        }
        if self.plan.disturbed_us > 0 {
            self.after(self.plan.disturbed_us, Due::Disturb);
        }
        for client in 0..self.clients.len() {
            self.at(1_000, Due::Client { client, epoch: 0 });
        }
        Ok(())
    }

    fn happens(&mut self, due: Due) -> Checked {
        match due {
            Due::Client { client, epoch } => self.client_acts(client, epoch),
            Due::Token(step) => self.token(step),
            Due::Aborted(step) => self.abort_ends(step),
            Due::Assemble(member) => self.assemble(&member),
            Due::Trainer(epoch) => self.trainer_acts(epoch),
            Due::Relay(number) => self.relay_acts(number),
            Due::Called { worker, process } => self.call_ends(worker, process),
            Due::Timeout { worker, number } => self.times_out(worker, number),
            Due::Broken(worker, job) => self.call_breaks(worker, &job),
            // It may have died more than once since.
            Due::Starts(worker) if self.engine(worker).up => Ok(()),
            Due::Starts(worker) => {
                self.start(worker);
                let notices_us = self.draws.between_low(0, 3 * SECOND_US);
                self.after(
                    notices_us,
                    Due::Told {
                        worker,
                        lost: false,
                    },
                );
                Ok(())
            }
            Due::Told { worker, lost } => self.tell(worker, lost),
            Due::Disturb => {
                self.disturb();
                Ok(())
            }
            Due::Restart => self.restart(),
        }
    }

    fn at(&mut self, at_us: u64, due: Due) {
        self.scheduled += 1;
        self.calendar.insert((at_us, self.scheduled), due);
    }

    fn after(&mut self, delay_us: u64, due: Due) {
        self.at(self.now_us + delay_us, due);
    }

    fn is_calm(&self) -> bool {
        self.now_us >= self.plan.calm_us
    }

    /// True with this probability in percent, as long as things go wrong.
    fn goes_wrong(&mut self, percent: u64) -> bool {
        self.draws.percent(percent) && !self.is_calm()
    }

    /// Some time without faults has passed, and all engines serve the version in service.
    fn is_over(&self) -> bool {
        let core = self.daemon.core();
        let job = core.weights().jobs.get(JOB);
        let serving = job.and_then(|job| job.serving.as_ref());
        let serves = |worker: &WorkerId, engine: &Engine| {
            let holding = core.weights().holding(*worker);
            let is_fenced = core.programs().workers.get(worker).is_none_or(|w| w.fenced);
            let holds = holding.is_some_and(|h| h.serves(serving)) && !is_fenced;
            let content = serving.map(|weights| Content::Whole(Version::of(weights)));
            holds && engine.up && Some(engine.content) == content
        };
        let mut engines = self.engines.iter();
        self.trainer.calm_updates >= 2 && engines.all(|(worker, engine)| serves(worker, engine))
    }

    fn describe(&self) -> String {
        let weights = self.daemon.core().weights();
        let engines = self.engines.keys().map(|worker| {
            let why = weights.why_fenced(*worker).unwrap_or_default();
            format!("{worker}: {why}; {:?}", weights.holding(*worker))
        });
        let engines = engines.collect::<Vec<_>>().join(", ");
        format!(
            "{:?} after {} updates: {engines}",
            self.trainer, self.trainer.calm_updates
        )
    }

    /// The core is to be told of a loss, and later that the engine answers again.
    fn lose(&mut self, worker: WorkerId, after_us: u64) {
        self.engine(worker).lost = true;
        self.after(after_us, Due::Told { worker, lost: true });
    }

    fn tell(&mut self, worker: WorkerId, lost: bool) -> Checked {
        let up = self.engine(worker).up;
        if lost && up {
            // It was only out of reach.
            let back_us = self.draws.between(1, 60) * SECOND_US;
            self.after(
                back_us,
                Due::Told {
                    worker,
                    lost: false,
                },
            );
        }
        let event = if lost {
            let cause = "it does not answer".into();
            ProgramEvent::WorkerLost { worker, cause }
        } else if up {
            self.engine(worker).lost = false;
            ProgramEvent::WorkerRecovered { worker }
        } else {
            return Ok(());
        };
        // It is asked what it has, once it answers. A call that is under way was made before.
        let engine = self.engine(worker);
        if engine.seen == Seen::Unnoticed && engine.busy.is_none() {
            engine.seen = Seen::Known;
        }
        self.handle(event.into())
    }

    fn disturb(&mut self) {
        let pause_us = self.draws.between(SECOND_US, self.plan.disturbed_us);
        self.after(pause_us, Due::Disturb);
        let worker = WorkerId(self.draws.below(u64::from(self.plan.engines)) as u32);
        let kind = self.draws.below(3);
        let engine = self.engine(worker);
        if engine.lost || !engine.up || self.is_calm() {
            return;
        }
        match kind {
            0 => self.crash(worker),
            // Nothing shows it, if answers name no version.
            1 if self.plan.software.names => self.restart_unnoticed(worker),
            _ => self.lose(worker, 1_000),
        }
    }

    /// The daemon is killed and started again.
    fn restart(&mut self) -> Checked {
        self.counts.count("restarts");
        self.daemons += 1;
        self.drop_calls();
        self.trainer_loses_daemon();
        self.clients_lose_daemon();
        let restarted = self.daemon.restart()?;
        self.handle(restarted)?;
        if let Some(bug) = self.bug {
            self.daemon.spoil(|state| bug.state(state, true));
        }
        Ok(())
    }

    /// Handles an event that the daemon has accepted.
    fn handle(&mut self, event: Event) -> Checked {
        self.trace.line(self.now_us, || format!("{event:?}"));
        self.trace.feed(event.kind().as_bytes());
        self.trace.feed(&self.now_us.to_le_bytes());
        self.counts.count(event.kind());
        let event = match self.bug {
            Some(bug) => bug.event(event),
            None => Some(event),
        };
        let Some(event) = event else { return Ok(()) };
        let mut commands = self.daemon.handle(self.now_us, event)?;
        if let Some(bug) = self.bug {
            bug.commands(&mut commands);
            self.daemon.spoil(|state| bug.state(state, false));
        }
        self.note_fences();
        for command in commands {
            self.trace.line(self.now_us, || format!("    {command:?}"));
            self.commanded(command)?;
        }
        self.model
            .settled(self.daemon.core(), &self.engines, &self.awaited)?;
        self.check_waits()
    }

    fn note_fences(&mut self) {
        let core = self.daemon.core();
        for (worker, engine) in &mut self.engines {
            let fenced = core
                .programs()
                .workers
                .get(worker)
                .is_some_and(|w| w.fenced);
            if !fenced {
                engine.fenced_us = self.now_us;
            }
            let holding = core.weights().holding(*worker);
            if holding.is_some_and(|holding| !holding.sound && holding.loading.is_none()) {
                engine.proven = None;
            }
        }
    }

    fn commanded(&mut self, command: Command) -> Checked {
        match command {
            Command::Program(command) => self.program_commanded(&command),
            Command::Training(TrainingCommand::AdmitMember { program, surplus }) => {
                self.admitted(&program, surplus);
                Ok(())
            }
            Command::Training(TrainingCommand::AssembleMember { member }) => {
                self.after(SECOND_US, Due::Assemble(member));
                Ok(())
            }
            Command::Weights(WeightsCommand::Call {
                worker,
                number,
                call,
                weights,
                ..
            }) => {
                if call == Call::Pause {
                    self.check_pause(worker)?;
                }
                if call == Call::Resume {
                    self.excuse(worker, Version::of(&weights));
                }
                self.own_call(worker, number, call, weights);
                Ok(())
            }
            Command::Training(_) | Command::Action(_) => Ok(()),
        }
    }

    /// A lie is found by comparing engines. One that resumes while no other has proven the version
    /// is believed: nothing could show that it has something else.
    fn excuse(&mut self, worker: WorkerId, version: Version) {
        let others = self.engines.iter().filter(|(other, _)| **other != worker);
        let has = |engine: &Engine| {
            engine.proven == Some(version) && engine.content == Content::Whole(version)
        };
        let is_compared = others.into_iter().any(|(_, engine)| has(engine));
        let lies = self.plan.liar == Some(worker);
        let engine = self.engine(worker);
        let is_sound = engine.content == Content::Whole(version);
        if lies && !is_compared && !is_sound {
            engine.seen = Seen::Believed;
            self.counts.count("believed");
        }
    }
}
