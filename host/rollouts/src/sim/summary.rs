//! The result of a simulation, as text and as JSON.

use super::plan::Plan;
use crate::comparison::{Left, PredictionKind, SpeedOfLight, System};
use serde_json::{Value, json};
use treadle_report::table::{number, table};
use treadle_simulator::rollout::RolloutReport;

/// One system.
pub(super) struct Run {
    pub(super) system: System,
    pub(super) report: RolloutReport,
    /// Degrees and how many workers have each.
    plan: Vec<(u32, u32)>,
}

/// All systems on the same programs.
pub(super) struct Summary {
    title: String,
    seed: u64,
    programs: usize,
    pub(super) bound: SpeedOfLight,
    pub(super) runs: Vec<Run>,
    notes: Vec<String>,
}

impl Summary {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            title: plan.title(),
            seed: plan.comparison.cell().seed,
            programs: plan.comparison.runs().len(),
            bound: plan.comparison.speed_of_light(),
            runs: Vec::new(),
            notes: plan.notes.clone(),
        }
    }

    pub(super) fn add(&mut self, plan: &Plan, system: System, report: RolloutReport) {
        if report.refused > 0 {
            self.notes.push(format!(
                "{}: {} of {} steps were refused, as no worker that was chosen can hold them; the \
                 makespan is too short.",
                system.name, report.refused, report.steps
            ));
        }
        self.runs.push(Run {
            system,
            plan: plan.comparison.plan(&system),
            report,
        });
    }

    fn left(&self, run: &Run) -> Left {
        Left::of(&run.report.last, self.bound.bound_s())
    }

    fn ratio(&self, run: &Run) -> f64 {
        run.report.makespan_s / self.bound.bound_s()
    }

    /// What the first system takes longer than with the truth for predictions.
    fn prediction_error_s(&self) -> Option<f64> {
        let first = self.runs.first()?;
        let knowing = System {
            prediction: PredictionKind::Oracle,
            ..first.system
        };
        let others = self.runs.iter().skip(1);
        let knowing = others
            .into_iter()
            .find(|run| run.system.is_like(&knowing))?;
        Some(first.report.makespan_s - knowing.report.makespan_s)
    }

    pub(super) fn to_json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "system": run.system,
                "workers": workers(run).iter().map(|(degree, count)| json!({"gpus": degree, "count": count})).collect::<Vec<_>>(),
                "report": run.report,
                "distance_to_bound": self.ratio(run),
                "left": self.left(run),
            })
        };
        json!({
            "rollout": self.title,
            "seed": self.seed,
            "programs": self.programs,
            "bound": { "s": self.bound.bound_s(), "longest_s": self.bound.longest_s, "work_s": self.bound.work_s },
            "runs": self.runs.iter().map(run).collect::<Vec<_>>(),
            "prediction_error_s": self.prediction_error_s(),
            "notes": self.notes,
        })
    }

    pub(super) fn to_text(&self, report: bool) -> String {
        let (title, programs, seed) = (&self.title, self.programs, self.seed);
        let mut lines = vec![format!("{title}: {programs} programs, seed {seed}")];
        lines.extend(self.runs.first().map(first));
        lines.push(format!(
            "bound {} s: the longest program alone {} s, all work on all GPUs {} s\n",
            number(self.bound.bound_s()),
            number(self.bound.longest_s),
            number(self.bound.work_s)
        ));
        lines.push(self.distances());
        let legend = "In seconds; the last four are of the program that ended last and add up to \
                      what is over the bound.";
        lines.push(legend.to_owned());
        if let (true, Some(error_s)) = (report, self.prediction_error_s()) {
            let more = if error_s < 0.0 { "less" } else { "more" };
            let seconds = number(error_s.abs());
            lines.push(format!(
                "Errors of prediction: {seconds} s {more} than with the truth."
            ));
        }
        lines.extend(self.notes.iter().cloned());
        lines.join("\n")
    }

    fn distances(&self) -> String {
        let heads = [
            "system",
            "makespan",
            "to bound",
            "tokens/s",
            "over",
            "placing",
            "queue+prefill",
            "interference",
            "own",
        ];
        let row = |run: &Run| {
            let left = self.left(run);
            let seconds = [
                run.report.makespan_s - self.bound.bound_s(),
                left.placing_s,
                left.queue_and_prefill_s,
                left.interference_s,
                left.own_s,
            ];
            let mut row = vec![
                run.system.name.to_owned(),
                number(run.report.makespan_s),
                number(self.ratio(run)),
                number(run.report.tokens_per_s),
            ];
            row.extend(seconds.map(number));
            row
        };
        let rows: Vec<Vec<String>> = self.runs.iter().map(row).collect();
        table(&heads, &rows)
    }
}

/// The figures of the system that was asked for.
fn first(run: &Run) -> String {
    let report = &run.report;
    let plan = workers(run).into_iter();
    let plan: Vec<String> = plan
        .map(|(degree, count)| format!("{count} x {degree} GPUs"))
        .collect();
    format!(
        "{}: {}\nworkers: {}\n{} steps, {} tokens generated, {} prefilled, {:.1}% of prompt tokens \
         found in caches\n{} caches moved, {} moves given up, {} steps elsewhere without a cache, {} \
         preemptions, {} for more urgent steps\nengines busy {:.1}%",
        run.system.name,
        run.system.describe(),
        plan.join(", "),
        report.steps,
        report.output_tokens,
        report.prefilled_tokens,
        report.hit_rate * 100.0,
        report.migrations,
        report.migrations_cancelled,
        report.moves,
        report.preemptions,
        report.priority_preemptions,
        report.busy * 100.0,
    )
}

/// Degrees that there are workers of, the largest first.
fn workers(run: &Run) -> Vec<(u32, u32)> {
    let used = run.plan.iter().rev().filter(|(_, count)| *count > 0);
    used.copied().collect()
}
