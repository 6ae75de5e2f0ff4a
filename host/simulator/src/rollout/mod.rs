//! A rollout in virtual time: all programs begin at once and the rollout is as
//! long as the slowest (`Heddle` §2.2). The core and the policies are those of
//! the daemon; engines, links and tools are modelled.
//!
//! Everything happens in order of time, and at one time in a fixed order, so a
//! rollout depends only on its options.

pub use treadle_policy::columns;
mod forecasts;
mod policies;
mod programs;
mod report;
mod simulation;

pub use columns::Forecast;
pub use forecasts::{Forecasts, Prediction, Predictor};
pub use policies::{Placement, PolicySet, Priority};
pub use programs::TimeSpent;
pub use report::RolloutReport;

use crate::workload::AgentRun;
use simulation::Simulation;
use treadle_core::CoreConfig;
use treadle_engine_model::engine::EngineProfile;

/// One worker of the cluster.
#[derive(Clone, Debug)]
pub struct RolloutWorker {
    /// What it is like.
    pub profile: EngineProfile,
    /// The machine that it is on.
    pub node: u32,
    /// Its GPUs.
    pub gpus: u32,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct RolloutOptions {
    /// The scheduler's settings.
    pub core: CoreConfig,
    /// The workers.
    pub workers: Vec<RolloutWorker>,
    /// KV cache of one token, to size transfers.
    pub kv_bytes_per_token: u64,
    /// Workers that fail: when, in microseconds, which, and for how long.
    pub failures: Vec<(u64, u32, u64)>,
    /// Seed of token contents.
    pub seed: u64,
    /// Check the core's invariants after every event (slow).
    pub audit: bool,
}

/// Runs all programs to their ends.
///
/// # Panics
/// With `audit`, if an invariant does not hold.
pub fn roll_out(
    runs: &[AgentRun],
    options: &RolloutOptions,
    policies: &mut PolicySet,
) -> RolloutReport {
    let mut simulation = Simulation::new(runs, options, policies);
    simulation.run();
    simulation.report()
}
