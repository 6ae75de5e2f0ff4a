//! Simulated engines over HTTP, and a daemon in front of them, both in this process.

use super::BenchError;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use treadle_config::{Config, Endpoint};
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};

/// Starts one engine.
pub(super) async fn start_engine(
    profile: &EngineProfile,
    time_scale: f64,
    seed: u64,
) -> Result<EngineSimHandle, BenchError> {
    let options = EngineSimOptions {
        profile: profile.clone(),
        time_scale,
        seed,
        tokens_per_event: 64,
        ..EngineSimOptions::default()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    EngineSim::serve(listener, options).map_err(|error| BenchError::Ended(error.to_string()))
}

/// The daemon's defaults, except for its clock, its engines and the location of state.
pub(super) fn daemon_config(time_scale: f64, engines: &[String]) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // The agents are gone by the time that it stops.
    config.server.shutdown_grace_s = 0;
    "memory".clone_into(&mut config.store.path);
    config.scheduler.time_scale = time_scale;
    config.engines.endpoints = engines.iter().map(Endpoint::at).collect();
    config
}
