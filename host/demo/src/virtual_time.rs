//! The comparison in virtual time: agents, core and engine models in one loop, without HTTP. The
//! same plan gives the same figures on any machine.

use super::DemoError;
use super::outcome::{Outcome, VARIANTS, Variant};
use super::plan::Plan;
use super::policies;
use super::progress::Progress;
use treadle_config::Config;
use treadle_core::{CoreConfig, Mode};
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{ClusterOptions, TransferOptions, simulate, simulate_with};

/// Runs the workload under every scheduler concurrently.
pub(super) async fn measure_all(
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Outcome>, DemoError> {
    let tasks = VARIANTS.map(|variant| {
        let plan = plan.clone();
        tokio::task::spawn_blocking(move || measure(&plan, variant))
    });
    let mut outcomes = Vec::with_capacity(VARIANTS.len());
    for task in tasks {
        let outcome = task
            .await
            .map_err(|error| DemoError::Ended(error.to_string()))??;
        progress.ended(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn measure(plan: &Plan, variant: Variant) -> Result<Outcome, DemoError> {
    // The core has a daemon's default settings unless given otherwise.
    let mut daemon = Config::default();
    daemon.scheduler.mode = variant.mode;
    let options = ClusterOptions {
        core: CoreConfig {
            explain: false,
            ..daemon.core()
        },
        policy: NativeEviction::default(),
        engines: plan.engines,
        profile: plan.profile.clone(),
        transfers: TransferOptions::default(),
        reports_prefixes: true,
        concurrency: plan.programs,
        stop_at_us: Some(plan.window.to_us),
        count_from_us: plan.window.from_us,
        seed: plan.seed,
        audit: false,
    };
    // The plain schedulers call no policy.
    let report = if variant.mode == Mode::ProgramAware {
        let mut evaluator = policies::evaluator(&plan.policies)?;
        simulate_with(&plan.runs, &options, &mut evaluator)
    } else {
        simulate(&plan.runs, &options)
    };
    Ok(Outcome {
        variant,
        steps_per_min: report.steps_per_min,
        step_p50_s: report.step_p50_s,
        step_p95_s: report.step_p95_s,
        step_p99_s: report.step_p99_s,
        hit_rate: report.hit_rate,
        failures: report.refused,
        first_failure: None,
        pauses: report.pauses,
        restores: None,
        moves: report.moves,
        lag_p99_ms: None,
    })
}
