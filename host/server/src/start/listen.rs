//! The port that clients talk to.

use super::StartError;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use treadle_config::Config;
use treadle_http::ServeLimits;

/// Takes the configured port; gives its address, which the system chooses for port 0.
pub(crate) async fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let addr = config.server.listen;
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|error| StartError::Listen { addr, error })?;
    let addr = listener.local_addr().unwrap_or(addr);
    Ok((listener, addr))
}

/// Bounds on connections.
pub(crate) fn serve_limits(config: &Config) -> ServeLimits {
    ServeLimits {
        connections_max: config.server.connections_max,
        header_read_timeout: Duration::from_secs(config.server.header_read_timeout_s),
        shutdown_grace: Duration::from_secs(config.server.shutdown_grace_s),
    }
}
