//! One scheduler over HTTP: fresh simulated engines, a fresh daemon in front of
//! them, and the agents as its clients.

use super::DemoError;
use super::agents::{Crowd, ScaledClock};
use super::outcome::{Outcome, Variant};
use super::plan::Plan;
use super::progress::Progress;
use super::run_counters::RunCounters;
use super::run_queue::RunQueue;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use treadle_config::{Config, Endpoint};
use treadle_core::programs::Counters;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};
use treadle_http::Upstream;
use treadle_server::start::Daemon;

/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(250);
/// For a connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the workload under one scheduler.
pub(super) async fn measure(
    plan: &Plan,
    variant: Variant,
    progress: &Progress,
) -> Result<Outcome, DemoError> {
    let engines = start_engines(plan).await?;
    let daemon = Daemon::start(&config(plan, variant, &engines)).await?;
    let crowd = Arc::new(Crowd {
        url: daemon.url(),
        upstream: Upstream::new(CONNECT_TIMEOUT),
        model: EngineSimOptions::default().model,
        stream: plan.stream,
        seed: plan.seed,
        clock: ScaledClock::begin(plan.time_scale),
        run_queue: RunQueue::new(plan.runs.clone()),
        run_counters: RunCounters::new(plan.programs, plan.window),
    });
    let mut slots = JoinSet::new();
    for slot in 0..plan.programs {
        slots.spawn(crowd.clone().sit(slot));
    }
    watch(plan, variant, progress, &crowd).await;
    let seen = crowd.run_counters.close();
    let overview = daemon.app.driver.overview().await;
    let overview = overview.map_err(|stopped| DemoError::Ended(stopped.to_string()))?;
    let counters: Counters = overview.counters;
    slots.shutdown().await;
    daemon.stop().await;
    for engine in engines {
        engine.shutdown().await;
    }
    let outcome = Outcome::over_http(variant, seen, plan.window.minutes(), counters);
    progress.ended(&outcome);
    Ok(outcome)
}

/// Waits for the window's end.
async fn watch(plan: &Plan, variant: Variant, progress: &Progress, crowd: &Crowd) {
    loop {
        let now_us = crowd.clock.now_us();
        progress.at(variant, now_us, crowd.run_counters.steps());
        let left_us = plan.window.to_us.saturating_sub(now_us);
        if left_us == 0 {
            return;
        }
        tokio::time::sleep(crowd.clock.real(left_us).min(LOOK)).await;
    }
}

async fn start_engines(plan: &Plan) -> Result<Vec<EngineSimHandle>, DemoError> {
    let mut engines = Vec::new();
    for number in 0..plan.engines {
        let options = EngineSimOptions {
            profile: plan.profile.clone(),
            time_scale: plan.time_scale,
            seed: plan.seed.wrapping_add(u64::from(number)),
            ..EngineSimOptions::default()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(DemoError::Port)?;
        engines.push(EngineSim::serve(listener, options)?);
    }
    Ok(engines)
}

/// The daemon's defaults, except for the plan's settings and the location of state.
fn config(plan: &Plan, variant: Variant, engines: &[EngineSimHandle]) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // The agents are gone by the time that it stops.
    config.server.shutdown_grace_s = 0;
    "memory".clone_into(&mut config.store.path);
    config.scheduler.mode = variant.mode;
    config.scheduler.time_scale = plan.time_scale;
    let endpoint = |engine: &EngineSimHandle| Endpoint {
        url: engine.url(),
        kind: None,
        capacity_tokens: None,
    };
    config.engines.endpoints = engines.iter().map(endpoint).collect();
    config
}
