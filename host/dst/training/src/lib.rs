//! Simulations of training runs: the core's machine of groups, batches and versions among clients
//! that sample, programs whose requests treadle forwards, and trainers, in virtual time.
//!
//! One seed decides everything. Up to some time things go wrong on purpose: members fail or never
//! end, calls come twice, late or wrong, the daemon is killed, trainers go back to checkpoints, jobs
//! get other settings or are removed. After that the world keeps answering, and each prompt has to
//! find its way into a batch.

mod bug;
mod clients;
mod daemon;
mod faults;
mod model;
mod plan;
mod programs;
mod shaping;
mod trainers;
mod weights;

pub use bug::TrainingBug;
pub use weights::{WeightsBug, WeightsOptions, explore_weights};

use clients::Client;
use daemon::Daemon;
use model::{Model, ProgramEnd};
use plan::{Plan, SECOND_US};
use programs::RunningStep;
use std::collections::BTreeMap;
use trainers::Trainer;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_core::training::{MemberRef, TrainingCommand, TrainingEvent};
use treadle_core::{Command, CoreConfig, DaemonEvent, Event, Mode};
use treadle_dst_outcome::Stream;
use treadle_dst_outcome::{Checked, EventCounts, Outcome, Trace, broken};
use treadle_model::{EngineKind, Span, StepId, WorkerId};

/// Time after which a trainer must have got its next batch, once nothing fails any more.
const BATCH_US_MAX: u64 = 3_000 * SECOND_US;

/// Options of a seed's simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainingOptions {
    /// A deliberate fault of the code under test.
    pub bug: Option<TrainingBug>,
    /// Whether to record a trace.
    pub trace: bool,
}

/// A scheduled event.
#[derive(Clone, Debug)]
enum Due {
    /// A client's next act, if it still does what it did.
    Client {
        client: usize,
        epoch: u64,
    },
    /// The first token of a step, then its end.
    Token(StepId),
    Answer(StepId),
    /// A call that may be refused.
    Call(Box<TrainingEvent>),
    /// The reward of a member, or of its group, is computed.
    Score(MemberRef),
    /// The sample of a member is assembled.
    Assemble(MemberRef),
    Feed(usize),
    Trainer {
        job: usize,
        epoch: u64,
    },
    Declare {
        job: usize,
        index: usize,
    },
    Remove(usize),
    BadCall(usize),
    /// A job's shaping policy is bound, or unbound.
    Bind {
        job: usize,
        binds: bool,
    },
    /// An answer of a shaping policy.
    Shape(Box<TrainingEvent>),
    Restart,
}

struct Simulation {
    plan: Plan,
    daemon: Daemon,
    model: Model,
    calendar: BTreeMap<(u64, u64), Due>,
    scheduled: u64,
    now_us: u64,
    draws: Stream,
    shaping: Stream,
    clients: Vec<Client>,
    trainers: Vec<Trainer>,
    steps: BTreeMap<StepId, RunningStep>,
    /// Programs that were released: whether their last step was answered.
    released: BTreeMap<Box<str>, bool>,
    names: u64,
    counts: EventCounts,
    trace: Trace,
}

/// Runs the simulation of a seed.
pub fn explore_training(seed: u64, options: TrainingOptions) -> Outcome {
    let mut simulation = Simulation::new(seed, options);
    let violation = simulation.play().err();
    if let Some(violation) = &violation {
        let text = format!("broken: {}: {}", violation.rule, violation.what);
        simulation.trace.line(simulation.now_us, || text);
    }
    Outcome {
        seed,
        programs: simulation.names as usize,
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
    fn new(seed: u64, options: TrainingOptions) -> Self {
        let plan = Plan::draw(seed);
        let config = CoreConfig {
            mode: Mode::LeastLoad,
            program_idle_max: Span::from_micros(plan.idle_us),
            explain: false,
            ..CoreConfig::default()
        };
        let clients = plan.jobs.iter().enumerate();
        let clients = clients.flat_map(|(job, plan)| vec![Client::of(job); plan.clients]);
        Self {
            daemon: Daemon::new(config, options.bug, plan.snapshot_events),
            model: Model::default(),
            calendar: BTreeMap::new(),
            scheduled: 0,
            now_us: 0,
            draws: Stream::new(seed, "training runs"),
            shaping: Stream::new(seed, "shaping policies"),
            clients: clients.collect(),
            trainers: vec![Trainer::default(); plan.jobs.len()],
            steps: BTreeMap::new(),
            released: BTreeMap::new(),
            names: 0,
            counts: EventCounts::default(),
            trace: Trace::new(options.trace),
            plan,
        }
    }

    fn play(&mut self) -> Checked {
        self.prepare()?;
        while !(0..self.plan.jobs.len()).all(|job| self.is_done(job)) {
            let wakes_us = self.daemon.wakes_at().map(|at| at.0.max(self.now_us));
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
            self.check_progress()?;
            self.happens(due)?;
        }
        self.check_all_batches()
    }

    /// An engine, the jobs, and what is planned.
    fn prepare(&mut self) -> Checked {
        let worker = ProgramEvent::WorkerAdded {
            worker: WorkerId(0),
            url: "http://engine".into(),
            engine: EngineKind::Vllm,
            capacity: Capacity::default(),
            role: None,
        };
        self.handle(worker.into())?;
        let class = ProgramEvent::WorkerClassSet {
            worker: WorkerId(0),
            class: Some("here".into()),
        };
        self.handle(class.into())?;
        for job in 0..self.plan.jobs.len() {
            self.declare(job, &self.plan.jobs[job].settings.clone())?;
            let planned = self.plan.jobs[job].clone();
            for (index, declaration) in planned.declared_again.iter().enumerate() {
                self.at(declaration.at_us, Due::Declare { job, index });
            }
            if let Some(at) = planned.removed_us {
                self.at(at, Due::Remove(job));
            }
            self.at(0, Due::Feed(job));
            self.at(0, Due::Trainer { job, epoch: 0 });
            self.at(self.plan.calm_us / 3, Due::BadCall(job));
            for bound in planned.bound {
                let binds = bound.binds;
                self.at(bound.at_us, Due::Bind { job, binds });
            }
        }
        for at in self.plan.restarts_us.clone() {
            self.at(at, Due::Restart);
        }
        for client in 0..self.clients.len() {
            self.at(0, Due::Client { client, epoch: 0 });
        }
        Ok(())
    }

    fn happens(&mut self, due: Due) -> Checked {
        match due {
            Due::Client { client, epoch } => self.client_acts(client, epoch),
            Due::Token(step) => self.first_token(step),
            Due::Answer(step) => self.step_ends(step),
            Due::Call(event) => self.call(*event).map(drop),
            Due::Score(member) => self.score(&member),
            Due::Assemble(member) => self.assemble(&member),
            Due::Feed(job) => self.feed(job),
            Due::Trainer { job, epoch } => self.trainer_acts(job, epoch),
            Due::Declare { job, index } => self.declare_again(job, index),
            Due::Remove(job) => self.remove(job),
            Due::BadCall(job) => self.bad_call(job),
            Due::Bind { job, binds } => self.bind(job, binds),
            Due::Shape(event) => self.handle((*event).into()),
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

    /// A call of a client or a trainer, which may be refused; true if it was not. Now and then it
    /// comes again, at once or later.
    fn call(&mut self, event: TrainingEvent) -> Checked<bool> {
        if self.daemon.check(&event).is_err() {
            self.counts.count("refused");
            return Ok(false);
        }
        self.handle(event.clone().into())?;
        if self.goes_wrong(self.plan.again_percent) {
            self.call_again(event)?;
        }
        Ok(true)
    }

    /// Handles an event that the daemon has accepted.
    fn handle(&mut self, event: Event) -> Checked {
        self.trace.line(self.now_us, || format!("{event:?}"));
        self.trace.feed(event.kind().as_bytes());
        self.trace.feed(&self.now_us.to_le_bytes());
        self.counts.count(event.kind());
        self.model.event(self.now_us, &event);
        let commands = self.daemon.handle(self.now_us, event)?;
        for command in &commands {
            self.trace.line(self.now_us, || format!("    {command:?}"));
            if let Command::Program(ProgramCommand::ForgetProgram { program }) = command {
                let whole = self.released.remove(&program.key).unwrap_or(false);
                if !is_cut(&program.key, &commands) {
                    self.model.over(program, ProgramEnd { whole });
                }
            }
        }
        for command in &commands {
            if let Command::Training(command) = command {
                self.model.command(command, self.daemon.jobs())?;
            }
        }
        self.model
            .settled(self.daemon.jobs(), self.daemon.wakes_at())?;
        for command in commands {
            match command {
                Command::Training(command) => self.commanded(command),
                Command::Program(command) => self.program_commanded(command)?,
                Command::Action(_) | Command::Weights(_) => {}
            }
        }
        Ok(())
    }

    fn commanded(&mut self, command: TrainingCommand) {
        match command {
            TrainingCommand::AdmitMember { program, surplus } => self.admitted(&program, surplus),
            TrainingCommand::DropMember {
                program, running, ..
            } => self.dropped(&program, running),
            TrainingCommand::ServeBatch { .. } => self.counts.count("batches"),
            TrainingCommand::Record { .. } => {}
            TrainingCommand::AskShaping { ask, question, .. } => self.asked(ask, &question),
            TrainingCommand::ScoreMember { member } => {
                let delay_us = self.draws.between_low(100_000, 20 * SECOND_US);
                self.after(delay_us, Due::Score(member));
            }
            TrainingCommand::AssembleMember { member } => {
                let delay_us = self.draws.between_low(1_000, 2 * SECOND_US);
                self.after(delay_us, Due::Assemble(member));
            }
        }
    }

    /// Whether the present event ends a program because it is too old.
    fn check_progress(&self) -> Checked {
        for (job, trainer) in self.trainers.iter().enumerate() {
            let since_us = trainer.progress_us.max(self.plan.calm_us);
            if self.now_us > since_us + BATCH_US_MAX && !self.is_done(job) {
                let (name, batch) = (&self.plan.jobs[job].name, trainer.batch);
                return broken("liveness", format!("{name} waits for batch {batch}"));
            }
        }
        Ok(())
    }
}

/// Whether these commands end a program that is too old.
fn is_cut(key: &str, commands: &[Command]) -> bool {
    commands.iter().any(|command| {
        matches!(command, Command::Training(TrainingCommand::DropMember { program, running: true, .. })
            if **program == *key)
    })
}
