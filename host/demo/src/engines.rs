//! Simulated engines in this process, on free ports of this machine.

use super::DemoError;
use std::net::Ipv4Addr;
use tokio::net::TcpListener;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};

/// Starts `count` engines; each generates different text.
pub async fn start(
    count: u32,
    options: &EngineSimOptions,
) -> Result<Vec<EngineSimHandle>, DemoError> {
    let mut engines = Vec::new();
    for number in 0..count {
        let options = EngineSimOptions {
            seed: options.seed.wrapping_add(u64::from(number)),
            ..options.clone()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(DemoError::Port)?;
        engines.push(EngineSim::serve(listener, options)?);
    }
    Ok(engines)
}
