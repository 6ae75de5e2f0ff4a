//! The environment of a run beyond its options, and its observer.

use super::schedule::Schedule;
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_core::programs::Decision;
use treadle_core::training::Affinity;
use treadle_engine_model::engine::EngineProfile;

/// The job of runs without a schedule.
const JOB: &str = "simulation";

/// Environment of a run. The default is that of [`simulate`](super::simulate).
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment<'a> {
    /// When runs begin; without it, in the slots of [`ClusterOptions`](super::ClusterOptions).
    pub schedule: Option<&'a Schedule>,
    /// KV memory of each engine in tokens; engines beyond its length have the profile's.
    pub kv_tokens: &'a [u64],
    /// The class of hardware of each engine, if it has one.
    pub classes: &'a [Option<Box<str>>],
    /// Which classes runs prefer, if any does.
    pub preferences: Option<&'a Preferences>,
    /// Output limit that clients set for each step, by run and step, if any.
    pub output_limits: &'a [Vec<Option<u64>>],
    /// Actions that tool runners report after each step, by run and step, if any.
    pub actions: &'a [Vec<Vec<ToolAction>>],
    /// Number of cores that tools compete for, as actions of the scheduler; without it tools never
    /// wait and the scheduler does not see them.
    pub tool_cores: Option<u64>,
    /// Time to send a step to its engine, in microseconds.
    pub request_overhead_us: u64,
    /// Ranks of each engine; without it an engine has one cache.
    pub ranks: Option<EngineRanks>,
    /// Whether the scheduler is told which programs are samples of one task.
    pub reports_groups: bool,
    /// Whether answers come in one piece, so that nothing is reported to the scheduler before a
    /// step's end.
    pub whole_answers: bool,
}

/// Ranks of data parallelism, each with the profile's memory and a cache, that step together
/// ([`Ranks`](treadle_engine_model::engine::Ranks)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EngineRanks {
    /// Number of ranks of each engine, at least 1.
    pub count: u32,
    /// What decides at which rank a step runs.
    pub chosen_by: RankChoice,
}

/// What decides at which rank of its engine a step runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RankChoice {
    /// The scheduler: each rank is a worker.
    Scheduler,
    /// The engine, as vLLM does; it is one worker. A program's steps go wherever fewest run.
    Engine,
    /// A hash of the step's program, as routers that hash a program's id; the engine is one worker.
    Program,
}

impl EngineRanks {
    /// Number of workers that an engine is to the scheduler.
    pub(super) fn workers(self) -> u32 {
        match self.chosen_by {
            RankChoice::Scheduler => self.count,
            RankChoice::Engine | RankChoice::Program => 1,
        }
    }
}

/// An action as a tool runner reports it. Times are microseconds after the answer that it follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ToolAction {
    /// The tool.
    pub tool: Box<str>,
    /// When it begins.
    pub begins_us: u64,
    /// When it ends; `None` if the end is not reported.
    pub ends_us: Option<u64>,
    /// Whether it succeeds.
    pub ok: bool,
}

impl Environment<'_> {
    /// The actions that tool runners report after a step.
    pub(super) fn actions_after(&self, run: usize, step: usize) -> &[ToolAction] {
        let steps = self.actions.get(run);
        steps
            .and_then(|steps| steps.get(step))
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn profile(&self, engine: usize, profile: &EngineProfile) -> EngineProfile {
        match self.kv_tokens.get(engine) {
            Some(tokens) => profile.clone().with_kv_tokens(*tokens),
            None => profile.clone(),
        }
    }

    pub(super) fn output_limit(&self, run: usize, step: usize) -> Option<u64> {
        *self.output_limits.get(run)?.get(step)?
    }

    pub(super) fn job_of(&self, run: usize) -> &str {
        self.schedule.map_or(JOB, |schedule| schedule.job_of(run))
    }
}

/// An answered step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StepSeen {
    /// Index of its run in the workload.
    pub run: usize,
    /// When it was sent, in microseconds of virtual time.
    pub sent_us: u64,
    /// When its answer was complete, in microseconds of virtual time.
    pub ended_us: u64,
}

/// Observes a cluster. Times are microseconds of virtual time.
pub trait Watch {
    /// Called before the core handles an event.
    fn heard(&mut self, _now_us: u64, _event: &Event) {}
    /// Called for each decision, if the core's settings enable explanations.
    fn decided(&mut self, _decision: &Decision) {}
    /// Called when a step is answered.
    fn finished(&mut self, _step: &StepSeen) {}
    /// Called when a run ends.
    fn ended(&mut self, _run: usize, _now_us: u64) {}
    /// Called before time advances to `next_us`, and after each step that is sent; `false` ends the
    /// run.
    fn goes_on(&mut self, _next_us: u64) -> bool {
        true
    }
}

/// No observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Watch for NoObserver {}

/// Which classes of hardware runs prefer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Preferences {
    /// What training jobs say of their domains, by job.
    pub jobs: BTreeMap<Box<str>, Affinity>,
    /// What each run is a member of; it prefers nothing if that is absent.
    pub members: Vec<Option<MemberOf>>,
}

/// The training job that a run is a member of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberOf {
    /// The job.
    pub job: Box<str>,
    /// The domain of its group, if that has one.
    pub domain: Option<Box<str>>,
}
