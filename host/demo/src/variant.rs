//! Runs schedulers over HTTP: each has simulated engines of its own, a daemon in front of them, and
//! the agents as its clients.

use super::DemoError;
use super::agents::{Crowd, CrowdOptions};
use super::engines;
use super::naming::Naming;
use super::outcome::{Outcome, VARIANTS, Variant};
use super::plan::Plan;
use super::progress::Progress;
use super::side_by_side::SideBySide;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use treadle_config::{Config, Endpoint};
use treadle_core::programs::Counters;
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};
use treadle_server::start::Daemon;

/// Runs the workload under every scheduler concurrently.
pub(super) async fn measure_all(
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Outcome>, DemoError> {
    let side_by_side = SideBySide::new(plan);
    let arms = 0..VARIANTS.len();
    try_join_all(arms.map(|place| measure(plan, place, &side_by_side, progress))).await
}

async fn measure(
    plan: &Plan,
    place: usize,
    side_by_side: &SideBySide,
    progress: &Progress,
) -> Result<Outcome, DemoError> {
    let variant = VARIANTS[place];
    let options = EngineSimOptions {
        profile: plan.profile.clone(),
        time_scale: plan.time_scale,
        seed: plan.seed,
        ..EngineSimOptions::default()
    };
    let engines = engines::start(plan.engines, &options).await?;
    let daemon = Daemon::start(&config(plan, variant, &engines)).await?;
    // A daemon that has just started has no comparison yet.
    let _ = daemon.app.demo.set(side_by_side.view(place));
    let mut track = side_by_side.begin(place, daemon.url());
    if treadle_console::is_built() {
        progress.watched(variant, &daemon.url());
    }
    let crowd = Crowd::begin(CrowdOptions {
        url: daemon.url(),
        naming: Naming::default(),
        model: options.model,
        stream: plan.stream,
        seed: plan.seed,
        time_scale: plan.time_scale,
        runs: plan.runs.clone(),
        subagents: BTreeMap::new(),
        slots: plan.programs,
        window: plan.window,
    });
    let report = |look| {
        track.at(&look);
        progress.at(place, &look);
    };
    let seen = crowd.until_end(report).await;
    let overview = daemon.app.driver.overview().await;
    let overview = overview.map_err(|stopped| DemoError::Ended(stopped.to_string()))?;
    let counters: Counters = overview.counters;
    crowd.leave().await;
    drop(track);
    daemon.stop().await;
    for engine in engines {
        engine.shutdown().await;
    }
    let outcome = Outcome::over_http(variant, seen, plan.window.minutes(), counters);
    progress.ended(&outcome);
    Ok(outcome)
}

/// The daemon's defaults, except for the plan's settings and the location of state.
fn config(plan: &Plan, variant: Variant, engines: &[EngineSimHandle]) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // The agents have stopped by then.
    config.server.shutdown_grace_s = 0;
    "memory".clone_into(&mut config.store.path);
    config.scheduler.mode = variant.mode;
    config.scheduler.time_scale = plan.time_scale;
    let endpoint = |engine: &EngineSimHandle| Endpoint::at(engine.url());
    config.engines.endpoints = engines.iter().map(endpoint).collect();
    config
}
