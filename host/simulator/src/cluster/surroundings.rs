//! What a run may have around it beside its options, and who looks on.

use super::schedule::Schedule;
use treadle_core::Event;
use treadle_core::explain::Decision;
use treadle_engine_model::engine::EngineProfile;

/// The job of runs that no schedule names one for.
const JOB: &str = "simulation";

/// Surroundings of a run. The default is what [`simulate`](super::simulate) has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// When runs start; without it, slots by [`ClusterOptions`](super::ClusterOptions).
    pub schedule: Option<&'a Schedule>,
    /// KV memory of each engine, in tokens, instead of the profile's; an engine past the end has
    /// the profile's.
    pub kv_tokens: &'a [u64],
    /// What clients let each step generate at most, by run and step; nothing where absent.
    pub output_limits: &'a [Vec<Option<u64>>],
    /// What tool runners report of the actions after each step, by run and step; nothing where
    /// absent.
    pub actions: &'a [Vec<Vec<ToolAction>>],
    /// Cores that tools compete for, as actions that the scheduler starts; without it each has what
    /// it needs and the scheduler sees nothing of it.
    pub tool_cores: Option<u64>,
    /// Time that a step takes to its engine, in microseconds.
    pub request_overhead_us: u64,
    /// Answers come in one piece: nothing is reported to the scheduler of a step before its end.
    pub whole_answers: bool,
}

/// An action of a tool runner, as it reports it. Times are microseconds after the answer that the
/// action follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ToolAction {
    /// The tool.
    pub tool: Box<str>,
    /// When it begins.
    pub begins_us: u64,
    /// When it ends; `None` if that is not reported.
    pub ends_us: Option<u64>,
    /// False if it fails.
    pub ok: bool,
}

impl Surroundings<'_> {
    /// What tool runners report after a step.
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

/// A step that was answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StepSeen {
    /// Its run, an index of the workload.
    pub run: usize,
    /// When it was sent, in microseconds of virtual time.
    pub sent_us: u64,
    /// When its answer had come.
    pub ended_us: u64,
}

/// Looks on as a cluster runs. Times are microseconds of virtual time.
pub trait Watch {
    /// The core is about to handle an event.
    fn heard(&mut self, _now_us: u64, _event: &Event) {}
    /// The core has decided; only where the core's settings let it explain.
    fn decided(&mut self, _decision: &Decision) {}
    /// A step was answered.
    fn finished(&mut self, _step: &StepSeen) {}
    /// A run is over.
    fn ended(&mut self, _run: usize, _now_us: u64) {}
    /// Asked before time moves on to `next_us`, and after each step that is sent; `false` ends it
    /// all there.
    fn goes_on(&mut self, _next_us: u64) -> bool {
        true
    }
}

/// No observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Watch for NoObserver {}
