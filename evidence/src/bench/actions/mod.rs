//! `treadle-bench actions`: the grids of `ARL-Tangram` §6 in virtual time, beside the paper's
//! figures.

mod decisions;
mod queue;

use super::figures::{Figure, Report};
use super::policy::GuestFolder;
use super::{BenchError, report_progress};
use clap::Args;
use serde_json::json;
use tangram_allocation::{Config, TangramAllocation};
use treadle_plugin::Policy;
use treadle_systems::actions::{self, Grid, GridOptions};

/// Arguments of `treadle-bench actions`.
#[derive(Args, Clone, Debug)]
pub(super) struct ActionsArgs {
    /// Grids: coding, services, search, joint; all unless given.
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
    /// Configuration of tangram-allocation, as JSON.
    #[arg(long, default_value = "{}", value_parser = config, conflicts_with = "decisions")]
    policy_config: Config,
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
            policy_config: Config::default(),
            decisions: false,
            virtual_time: false,
            guests: GuestFolder::default(),
        }
    }
}

fn grid(name: &str) -> Result<Grid, String> {
    let found = Grid::ALL.into_iter().find(|grid| grid.name() == name);
    found.ok_or_else(|| "give coding, services, search or joint".to_owned())
}

fn config(text: &str) -> Result<Config, String> {
    let policy = TangramAllocation::configure(text);
    policy
        .map(|policy| policy.config)
        .map_err(|error| error.to_string())
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
            config: self.policy_config.clone(),
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
             and seed; fixed4 and fixed16 are treadle with tests that always have 4 or 16 cores, \
             fixed_best the best number for that batch and seed; algorithm1 is the paper's \
             algorithm as printed, default_allocation another policy. always is ten models that \
             stay on four devices each, always_best with the best degree of parallelism, \
             always_known with replicas in proportion to what each will be asked for; on_demand \
             brings models from a disk, on_demand_best with the best number of devices, \
             on_demand_host from host memory as fast as treadle. to_bound is the time over that \
             of actions which never wait. joint is agents under memory pressure whose tools compete \
             for cores, with the order of actions, the retention of caches, both or neither decided \
             jointly; steps is over neither. details.spreads of the JSON has the mean, the least \
             and the most over seeds.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn small(args: ActionsArgs) -> Value {
        let args = ActionsArgs {
            virtual_time: true,
            ..args
        };
        args.measure(true).unwrap().to_json()
    }

    #[test]
    fn the_json_has_every_grid_and_is_the_same_each_time() {
        let json = small(ActionsArgs {
            seeds: 2,
            ..ActionsArgs::default()
        });
        let figures = json["figures"].as_object().unwrap();
        for grid in Grid::ALL {
            let of_grid = |name: &&String| name.starts_with(grid.name());
            assert!(figures.keys().filter(of_grid).count() > 10, "{grid:?}");
        }
        for (name, figure) in figures {
            let value = figure["value"].as_f64();
            assert!(value.is_some_and(|v| v >= 0.0), "{name}: {figure}");
            assert!(figure["unit"].is_string(), "{name}: {figure}");
        }
        let pods = &figures["coding.ratio.pods.batch1280"];
        assert!(pods["reference"].as_str().unwrap().starts_with("4.3"));
        let spreads = json["details"]["spreads"].as_array().unwrap();
        assert_eq!(spreads.len(), figures.len());
        let varies = |spread: &&Value| spread["min"].as_f64() < spread["max"].as_f64();
        assert!(spreads.iter().filter(varies).count() > 50);

        let again = small(ActionsArgs {
            seeds: 2,
            jobs: 2,
            ..ActionsArgs::default()
        });
        assert_eq!(json["figures"], again["figures"]);
        assert_eq!(json["details"], again["details"]);
    }

    #[test]
    fn the_policy_is_configured() {
        let with = |text: &str| {
            let json = small(ActionsArgs {
                grids: vec![Grid::Coding],
                policy_config: config(text).unwrap(),
                ..ActionsArgs::default()
            });
            json["figures"]["coding.s.treadle.batch1280"]["value"].clone()
        };
        assert_ne!(with("{}"), with(r#"{"share_percent": 0}"#));
        assert!(config(r#"{"share": 1}"#).is_err());
    }
}
