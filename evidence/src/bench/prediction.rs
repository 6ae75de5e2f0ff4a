//! `treadle-bench prediction`: how well predictors tell how long programs become, on generated
//! rollouts and on recorded runs. Nothing is timed: the same options give the same figures on any machine.

use super::figures::{Figure, Report, Target};
use super::{BenchError, report_progress};
use clap::Args;
use std::path::{Path, PathBuf};
use treadle_systems::prediction::{
    PredictionOptions, PredictorSteps, TaskPredictions, compare, compare_recorded, recorded,
};

/// The paper's order; its figures are drawn, not printed.
const PAPER: &str = "Heddle Figure 13: Heddle-1 above both baselines, Heddle-2 above Heddle-1";

/// Arguments of `treadle-bench prediction`.
#[derive(Args, Clone, Debug)]
pub(super) struct PredictionArgs {
    /// Prompts by which predictors are evaluated.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    prompts: u32,
    /// Programs per prompt.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    samples: u32,
    /// Seed of the workloads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Recorded runs to compare on too (docs/traces.md).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Default for PredictionArgs {
    fn default() -> Self {
        Self {
            prompts: 400,
            samples: 16,
            seed: 1,
            trace: None,
        }
    }
}

impl PredictionArgs {
    /// Compares the predictors, with an earlier rollout of the same prompts and without.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            self.prompts = self.prompts.min(100);
        }
        let done = tokio::task::spawn_blocking(move || self.measure());
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))?
    }

    fn measure(&self) -> Result<Report, BenchError> {
        let mut report = Report::new("prediction");
        for earlier_epoch in [true, false] {
            let begun = if earlier_epoch { "known" } else { "new" };
            report_progress(&format!("prediction: rollouts of {begun} prompts ..."));
            let options = PredictionOptions {
                prompts: self.prompts,
                other_prompts: self.prompts,
                samples: self.samples,
                seed: self.seed,
                earlier_epoch,
                ..PredictionOptions::default()
            };
            let found = compare(&options).map_err(|error| BenchError::Ended(error.to_string()))?;
            for task in &found.tasks {
                add(&mut report, begun, task);
            }
        }
        if let Some(path) = &self.trace {
            report_progress("prediction: recorded runs ...");
            add_recorded(&mut report, path)?;
        }
        report.setting("prompts", self.prompts);
        report.setting("samples", self.samples);
        report.setting("seed", self.seed);
        report.note(
            "Known prompts have been rolled out once before with other samples, new ones have not. \
             After a number of steps, programs that have ended count with their final length; those \
             called running are the programs with three steps or more, the same for every \
             predictor. heddle-no-text is heddle with what the daemon gives its policies; heddle has \
             beside it a stand-in for a text model, a number drawn for each prompt that says as \
             much of its difficulty as such a model reads from it; heddle-columns lacks what \
             tools came to.",
        );
        report.note(
            "error, squared, factor and rank are of the tokens that remain, of the programs that still run \
             after that number of steps; _returned is when the tool of the last one has returned. Groups \
             of new prompts and of recorded runs were not seen before.",
        );
        Ok(report)
    }
}

fn add_recorded(report: &mut Report, path: &Path) -> Result<(), BenchError> {
    let ended =
        |error: &dyn std::fmt::Display| BenchError::Ended(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| ended(&error))?;
    let runs = recorded(std::io::BufReader::new(file)).map_err(|error| ended(&error))?;
    let found = compare_recorded(runs).map_err(|error| ended(&error))?;
    add_steps(report, "recorded", &found);
    Ok(())
}

/// The figures of predictors step by step.
fn add_steps(report: &mut Report, of: &str, predictors: &[PredictorSteps]) {
    for predictor in predictors {
        for at in &predictor.steps {
            let returned = if at.returned { "_returned" } else { "" };
            let name = |what: &str| {
                let (predictor, steps) = (predictor.name, at.steps);
                format!("{what}.{of}.{predictor}_{steps}{returned}")
            };
            report.push(Figure::new(name("error"), at.error, ""));
            report.push(Figure::new(name("squared"), at.squared, ""));
            report.push(Figure::new(name("factor"), at.factor, ""));
            report.push(Figure::new(name("rank"), at.rank, ""));
        }
    }
}

/// The figures of a task. The correlation after the first step is compared with a target.
fn add(report: &mut Report, prompts: &str, task: &TaskPredictions) {
    add_steps(
        report,
        &format!("{prompts}.{}", task.task.name()),
        &task.by_step,
    );
    let baselines = task.predictors.iter().filter(|of| is_baseline(of.name));
    let at_step = baselines.filter(|of| of.after_steps == 1);
    let best_baseline = at_step.map(|of| of.pearson).fold(0.0, f64::max);
    for of in &task.predictors {
        let name = |what: &str| {
            let (task, predictor, steps) = (task.task.name(), of.name, of.after_steps);
            format!("{what}.{prompts}.{task}.{predictor}_{steps}")
        };
        let mut pearson = Figure::new(name("pearson"), of.pearson, "");
        if of.name == "heddle" && of.after_steps == 1 {
            pearson = pearson
                .target(Target::AtLeast(best_baseline))
                .reference(PAPER);
        }
        report.push(pearson);
        report.push(Figure::new(name("recall"), of.recall, ""));
        report.push(Figure::new(name("pearson_running"), of.pearson_running, ""));
        report.push(Figure::new(name("recall_running"), of.recall_running, ""));
        report.push(Figure::new(name("within_p90"), of.within_p90, ""));
    }
}

fn is_baseline(name: &str) -> bool {
    matches!(name, "history" | "prompt-only")
}
