//! The simulation of a run, in virtual time: engines, environments, judges, a trainer and weights, around
//! the core's machine.
//!
//! Events are handled in order of time, and at equal times in the order in which they were
//! scheduled, so a run depends only on its set-up.

use super::control::{Control, JOB};
use super::fleet::{Fleet, Report};
use super::judges::Pool;
use super::outcome::{Conserved, LengthFigures, Outcome};
use super::programs::Program;
use super::shaper::Shaper;
use super::stream::Stream;
use super::system::{Bound, Setup};
use super::trainer::Trainer;
use std::collections::BTreeMap;
use thiserror::Error;
use treadle_core::training::{MemberRef, TrainingCommand, TrainingEvent};
use treadle_engine_model::hardware::HardwareError;
use treadle_plugin::PolicyError;

/// Why a run can't begin.
#[derive(Debug, Error)]
pub enum SetupError {
    /// No engine can be modelled on the accelerators.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// The policy is not there, or does not take its configuration.
    #[error("the shaping policy: {0}")]
    Policy(#[from] PolicyError),
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// The environment of a program has answered, or is there.
    Environment(usize),
    /// The reward of a program is there.
    Reward(usize),
    /// The trainer has trained on its batch.
    Trained,
    /// A version of the weights is in the memory of the engines' hosts.
    Arrived(u64),
    /// Engines have loaded a version.
    Loaded(u64),
}

/// Groups that are queued beyond those that may have begun, in batches.
const QUEUED_BATCHES: u64 = 3;

/// Time without anything that happens after which a run is given up: a day.
const STALLED_US: u64 = 86_400_000_000;

/// A run.
pub(super) struct Simulation<'a> {
    pub(super) setup: &'a Setup,
    pub(super) control: Control,
    pub(super) fleet: Fleet,
    pub(super) judges: Pool,
    pub(super) trainer: Trainer,
    pub(super) programs: Vec<Program>,
    /// Programs of each group, by its number.
    pub(super) groups: BTreeMap<u64, Vec<usize>>,
    /// Programs that run.
    pub(super) running: usize,
    /// Programs that wait for the turn of all.
    pub(super) at_barrier: Vec<usize>,
    /// Programs that wait for the rewards of all.
    pub(super) unrewarded: Vec<usize>,
    pub(super) rewards: Stream,
    pub(super) now: u64,
    pub(super) outcome: Outcome,
    calendar: BTreeMap<Place, Due>,
    scheduled: u64,
    submitted: u64,
}

/// A time, and the order of what happens then.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    at_us: u64,
    number: u64,
}

/// Runs a set-up to its end.
///
/// # Errors
/// The accelerators can't be modelled, or the policy refuses its configuration.
pub(super) fn run(setup: &Setup) -> Result<Outcome, SetupError> {
    let mut simulation = Simulation::new(setup)?;
    simulation.play();
    Ok(simulation.ended())
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup) -> Result<Self, SetupError> {
        let settings = setup.system.settings(setup.members, setup.groups);
        let shaper = Shaper::new(&setup.system.shaping)?;
        // Only a policy asks how far a member is.
        let report_tokens = if shaper.is_some() { 256 } else { u32::MAX };
        Ok(Self {
            setup,
            control: Control::new(settings, shaper, setup.audited),
            fleet: Fleet::new(&setup.hardware, report_tokens)?,
            judges: Pool::new(setup.system.judges),
            trainer: Trainer::default(),
            programs: Vec::new(),
            groups: BTreeMap::new(),
            running: 0,
            at_barrier: Vec::new(),
            unrewarded: Vec::new(),
            rewards: Stream::of(setup.seed, &[3]),
            now: 0,
            outcome: Outcome::default(),
            calendar: BTreeMap::new(),
            scheduled: 0,
            submitted: 0,
        })
    }

    fn play(&mut self) {
        self.trainer_waits();
        self.feed();
        self.carry_out();
        while !self.is_over() {
            let times = [
                self.calendar.keys().next().map(|place| place.at_us),
                self.fleet.next_at(),
                self.control.wakes_at(),
            ];
            let next = times.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next < self.now + STALLED_US) else {
                self.outcome.stalled = true;
                return;
            };
            self.now = self.now.max(next);
            for report in self.fleet.advance(self.now) {
                self.reported(report);
            }
            while let Some(entry) = self.calendar.first_entry()
                && entry.key().at_us <= self.now
            {
                let due = entry.remove();
                self.happens(due);
            }
            if self.control.wakes_at().is_some_and(|at| at <= self.now) {
                self.control.timer(self.now);
            }
            self.carry_out();
        }
    }

    fn is_over(&self) -> bool {
        self.outcome.batches.len() as u64 >= self.setup.steps
    }

    pub(super) fn after(&mut self, delay_us: u64, due: Due) {
        self.at(self.now + delay_us, due);
    }

    pub(super) fn at(&mut self, at_us: u64, due: Due) {
        self.scheduled += 1;
        let number = self.scheduled;
        self.calendar.insert(Place { at_us, number }, due);
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::First(program) => self.first_token(program),
            Report::Tokens(program, tokens) => self.progressed(program, tokens),
            Report::Done(program) => self.turn_done(program),
        }
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Environment(program) => self.environment_answered(program),
            Due::Reward(program) => self.rewarded(program),
            Due::Trained => self.trained(),
            Due::Arrived(version) => self.weights_arrived(version),
            Due::Loaded(version) => self.weights_loaded(version),
        }
    }

    /// Carries out what the core wants, and begins programs, until nothing more follows.
    fn carry_out(&mut self) {
        loop {
            while let Some(command) = self.control.commands.pop_front() {
                match command {
                    TrainingCommand::AdmitMember { program, surplus } => {
                        self.admitted(&program, surplus);
                    }
                    TrainingCommand::DropMember {
                        program, running, ..
                    } => {
                        if running {
                            self.ended_by_core(&program);
                        }
                    }
                    TrainingCommand::ServeBatch { batch, .. } => {
                        self.batch_cut(batch);
                        self.feed();
                    }
                    TrainingCommand::AskShaping { .. }
                    | TrainingCommand::Record { .. }
                    | TrainingCommand::ScoreMember { .. }
                    | TrainingCommand::AssembleMember { .. } => {}
                }
            }
            self.release_barrier();
            self.load_if_possible();
            if !self.begin_programs() {
                return;
            }
        }
    }

    /// Keeps prompts queued.
    fn feed(&mut self) {
        let ahead = match self.setup.system.bound {
            Bound::Lag { pipeline, .. } => pipeline + 1,
            Bound::Aggregate { eta } => eta + 1,
        };
        let wanted = u64::from(self.setup.groups) * (ahead + QUEUED_BATCHES);
        let queued = |control: &Control| control.job().map_or(0, |job| job.open.len() as u64);
        while queued(&self.control) < wanted {
            let number = self.submitted;
            self.submitted += 1;
            let prompt = number % self.setup.workload.prompts.max(1);
            let domain = self.setup.workload.domain(prompt).name;
            let event = TrainingEvent::GroupSubmitted {
                job: JOB.into(),
                group: group_key(number),
                size: None,
                content: Some(format!("q{prompt}").into()),
                domain: Some(domain.into()),
            };
            self.control.event(self.now, &event);
        }
    }

    /// Whether the rule on the sum lets another group begin (`AReaL`'s `StalenessManager`).
    fn may_begin_group(&self) -> bool {
        let Bound::Aggregate { eta } = self.setup.system.bound else {
            return true;
        };
        let Some(job) = self.control.job() else {
            return false;
        };
        let cut = (job.next_batch - 1) * u64::from(self.setup.groups);
        let begun = cut + job.begun.len() as u64;
        let version = job.version.unwrap_or_default();
        begun < (eta + version + 1) * u64::from(self.setup.groups)
    }

    /// Begins programs that groups need and that may begin; false if none did.
    fn begin_programs(&mut self) -> bool {
        let mut has_begun = false;
        loop {
            let program: Box<str> = format!("p{}", self.programs.len()).into();
            let Some(group) = self.control.next_group(&program) else {
                return has_begun;
            };
            let known = self.control.job().and_then(|job| job.groups.get(&group));
            let is_new = known.is_none_or(|group| group.members.is_empty());
            if is_new && !self.may_begin_group() {
                return has_begun;
            }
            has_begun = true;
            self.programs.push(Program::waiting(number_of(&group)));
            let member = MemberRef {
                job: JOB.into(),
                group,
                program,
            };
            let direct = false;
            let event = TrainingEvent::MemberArrived { member, direct };
            self.control.event(self.now, &event);
            if !self.control.commands.is_empty() {
                return true;
            }
        }
    }

    fn ended(mut self) -> Outcome {
        let job = self.control.job();
        let in_groups = job.map_or(0, |job| {
            let groups = job.groups.values();
            groups.map(|group| group.members.len() as u64).sum()
        });
        let queued = job.map_or(0, |job| job.groups.len() as u64);
        let given_up = job.map_or(0, |job| job.account.never_served);
        let account = job.map(|job| job.account.clone()).unwrap_or_default();
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.count(&account, in_groups);
        let cut = self.trainer.groups_cut;
        outcome.conserved = Conserved {
            groups_submitted: self.submitted,
            groups_accounted: cut + queued + given_up,
            ..outcome.conserved
        };
        outcome.average(self.setup.warmup);
        outcome.engines_busy = self.fleet.busy_share(self.now);
        outcome.judges_busy = self.judges.busy_share(self.now);
        let steps = self.setup.steps.max(1) as f64;
        outcome.paused_s = self.trainer.paused_us as f64 / 1e6 / steps;
        outcome.transfer_s = self.trainer.transfer_us as f64 / 1e6 / steps;
        outcome.step_cost = outcome.step_s * self.setup.hardware.cost();
        outcome.shift = self.trainer.shift;
        let begun = self.programs.iter().filter_map(Program::length);
        outcome.begun = LengthFigures::of(&begun.collect::<Vec<u64>>());
        outcome.trained = LengthFigures::of(&self.trainer.lengths);
        outcome
    }
}

/// The key of a group.
pub(super) fn group_key(number: u64) -> Box<str> {
    format!("g{number}").into()
}

/// The number in a key.
pub(super) fn number_of(key: &str) -> u64 {
    key[1..].parse().unwrap_or(0)
}
