//! How far a system is from the bound, and what is left explained.

use super::{Outcome, Suite};
use crate::comparison::{FULL, PredictionKind, System};
use serde::Serialize;
use treadle_simulator::workload::{AgentModel, AgentTask};

/// The difference between the bound and the makespan, in seconds, attributed by the program that
/// ended last. The parts add up to `makespan_s - bound_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Left {
    /// Until it was known where its steps go: gathering, moves of its cache.
    pub placing_s: f64,
    /// At engines before first tokens: queueing and prefill.
    pub queue_and_prefill_s: f64,
    /// What other programs at its engine added to its tokens.
    pub interference_s: f64,
    /// Its own tokens by themselves at its engines and its tools, less the bound: positive where its
    /// engine was slower than the fastest, negative where it was shorter than the bound.
    pub own_s: f64,
}

/// A system in a cell and the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The agent.
    pub task: AgentTask,
    /// The model.
    pub model: AgentModel,
    /// Seed of the workload.
    pub seed: u64,
    /// The system.
    pub system: &'static str,
    /// What it took.
    pub makespan_s: f64,
    /// What it takes at least.
    pub bound_s: f64,
    /// The one by the other.
    pub ratio: f64,
    /// What is between them.
    pub left: Left,
    /// What the same system takes longer than with the truth for predictions; `None` where that
    /// was not run.
    pub prediction_error_s: Option<f64>,
}

impl Left {
    /// Of a rollout whose bound is known.
    pub fn of(last: &treadle_simulator::rollout::TimeSpent, bound_s: f64) -> Self {
        let seconds = |us: u64| us as f64 / 1e6;
        Self {
            placing_s: seconds(last.placing_us),
            queue_and_prefill_s: seconds(last.queue_and_prefill_us),
            interference_s: seconds(last.interference_us),
            own_s: seconds(last.decode_us + last.tool_us) - bound_s,
        }
    }
}

impl Outcome {
    /// The makespan by the bound.
    pub fn ratio(&self) -> f64 {
        self.report.makespan_s / self.bound.bound_s()
    }
}

impl Suite {
    /// Every outcome beside its bound.
    pub fn distances(&self) -> Vec<Distance> {
        self.outcomes.iter().map(|one| self.distance(one)).collect()
    }

    fn distance(&self, one: &Outcome) -> Distance {
        let bound_s = one.bound.bound_s();
        Distance {
            task: one.task,
            model: one.model,
            seed: one.seed,
            system: one.system.name,
            makespan_s: one.report.makespan_s,
            bound_s,
            ratio: one.ratio(),
            left: Left::of(&one.report.last, bound_s),
            prediction_error_s: self.prediction_error_s(one),
        }
    }

    fn prediction_error_s(&self, one: &Outcome) -> Option<f64> {
        if !one.system.is_like(&FULL) {
            return None;
        }
        let knowing = System {
            prediction: PredictionKind::Oracle,
            ..one.system
        };
        let best = self.outcome(one.task, one.model, one.seed, &knowing)?;
        Some(one.report.makespan_s - best.report.makespan_s)
    }
}
