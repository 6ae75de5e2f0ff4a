//! Predictions during a rollout: before a program's first step, after each step, while its tool
//! runs, and when the tool has returned. Ended programs are learnt from.

use super::columns::{EXTRA_COLUMNS, Forecast, extra_columns, group_of};
use crate::workload::{AgentRun, ToolResult};
use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::programs::Program;
use treadle_model::ProgramId;
use treadle_plugin::{Estimates, FinishedColumns, LiveColumns, PolicyError, PredictionPolicy};

/// A prediction policy, whatever its type.
pub trait Prediction {
    /// Extra columns that the policy requests.
    fn columns(&self) -> &'static [&'static str];

    /// See [`PredictionPolicy::predict`].
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError>;
    /// See [`PredictionPolicy::learn`].
    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError>;
}

impl<P: PredictionPolicy> Prediction for P {
    fn columns(&self) -> &'static [&'static str] {
        P::COLUMNS
    }

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        PredictionPolicy::predict(self, programs)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        PredictionPolicy::learn(self, programs)
    }
}

/// The source of predictions.
pub enum Predictor {
    /// A policy.
    Policy(Box<dyn Prediction>),
    /// The truth, which only a simulator knows: remaining tokens after each step.
    Oracle(BTreeMap<Box<str>, Vec<f64>>),
}

impl Predictor {
    /// An oracle for these runs.
    pub fn oracle(runs: &[AgentRun]) -> Self {
        let remaining = |run: &AgentRun| {
            let mut left = run.output_tokens() as f64;
            let mut after = vec![left];
            for step in &run.steps {
                left -= f64::from(step.output_tokens);
                after.push(left);
            }
            (run.id.as_str().into(), after)
        };
        Self::Oracle(runs.iter().map(remaining).collect())
    }
}

/// The latest predictions.
pub struct Forecasts {
    predictor: Predictor,
    latest: BTreeMap<ProgramId, Forecast>,
    /// Observations of each program, for learning.
    seen: BTreeMap<ProgramId, Vec<Observation>>,
}

/// The state of a program after a step.
#[derive(Clone, Debug, Default)]
struct Observation {
    group: u64,
    tokens: u64,
    output_tokens: u64,
    steps: u32,
    tool_ms: u64,
    extra: Vec<f32>,
}

impl Forecasts {
    /// Forecasts of this predictor.
    pub fn new(predictor: Predictor) -> Self {
        Self {
            predictor,
            latest: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Learns from an earlier rollout: every program at every step.
    pub fn train(&mut self, runs: &[AgentRun]) {
        let Predictor::Policy(policy) = &mut self.predictor else {
            return;
        };
        for run in runs {
            let observations = observations_of(run, policy.columns());
            let columns = Columns::of(&observations);
            let (all, tool_ms) = (run.output_tokens(), run_tool_ms(run));
            let tokens: Vec<u64> = observations.iter().map(|s| all - s.output_tokens).collect();
            let tools: Vec<u64> = observations.iter().map(|s| tool_ms - s.tool_ms).collect();
            let _ = policy.learn(&columns.finished(&tokens, &tools));
        }
    }

    /// The predictor with its learnt state.
    pub fn into_predictor(self) -> Predictor {
        self.predictor
    }

    /// The latest forecast of a program.
    pub(super) fn of(&self, program: ProgramId) -> Option<Forecast> {
        self.latest.get(&program).copied()
    }

    /// Predicts the rest of these programs. `tool_ms` is the time that each has spent in tools;
    /// `returned` means that the tools have returned.
    pub(super) fn predict(
        &mut self,
        core: &Core,
        programs: &[ProgramId],
        returned: bool,
        tool_ms: impl Fn(ProgramId) -> u64,
    ) {
        let live = programs
            .iter()
            .filter_map(|id| core.programs().live.get(id));
        let live: Vec<&Program> = live.collect();
        let (names, policy) = match &mut self.predictor {
            Predictor::Oracle(truth) => {
                for program in live {
                    let left = truth.get(&program.key);
                    let left = left.and_then(|l| l.get(program.steps_finished as usize));
                    let forecast = Forecast {
                        remaining_tokens: left.copied().unwrap_or(0.0),
                        remaining_tool_s: 0.0,
                    };
                    self.latest.insert(program.id, forecast);
                }
                return;
            }
            Predictor::Policy(policy) => (policy.columns(), policy),
        };
        let observations = live
            .iter()
            .map(|p| Observation::of(p, returned, tool_ms(p.id), names));
        let observations: Vec<Observation> = observations.collect();
        let columns = Columns::of(&observations);
        if let Ok(estimates) = policy.predict(&columns.live()) {
            for (row, program) in live.iter().enumerate() {
                let forecast = Forecast {
                    remaining_tokens: estimates.remaining_tokens[row],
                    remaining_tool_s: estimates.remaining_tool_s[row],
                };
                self.latest.insert(program.id, forecast);
            }
        }
        for (program, observation) in live.iter().zip(observations) {
            self.seen.entry(program.id).or_default().push(observation);
        }
    }

    /// Learns from an ended program: its observations, and what followed each.
    pub(super) fn ended(&mut self, program: &Program, tool_ms: u64) {
        self.latest.remove(&program.id);
        let Some(observations) = self.seen.remove(&program.id) else {
            return;
        };
        if let Predictor::Policy(policy) = &mut self.predictor {
            let columns = Columns::of(&observations);
            let tokens = observations.iter().map(|observation| {
                program
                    .output_tokens_total
                    .saturating_sub(observation.output_tokens)
            });
            let tools = observations
                .iter()
                .map(|observation| tool_ms.saturating_sub(observation.tool_ms));
            let (tokens, tools): (Vec<u64>, Vec<u64>) = (tokens.collect(), tools.collect());
            // A policy that fails to learn keeps its state.
            let _ = policy.learn(&columns.finished(&tokens, &tools));
        }
    }
}

impl Observation {
    fn of(program: &Program, returned: bool, tool_ms: u64, names: &[&str]) -> Self {
        let extra = |name: &&str| extra_column(program, returned, name);
        Self {
            group: group_of(program),
            tokens: program.context_tokens.max(program.demand_tokens),
            output_tokens: program.output_tokens_total,
            steps: program.steps_finished,
            tool_ms,
            extra: names.iter().map(extra).collect(),
        }
    }
}

fn run_tool_ms(run: &AgentRun) -> u64 {
    run.steps.iter().map(|step| step.tool_us / 1_000).sum()
}

/// The observations of a recorded program, equal to those that [`Observation::of`] makes of a live
/// one: before its first step, after each step but the last, and after each tool call.
fn observations_of(run: &AgentRun, names: &[&str]) -> Vec<Observation> {
    let first = run.steps.first().map_or(0, |step| step.input_tokens);
    let mut seen = Observation {
        // The core's number of the group: the last part of its prompt's prefix.
        group: 2 + u64::from(run.group),
        tokens: first.into(),
        ..Observation::default()
    };
    let (mut last_ok, mut failed) = (-1.0, 0.0);
    let mut observations = Vec::new();
    for index in 0..run.steps.len() {
        let before = index.checked_sub(1).map(|before| run.steps[before]);
        for returned in [false, true] {
            if let Some(step) = before.filter(|_| returned) {
                let ok = step.tool_result != ToolResult::Failed;
                (last_ok, failed) = (f32::from(ok), failed + f32::from(!ok));
                seen.tool_ms += step.tool_us / 1_000;
            } else if returned {
                continue;
            }
            let column = |name: &&str| match (*name, before) {
                ("prompt-tokens", _) => first as f32,
                ("last-output-tokens", Some(step)) => step.output_tokens as f32,
                ("last-tool-ok", _) => last_ok,
                ("failed-tools", _) => failed,
                ("returned", Some(_)) => f32::from(returned),
                _ => -1.0,
            };
            seen.extra = names.iter().map(column).collect();
            observations.push(seen.clone());
        }
        let step = run.steps[index];
        seen.tokens = step.context_tokens().into();
        seen.output_tokens += u64::from(step.output_tokens);
        seen.steps += 1;
    }
    observations
}

/// The value of an extra column; -1 if unknown.
fn extra_column(program: &Program, returned: bool, name: &str) -> f32 {
    let at = EXTRA_COLUMNS.iter().position(|known| *known == name);
    at.map_or(-1.0, |at| extra_columns(program, returned)[at])
}

#[derive(Default)]
struct Columns {
    group: Vec<u64>,
    tokens: Vec<u64>,
    output_tokens: Vec<u64>,
    steps: Vec<u32>,
    tool_ms: Vec<u64>,
    extra: Vec<f32>,
}

impl Columns {
    fn of(observations: &[Observation]) -> Self {
        let mut columns = Self::default();
        for observation in observations {
            columns.group.push(observation.group);
            columns.tokens.push(observation.tokens);
            columns.output_tokens.push(observation.output_tokens);
            columns.steps.push(observation.steps);
            columns.tool_ms.push(observation.tool_ms);
        }
        let extras = observations
            .first()
            .map_or(0, |observation| observation.extra.len());
        for extra in 0..extras {
            columns.extra.extend(
                observations
                    .iter()
                    .map(|observation| observation.extra[extra]),
            );
        }
        columns
    }

    fn live(&self) -> LiveColumns<'_> {
        LiveColumns {
            group: &self.group,
            tokens: &self.tokens,
            output_tokens: &self.output_tokens,
            steps: &self.steps,
            tool_ms: &self.tool_ms,
            extra: &self.extra,
        }
    }

    fn finished<'a>(&'a self, tokens: &'a [u64], tool_ms: &'a [u64]) -> FinishedColumns<'a> {
        FinishedColumns {
            group: &self.group,
            tokens: &self.tokens,
            output_tokens: &self.output_tokens,
            steps: &self.steps,
            tool_ms: &self.tool_ms,
            remaining_tokens: tokens,
            remaining_tool_ms: tool_ms,
            extra: &self.extra,
        }
    }
}
