//! `treadle-bench rollout`: the comparisons of Heddle's evaluation (§7) in virtual time, beside the
//! paper's figures and the bound that no schedule passes.

use super::figures::{Figure, Report, Target};
use super::{BenchError, report_progress};
use clap::Args;
use serde_json::json;
use treadle_rollouts::comparison::{self, Goal, Part, Suite, SuiteOptions};
use treadle_simulator::workload::{AgentModel, AgentTask};

/// GPUs and prompts of a quick run.
const QUICK: (u32, u32) = (8, 10);

/// Arguments of `treadle-bench rollout`.
#[derive(Args, Clone, Debug)]
pub(super) struct RolloutArgs {
    /// Agents: coding, search, math; all unless given.
    #[arg(long, value_delimiter = ',', value_parser = task)]
    tasks: Vec<AgentTask>,
    /// Models: qwen3-8b, qwen3-14b, qwen3-32b; all unless given. Single worlds are
    /// compared with qwen3-14b, as the paper does.
    #[arg(long, value_delimiter = ',', value_parser = model)]
    models: Vec<AgentModel>,
    /// Comparisons by what their figures begin with: vs, tuned, scheduling, placement,
    /// placement_alike, allocation, without, with; all unless given.
    #[arg(long, value_delimiter = ',', value_parser = part)]
    parts: Vec<Part>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds from that one on; figures are medians over them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Threads. Figures do not depend on them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
}

impl Default for RolloutArgs {
    fn default() -> Self {
        Self {
            tasks: Vec::new(),
            models: Vec::new(),
            parts: Vec::new(),
            seed: 1,
            seeds: 1,
            jobs: 1,
        }
    }
}

fn task(name: &str) -> Result<AgentTask, String> {
    AgentTask::named(name).ok_or_else(|| "give coding, search or math".to_owned())
}

fn model(name: &str) -> Result<AgentModel, String> {
    AgentModel::named(name).ok_or_else(|| "give qwen3-8b, qwen3-14b or qwen3-32b".to_owned())
}

fn part(prefix: &str) -> Result<Part, String> {
    let found = Part::ALL.into_iter().find(|part| part.prefix() == prefix);
    found.ok_or_else(|| {
        let names: Vec<&str> = Part::ALL.iter().map(|part| part.prefix()).collect();
        format!("give {}", names.join(", "))
    })
}

impl RolloutArgs {
    /// Runs all rollouts.
    pub(super) async fn run(self, quick: bool) -> Result<Report, BenchError> {
        // They keep their threads busy for as long as they run.
        let done = tokio::task::spawn_blocking(move || self.measure(quick));
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))?
    }

    fn options(&self, quick: bool) -> SuiteOptions {
        let mut options = SuiteOptions {
            seeds: (self.seed..self.seed + self.seeds).collect(),
            jobs: self.jobs,
            ..SuiteOptions::default()
        };
        if !self.tasks.is_empty() {
            options.tasks.clone_from(&self.tasks);
        }
        if !self.models.is_empty() {
            options.models.clone_from(&self.models);
        }
        if !self.parts.is_empty() {
            options.parts.clone_from(&self.parts);
        }
        if quick {
            (options.gpus, options.prompts) = QUICK;
        }
        options
    }

    fn measure(&self, quick: bool) -> Result<Report, BenchError> {
        let options = self.options(quick);
        let suite = Suite::run(&options, &|cell| {
            report_progress(&format!("rollout: {cell} ..."));
        })?;
        let mut report = Report::new("rollout");
        report.setting("seed", self.seed);
        report.setting("seeds", self.seeds);
        report.setting("gpu", options.gpu.name);
        report.setting("gpus", options.gpus);
        report.setting("prompts", options.prompts);
        report.setting("samples", 16);
        for figure in suite.figures() {
            report.push(shown(figure));
        }
        report.detail("distances", json!(suite.distances()));
        report.detail("outcomes", json!(suite.outcomes));
        report.note(
            "In virtual time: figures are the same on any machine. vs, scheduling, placement, \
             allocation and without are throughput of the full set over that of the system named, \
             or with that world alone replaced; tuned is the same over the best that the system \
             does at any degree of parallelism, with 100 programs at once, as many as fit, or the \
             full set's gate and predictions; placement_alike is placement on workers of one \
             degree of parallelism; with.oracle is over the full set with the truth for \
             predictions. distance_to_bound is the makespan over the speed-of-light bound. What \
             is between them is explained in details.distances of the JSON, and by \
             `treadle sim --report`.",
        );
        refusals(&suite, &mut report);
        Ok(report)
    }
}

fn shown(figure: comparison::Figure) -> Figure {
    let mut shown = Figure::new(figure.name, figure.value, figure.unit);
    if let Some(goal) = figure.goal {
        shown = shown.target(match goal {
            Goal::AtMost(bound) => Target::AtMost(bound),
            Goal::AtLeast(bound) => Target::AtLeast(bound),
        });
    }
    match figure.reference {
        Some(reference) => shown.reference(reference),
        None => shown,
    }
}

/// A step that no worker can hold makes a rollout look shorter than it is.
fn refusals(suite: &Suite, report: &mut Report) {
    for outcome in suite.outcomes.iter().filter(|o| o.report.refused > 0) {
        report.note(format!(
            "{}, {}, {}: {} of {} steps were refused, as no worker that was chosen can hold them.",
            outcome.task.name(),
            outcome.model.name(),
            outcome.system.name,
            outcome.report.refused,
            outcome.report.steps,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there() {
        let args = RolloutArgs {
            tasks: vec![AgentTask::Search],
            models: vec![AgentModel::Qwen3Of14B],
            ..RolloutArgs::default()
        };
        let json = args.measure(true).unwrap().to_json();
        for name in [
            "best_vs.verl",
            "best_vs.verl_hybrid",
            "best_vs.slime",
            "worst_vs.any",
            "distance_to_bound.best",
            "vs.slime.search.qwen3-14b",
            "scheduling.fcfs.search",
            "placement.cache_aware.search",
            "allocation.fix1.search",
            "without.placement.search.qwen3-14b",
        ] {
            let value = json["figures"][name]["value"].as_f64();
            assert!(value > Some(0.0), "{name}");
        }
        let distances = json["details"]["distances"].as_array().unwrap();
        assert!(distances[0]["left"]["interference_s"].is_number());
    }
}
