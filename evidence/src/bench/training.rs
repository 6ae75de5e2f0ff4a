//! `treadle-bench training`: simulated training in virtual time, beside the figures of `RollArt` and
//! `DARTS`.

use super::figures::{Figure, Report, print};
use super::{BenchError, report_progress};
use clap::Args;
use serde_json::json;
use treadle_systems::training::{self, Options, Part, Suite, parameters};

/// Arguments of `treadle-bench training`.
#[derive(Args, Clone, Debug)]
pub(super) struct TrainingArgs {
    /// Comparisons by what their figures begin with: `end_to_end`, bounds, affinity, trajectory,
    /// rewards, redundancy, failures, weights, darts, bias; all unless given.
    #[arg(long, value_delimiter = ',', value_parser = part)]
    parts: Vec<Part>,
    /// First seed of the figures. Settings of systems are chosen on other seeds.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u64).range(11..))]
    seed: u64,
    /// Seeds from that one on; figures are medians over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Seeds, from 1 on, that each system's settings are chosen on.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=10))]
    tuning_seeds: u64,
    /// Threads. Figures do not depend on them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
}

fn part(name: &str) -> Result<Part, String> {
    let found = Part::ALL.into_iter().find(|part| part.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Part::ALL.iter().map(|part| part.name()).collect();
        format!("give {}", names.join(", "))
    })
}

const NOTE: &str = "In virtual time: figures are the same on any machine, medians over seeds with the \
                    least and the most in brackets. The core's machine of training runs and the \
                    shaping policies are real; engines, environments, judges, trainer, weights and \
                    lengths are models with the parameters above, and no result here says what a \
                    model learns. A ratio above 1 favours what is named last. Each system has the \
                    setting that was cheapest on the tuning seeds; cost is accelerators by their \
                    price, times the time of a step.";

/// What came out, and what was run.
struct Measured {
    suite: Suite,
    options: Options,
}

impl Measured {
    fn report(&self) -> Report {
        let mut report = Report::new("training");
        report.setting("seeds", json!(self.options.seeds));
        report.setting("tuning_seeds", json!(self.options.tuning_seeds));
        report.setting("parameters", parameters());
        for row in &self.suite.rows {
            let figure = Figure::new(row.name.clone(), row.here, row.unit);
            report.push(if row.paper.is_empty() {
                figure
            } else {
                figure.reference(row.paper)
            });
        }
        report.detail("rows", json!(self.suite.rows));
        for (name, value) in &self.suite.details {
            report.detail(name, value.clone());
        }
        report.note(NOTE);
        report
    }

    fn text(&self) -> String {
        let parameters = serde_json::to_string_pretty(&parameters()).unwrap_or_default();
        let (seeds, tuning) = (&self.options.seeds, &self.options.tuning_seeds);
        format!(
            "{}\nseeds {seeds:?}, settings chosen on {tuning:?}\nparameters {parameters}\n\n{NOTE}",
            training::text(&self.suite.rows)
        )
    }
}

impl TrainingArgs {
    /// Runs the comparisons and prints them.
    pub(super) async fn run(self, quick: bool, json: bool) -> Result<(), BenchError> {
        // They keep their threads busy for as long as they run.
        let done = tokio::task::spawn_blocking(move || self.measure(quick));
        let done = done.await;
        let measured = done.map_err(|error| BenchError::Ended(error.to_string()))??;
        let text = if json {
            measured.report().to_json().to_string()
        } else {
            measured.text()
        };
        Ok(print(&text)?)
    }

    fn options(&self, quick: bool) -> Options {
        let parts = if self.parts.is_empty() {
            Part::ALL.to_vec()
        } else {
            self.parts.clone()
        };
        let seeds = if quick { 1 } else { self.seeds };
        let tuning_seeds = if quick { 1 } else { self.tuning_seeds };
        Options {
            parts,
            tuning_seeds: (1..=tuning_seeds).collect(),
            seeds: (self.seed..self.seed + seeds).collect(),
            jobs: self.jobs as usize,
            quick,
        }
    }

    fn measure(&self, quick: bool) -> Result<Measured, BenchError> {
        let options = self.options(quick);
        let suite = Suite::run(&options, &|part| {
            report_progress(&format!("training: {part} ..."));
        });
        let suite = suite.map_err(|error| BenchError::Ended(error.to_string()))?;
        Ok(Measured { suite, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TrainingArgs,
    }

    fn args(line: &str) -> TrainingArgs {
        Line::try_parse_from(line.split(' ')).unwrap().args
    }

    #[test]
    fn every_part_has_figures_and_they_do_not_depend_on_threads() {
        let one = args("x").measure(true).unwrap().report().to_json();
        let two = args("x --jobs 2").measure(true).unwrap();
        let text = two.text();
        let two = two.report().to_json();
        assert_eq!(one["figures"], two["figures"]);
        assert_eq!(one["details"], two["details"]);
        let figures = one["figures"].as_object().unwrap();
        for part in Part::ALL {
            let of_part = |name: &&String| name.starts_with(part.name());
            assert!(figures.keys().any(|name| of_part(&name)), "{part:?}");
        }
        for (name, figure) in figures {
            assert!(figure["value"].is_f64(), "{name}: {figure}");
        }
        let against = &figures["end_to_end.cost.areal_over_treadle"];
        assert_eq!(against["reference"], "1.31");
        let rows = one["details"]["rows"].as_array().unwrap();
        let compared = |row: &&serde_json::Value| row["paper"] != "";
        assert!(rows.iter().filter(compared).all(|row| row["why"] != ""));
        for head in ["paper", "here", "why it differs", "share_of_peak"] {
            assert!(text.contains(head), "{head}");
        }
    }

    #[test]
    fn settings_are_chosen_on_other_seeds_than_figures_are_of() {
        let options = args("x --seeds 4 --tuning-seeds 10").options(false);
        assert!(
            options
                .tuning_seeds
                .iter()
                .all(|seed| !options.seeds.contains(seed))
        );
        assert_eq!(options.seeds, [11, 12, 13, 14]);
    }
}
