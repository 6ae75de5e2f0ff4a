//! `treadle-bench peers`: treadle and the routers of others in front of the same simulated engines,
//! over HTTP, with the demo's agents under memory pressure.

mod figures;
mod first;
mod load;
mod measure;
mod notes;

use super::{BenchError, report_progress};
use crate::bench::real_engines::{RealEngines, RealEnginesArgs};
use crate::bench::routers::systems::SystemsArgs;
use clap::Args;
use figures::Comparison;
use first::First;
use load::{Load, Workload};
use measure::{Cell, Conditions};
use std::path::PathBuf;
use treadle_demo::run_counters::Window;
use treadle_demo::workload;
use treadle_engine_model::engine::EngineProfile;
use treadle_report::figures::print;

/// Engines in each run.
const ENGINES: u32 = 2;
/// Live agents and scaled minutes, warm-up and window, of a quick run.
const QUICK: (u32, f64, f64) = (8, 0.5, 1.0);

/// Arguments of `treadle-bench peers`.
#[derive(Args, Clone, Debug)]
pub(super) struct PeersArgs {
    #[command(flatten)]
    systems: SystemsArgs,
    /// KV memory of all engines together, as shares of what the agents need at their peak.
    #[arg(long, value_delimiter = ',', default_value = "0.333,0.25", value_name = "SHARES",
        value_parser = share_above_0)]
    kv: Vec<f64>,
    /// Host memory that the engines offload to by themselves, as shares of the same; engines of
    /// `--engines` have what they have, and the first is only printed.
    #[arg(long, value_delimiter = ',', default_value = "0,0.333,2", value_name = "SHARES",
        value_parser = share)]
    host: Vec<f64>,
    /// Seed of the agents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds from that one on; figures are means over them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=32))]
    seeds: u64,
    /// What the agents do.
    #[arg(long, value_enum, default_value_t)]
    workload: Workload,
    /// Recorded runs (docs/traces.md) instead of generated ones; token counts are divided by four.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// What simulated engines model: a preset of `treadle demo`, or a file that `treadle-bench
    /// calibrate` wrote.
    #[arg(long, default_value = "glm-4.6-8xh100", value_parser = workload::profile,
        conflicts_with = "engines")]
    profile: EngineProfile,
    #[command(flatten)]
    real_engines: RealEnginesArgs,
    /// Agents at once; one that ends is replaced by the next.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    live: u32,
    /// Minutes that figures cover, in scaled time.
    #[arg(long, default_value_t = 8.0, value_parser = minutes_above_0)]
    minutes: f64,
    /// Minutes before them that do not count, in scaled time.
    #[arg(long, default_value_t = 4.0, value_parser = minutes)]
    warmup_minutes: f64,
    /// How much faster than real time engines, agents and routers run.
    #[arg(long, default_value_t = 20.0, value_parser = times)]
    time_scale: f64,
    /// Ranks of data parallelism that step together. There is one simulated engine then, whose
    /// compute and memory they share; systems that are told of ranks, by a name that ends in
    /// `-dp-aware`, run only then.
    #[arg(long, default_value_t = 1, conflicts_with = "engines",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// A request before the agents: some systems learn from their first ones what a token is.
    #[arg(long, value_enum, default_value_t)]
    first: First,
    /// Tokens that the engines' chat template adds to each prompt, unseen by the systems.
    #[arg(long, default_value_t = 0, conflicts_with = "engines",
        value_parser = clap::value_parser!(u32).range(..=4_096))]
    template_tokens: u32,
}

impl PeersArgs {
    /// Runs all systems in all cells with all seeds, and prints how they compare.
    pub(super) async fn run(mut self, quick: bool, json: bool) -> Result<(), BenchError> {
        if quick {
            self.seeds = 1;
            self.kv.truncate(1);
            self.host.truncate(1);
            (self.live, self.warmup_minutes, self.minutes) = QUICK;
        }
        let comparison = self.compare().await?;
        let text = if json {
            comparison.report().to_json().to_string()
        } else {
            comparison.text()
        };
        Ok(print(&text)?)
    }

    async fn compare(&self) -> Result<Comparison, BenchError> {
        let mut systems = self.systems.choose()?;
        if self.ranks == 1 {
            systems.all.retain(|system| !system.is_for_ranks());
        }
        let engines = if self.ranks == 1 { ENGINES } else { 1 };
        let real_engines = self.real_engines.meet(self.time_scale).await?;
        let conditions = Conditions {
            engines: real_engines.as_ref().map_or(engines, RealEngines::count),
            ranks: self.ranks,
            real_engines,
            profile: self.profile.clone(),
            live: self.live as usize,
            window: Window::new(self.warmup_minutes, self.minutes),
            time_scale: self.time_scale,
            first: self.first,
            template_tokens: self.template_tokens,
        };
        let mut comparison = Comparison::new(self, &systems, self.cells(), &conditions);
        let runs_in_all = self.cells().len() * systems.all.len() * self.seeds as usize;
        let mut number = 0;
        // Systems are neighbours in time, so that what else the machine does meets all of them.
        for further in 0..self.seeds {
            let seed = self.seed.wrapping_add(further);
            let load = self.load(seed)?;
            for cell in self.cells() {
                for system in &systems.all {
                    number += 1;
                    let title = format!(
                        "peers: {number} of {runs_in_all}: {}, KV {}, host {}, seed {seed}",
                        system.name, cell.kv, cell.host
                    );
                    report_progress(&format!("{title} ..."));
                    let measured = conditions.measure(system, cell, seed, load.clone()).await;
                    match measured {
                        Ok(outcome) => {
                            report_progress(&format!("{title}: {}", outcome.summary()));
                            comparison.add(outcome);
                        }
                        // The others can be compared without it.
                        Err(error @ BenchError::Process { .. }) if system.is_peer() => {
                            report_progress(&format!("{title}: {error}"));
                            comparison.miss(system, cell, seed, &error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(comparison)
    }

    /// What the agents do with a seed.
    fn load(&self, seed: u64) -> Result<Load, BenchError> {
        match &self.trace {
            Some(trace) => Ok(Load::alone(workload::runs(
                Some(trace),
                self.live as usize,
                seed,
            )?)),
            None => self.workload.load(self.live as usize, seed),
        }
    }

    /// What they do, for people.
    fn workload_name(&self) -> String {
        match &self.trace {
            Some(trace) => workload::name(Some(trace)),
            None => self.workload.name(),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let hosts = if self.real_engines.is_empty() {
            self.host.as_slice()
        } else {
            &self.host[..self.host.len().min(1)]
        };
        let cells = self.kv.iter().flat_map(|&kv| {
            let hosts = hosts.iter();
            hosts.map(move |&host| Cell { kv, host })
        });
        cells.collect()
    }
}

fn number(text: &str, least: f64, most: f64, wanted: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("give {wanted}")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let wanted = "a share of the peak demand from 0 to 100, such as 0.333";
    number(text, 0.0, 100.0, wanted)
}

fn share_above_0(text: &str) -> Result<f64, String> {
    let wanted = "a share of the peak demand above 0 and up to 100, such as 0.333";
    number(text, 1e-6, 100.0, wanted)
}

fn minutes(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e4, "minutes from 0 to 10000")
}

fn minutes_above_0(text: &str) -> Result<f64, String> {
    number(text, 1e-3, 1e4, "minutes above 0 and up to 10000")
}

fn times(text: &str) -> Result<f64, String> {
    number(text, 1e-3, 1e3, "a number above 0 and up to 1000")
}

#[cfg(test)]
mod tests;
