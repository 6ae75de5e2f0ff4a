//! `treadle-bench actions`: the grids of `ARL-Tangram` §6 in virtual time, beside the paper's
//! figures.

mod decisions;
mod queue;

use super::figures::{Figure, Report};
use super::policy::GuestFolder;
use super::{BenchError, report_progress};
use crate::actions::{self, Grid, GridOptions};
use clap::Args;
use serde_json::json;

/// Arguments of `treadle-bench actions`.
#[derive(Args, Clone, Debug)]
pub(super) struct ActionsArgs {
    /// Grids: coding, services, search; all unless given.
    #[arg(long, value_delimiter = ',', value_parser = grid)]
    grids: Vec<Grid>,
    /// First seed. Parameters were chosen on seeds 1 to 5.
    #[arg(long, default_value_t = 6)]
    seed: u64,
    /// Seeds from that one on; figures are medians over them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Threads. Figures do not depend on them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Measure only what a decision takes.
    #[arg(long, conflicts_with = "grids")]
    decisions: bool,
    /// Measure only in virtual time.
    #[arg(long, conflicts_with = "decisions")]
    virtual_time: bool,
    #[command(flatten)]
    guests: GuestFolder,
}

impl Default for ActionsArgs {
    fn default() -> Self {
        Self {
            grids: Vec::new(),
            seed: 6,
            seeds: 1,
            jobs: 1,
            decisions: false,
            virtual_time: false,
            guests: GuestFolder::default(),
        }
    }
}

fn grid(name: &str) -> Result<Grid, String> {
    let found = Grid::ALL.into_iter().find(|grid| grid.name() == name);
    found.ok_or_else(|| "give coding, services or search".to_owned())
}

impl ActionsArgs {
    /// Runs the grids.
    pub(super) async fn run(self, quick: bool) -> Result<Report, BenchError> {
        // They keep their threads busy for as long as they run.
        let done = tokio::task::spawn_blocking(move || self.measure(quick));
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))?
    }

    fn measure(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("actions");
        if !self.decisions {
            self.grids(quick, &mut report);
        }
        if !self.virtual_time {
            report_progress("actions: decisions ...");
            decisions::measure(&self.guests, quick, &mut report)?;
        }
        Ok(report)
    }

    fn grids(&self, quick: bool, report: &mut Report) {
        let all = Grid::ALL.to_vec();
        let options = GridOptions {
            grids: if self.grids.is_empty() {
                all
            } else {
                self.grids.clone()
            },
            seeds: (self.seed..self.seed + self.seeds).collect(),
            jobs: self.jobs,
            small: quick,
        };
        let spreads = actions::run(&options, &|cell| {
            report_progress(&format!("actions: {cell} ..."));
        });
        report.setting("seed", self.seed);
        report.setting("seeds", self.seeds);
        for spread in &spreads {
            let figure = Figure::new(spread.name.clone(), spread.median, spread.unit);
            report.push(match spread.paper {
                Some(paper) => figure.reference(paper),
                None => figure,
            });
        }
        report.detail("spreads", json!(spreads));
        report.note(
            "In virtual time, except for cost and decision: figures are the same on any machine, \
             medians over seeds. A ratio is the completion time of actions per trajectory of the \
             system named over that of treadle, which is the daemon's core with \
             tangram-allocation: pods is one pod per trajectory with 0.5 cores requested and 4 at \
             most, pods_started the same with pods that cost nothing to start, pods_best and \
             reserved_best the best of several limits and of several reservations for that batch \
             and seed; fixed4 and fixed16 are treadle with tests that always have so many cores, \
             fixed_best the best number for that batch and seed; algorithm1 is the paper's \
             algorithm as printed, default_allocation another policy. always is ten models that \
             stay on four devices each, always_best with the best degree of parallelism, \
             always_known with replicas in proportion to what each will be asked for; on_demand \
             brings models from a disk, on_demand_best with the best number of devices, \
             on_demand_host from host memory as fast as treadle. to_bound is the time over that \
             of actions which never wait. details.spreads of the JSON has the mean, the least and \
             the most over seeds.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_are_there() {
        let args = ActionsArgs {
            grids: vec![Grid::Services],
            virtual_time: true,
            ..ActionsArgs::default()
        };
        let json = args.measure(true).unwrap().to_json();
        let ratio = json["figures"]["services.ratio.always.batch0128"]["value"].as_f64();
        assert!(ratio > Some(0.0), "{json}");
        assert!(json["details"]["spreads"][0]["min"].is_number());
    }
}
