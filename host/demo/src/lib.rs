//! `treadle demo`: one workload of agents, three schedulers, simulated engines.
//!
//! The same closed loop of agents runs three times: against plain least-load
//! routing, against KV-aware sticky routing, and against treadle. By default all three run at once
//! over HTTP, each through a daemon of its own in front of simulated engines of its own, with all
//! clocks scaled alike; with `--simulate` they run in virtual time without HTTP.
//!
//! *Live at once* are as many programs as there are slots: each has a step under way or a tool call
//! running, and one that ends is replaced by the next of the workload. The *window* is the time
//! that figures cover, after a warm-up that they don't. Latencies are those of steps answered
//! within the window, and the age of steps still open at its end: a scheduler must not look good by
//! starving some.

pub mod agents;
pub mod engines;
mod error;
pub mod exchange;
pub mod naming;
mod outcome;
mod plan;
mod policies;
mod progress;
pub mod run_counters;
mod run_queue;
mod side_by_side;
mod summary;
mod variant;
mod virtual_time;
pub mod workload;

use clap::Args;
use std::path::PathBuf;
use treadle_engine_model::engine::EngineProfile;
use treadle_report::figures::print;

pub use error::DemoError;
use plan::Plan;
use progress::Progress;
use treadle_server::start::raise_files;

/// Compare plain routing, sticky routing and treadle on simulated engines.
///
/// The same agents run three times at once over HTTP, each time through a daemon of its own in front
/// of SIMULATED engines of its own; the console of each shows all three side by side. All clocks
/// run `--time-scale` times faster than real time, and figures are in that scaled time: they compare
/// schedulers, they are not those of a GPU.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Recorded runs (JSON lines) instead of generated ones; token counts are divided by four.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Programs live at once; one that ends is replaced by the next.
    #[arg(long, default_value_t = 192, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    programs: u32,
    /// KV memory of all engines together, as a share of what the programs need
    /// at their peak.
    #[arg(long, default_value_t = 0.33)]
    kv_fraction: f64,
    /// Host memory that the engines move evicted blocks to by themselves, as vLLM's CPU offloading
    /// and SGLang's HiCache do; a share of the same peak. All schedulers have such engines.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    engine_host: f64,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated engines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    engines: u32,
    /// What they model: glm-4.6-8xh100, qwen3-32b-h100, qwen3-8b-h100, instant, or a file that
    /// `treadle-bench calibrate` wrote.
    #[arg(long, default_value = "glm-4.6-8xh100", value_parser = workload::profile)]
    profile: EngineProfile,
    /// Minutes that figures cover, in scaled time.
    #[arg(long, default_value_t = 18.0)]
    minutes: f64,
    /// Minutes before them that do not count, in scaled time.
    #[arg(long, default_value_t = 4.0)]
    warmup_minutes: f64,
    /// How much faster than real time all clocks run.
    #[arg(long, default_value_t = 10.0)]
    time_scale: f64,
    /// Let the agents ask for event streams.
    #[arg(long)]
    stream: bool,
    /// Virtual time, without HTTP: seconds instead of minutes.
    #[arg(long, conflicts_with_all = ["time_scale", "stream"])]
    simulate: bool,
    /// Let treadle decide by this policy, a component or core module; each is bound for its own
    /// world. In virtual time only: there it gets fuel instead of time, so that the run can be
    /// repeated.
    #[arg(long, value_name = "FILE", requires = "simulate")]
    policy: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl DemoArgs {
    /// Runs the workload under each scheduler and prints how they compare.
    pub async fn run(self) -> Result<(), DemoError> {
        let plan = Plan::new(&self)?;
        plan.check_files(raise_files())?;
        let progress = Progress::new(&plan);
        let outcomes = if plan.simulated_clock {
            virtual_time::measure_all(&plan, &progress).await?
        } else {
            variant::measure_all(&plan, &progress).await?
        };
        progress.finish();
        let text = if self.json {
            summary::report(&plan, &outcomes).to_json().to_string()
        } else {
            summary::text(&plan, &outcomes)
        };
        Ok(print(&text)?)
    }
}

#[cfg(test)]
mod tests;
