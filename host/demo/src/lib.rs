//! `treadle demo`: one workload of agents, three schedulers, simulated engines.
//!
//! The same closed loop of agents runs three times: against plain least-load
//! routing, against KV-aware sticky routing, and against treadle. By default all three run at once
//! over HTTP, each through a daemon of its own in front of simulated engines of its own, with all
//! clocks scaled alike; with `--simulate` they run in virtual time without HTTP.
//!
//! *Live at once* is the number of slots: each has a step or a tool call running, and a program
//! that ends is replaced by the next of the workload. The *window* is the time that figures cover,
//! after a warm-up. Latencies are those of steps answered within the window, and the ages of steps
//! still open at its end: a scheduler must not look good by starving some.

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
    /// Number of live programs; one that ends is replaced by the next.
    #[arg(long, default_value_t = 192, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    programs: u32,
    /// Total KV memory of the engines, as a share of the programs' peak demand.
    #[arg(long, default_value_t = 0.33)]
    kv_fraction: f64,
    /// Host memory to which engines offload evicted blocks themselves, as vLLM's CPU offloading and
    /// SGLang's HiCache do; a share of the same peak. It is the same for all schedulers.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    engine_host: f64,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of simulated engines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    engines: u32,
    /// Their profile: glm-4.6-8xh100, qwen3-32b-h100, qwen3-8b-h100, instant, or a file that
    /// `treadle calibrate` wrote.
    #[arg(long, default_value = "glm-4.6-8xh100", value_parser = workload::profile)]
    profile: EngineProfile,
    /// Length of the measurement window in minutes of scaled time.
    #[arg(long, default_value_t = 18.0)]
    minutes: f64,
    /// Length of the warm-up before it in minutes of scaled time.
    #[arg(long, default_value_t = 4.0)]
    warmup_minutes: f64,
    /// Speed of all clocks relative to real time.
    #[arg(long, default_value_t = 10.0)]
    time_scale: f64,
    /// Let the agents request event streams.
    #[arg(long)]
    stream: bool,
    /// Use virtual time, without HTTP: takes seconds instead of minutes.
    #[arg(long, conflicts_with_all = ["time_scale", "stream"])]
    simulate: bool,
    /// Policy for treadle, a component or core module; each is bound for its own world. Only in
    /// virtual time: policies are limited by fuel instead of time, so that runs are repeatable.
    #[arg(long, value_name = "FILE", requires = "simulate")]
    policy: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl DemoArgs {
    /// Runs the workload under each scheduler and prints the comparison.
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
