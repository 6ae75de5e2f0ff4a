//! `treadle sim`: one rollout on a cluster of GPUs in virtual time, under any set of policies.
//!
//! The scheduler and the policies are the daemon's; engines, links and tools are modelled. The same
//! options print the same text on any machine. `docs/simulation.md` has what is modelled.

mod error;
mod failure;
mod plan;
mod summary;

use crate::comparison::{
    AdmissionKind, AllocationKind, BASELINES, FULL, PlacementKind, PredictionKind, PriorityKind,
    System,
};
use clap::Args;
use clap::builder::PossibleValuesParser;
use failure::Failure;
use plan::Plan;
use std::path::PathBuf;
use summary::Summary;
use treadle_report::figures::print;

pub use error::SimError;

/// Simulate a rollout on a cluster of GPUs, in virtual time.
///
/// All programs begin at once, and the rollout is as long as the slowest. Nothing
/// runs on a GPU: figures come from models of engines, see `docs/simulation.md`.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Generated programs of an agent.
    #[arg(long, default_value = "coding", value_parser = PossibleValuesParser::new(["coding", "search", "math"]), conflicts_with = "trace")]
    task: String,
    /// Recorded programs (JSON lines) instead of generated ones.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A trace of an earlier rollout: predictors learn from it, and `heddle`
    /// allocation plans for it.
    #[arg(long, value_name = "FILE", requires = "trace")]
    history: Option<PathBuf>,
    /// Take this number of programs of each trace, chosen by the seed; all unless given.
    #[arg(long, value_name = "N", requires = "trace", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    programs: Option<u32>,
    /// Divide the token counts of traces by this.
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    token_divisor: u32,
    /// The model.
    #[arg(long, default_value = "qwen3-14b", value_parser = PossibleValuesParser::new(plan::models()))]
    model: String,
    /// The class of GPU.
    #[arg(long, default_value = "H100", ignore_case = true, value_parser = PossibleValuesParser::new(plan::gpus()))]
    gpu: String,
    /// GPUs.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    gpus: u32,
    /// Prompts of generated programs.
    #[arg(long, default_value_t = 400, conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    prompts: u32,
    /// Generated programs of each prompt.
    #[arg(long, default_value_t = 16, conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    samples: u32,
    /// Seed of the programs, or of the choice among them.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whose policies decide.
    #[arg(long, default_value = "treadle", value_parser = PossibleValuesParser::new(["treadle", "verl", "verl_hybrid", "slime"]))]
    system: String,
    /// The predictor, instead of the system's.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PredictionKind::NAMED.iter().map(|(name, _)| *name)))]
    prediction: Option<String>,
    /// The order of steps, instead of the system's.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PriorityKind::NAMED.iter().map(|(name, _)| *name)))]
    priority: Option<String>,
    /// The placement of programs, instead of the system's.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PlacementKind::NAMED.iter().map(|(name, _)| *name)))]
    placement: Option<String>,
    /// The choice of degrees of parallelism, instead of the system's.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(AllocationKind::NAMED.iter().map(|(name, _)| *name)))]
    allocation: Option<String>,
    /// What bounds how many programs a worker has at once, instead of the system's.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(AdmissionKind::NAMED.iter().map(|(name, _)| *name)))]
    admission: Option<String>,
    /// Let a worker fail: worker 3 after 60 s for 30 s is `3@60:30`. May be repeated.
    #[arg(long, value_name = "WORKER@S:FOR_S", conflicts_with = "report")]
    fail: Vec<Failure>,
    /// Beside it treadle's own set, the baselines, and the set with the truth for
    /// predictions; how far each is from the bound, and what is left.
    #[arg(long)]
    report: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl SimArgs {
    /// Runs and prints the result.
    pub async fn run(self) -> Result<(), SimError> {
        // It keeps its thread busy for as long as it runs.
        let done = tokio::task::spawn_blocking(move || self.output());
        let text = done
            .await
            .map_err(|error| SimError::Ended(error.to_string()))??;
        Ok(print(&text)?)
    }

    fn output(&self) -> Result<String, SimError> {
        let plan = Plan::new(self)?;
        let failures: Vec<_> = self.fail.iter().map(|failure| failure.us()).collect();
        let mut summary = Summary::new(&plan);
        for system in self.systems() {
            let report = plan.comparison.run_failing(&system, &failures);
            summary.add(&plan, system, report.map_err(SimError::Comparison)?);
        }
        Ok(if self.json {
            summary.to_json().to_string()
        } else {
            summary.to_text(self.report)
        })
    }

    /// The set that was asked for.
    fn system(&self) -> System {
        let base = std::iter::once(FULL).chain(BASELINES);
        let base = base.into_iter().find(|system| system.name == self.system);
        let base = base.unwrap_or(FULL);
        // Names are checked as they are parsed.
        let system = System {
            prediction: kind(
                self.prediction.as_deref(),
                PredictionKind::named,
                base.prediction,
            ),
            priority: kind(self.priority.as_deref(), PriorityKind::named, base.priority),
            placement: kind(
                self.placement.as_deref(),
                PlacementKind::named,
                base.placement,
            ),
            allocation: kind(
                self.allocation.as_deref(),
                AllocationKind::named,
                base.allocation,
            ),
            admission: kind(
                self.admission.as_deref(),
                AdmissionKind::named,
                base.admission,
            ),
            ..base
        };
        if system.is_like(&base) {
            base
        } else {
            system.called("custom")
        }
    }

    /// It, and with `--report` those that it is shown beside.
    fn systems(&self) -> Vec<System> {
        let mut systems = vec![self.system()];
        if self.report {
            let knowing = System {
                prediction: PredictionKind::Oracle,
                ..systems[0]
            };
            let others = std::iter::once(FULL).chain(BASELINES);
            let mut beside: Vec<System> = others.collect();
            if systems[0].prediction != PredictionKind::None {
                beside.insert(0, knowing.called("with the truth"));
            }
            for system in beside {
                if !systems.iter().any(|each| each.is_like(&system)) {
                    systems.push(system);
                }
            }
        }
        systems
    }
}

fn kind<K>(name: Option<&str>, named: impl Fn(&str) -> Option<K>, otherwise: K) -> K {
    name.and_then(named).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests;
