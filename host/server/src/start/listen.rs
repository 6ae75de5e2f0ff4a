//! The port that clients talk to.

use super::StartError;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use treadle_config::Config;
use treadle_http::{Listener, ServeLimits};

/// Takes the configured port, with what it proves itself with; gives its address, which the system
/// chooses for port 0. Files of TLS that can't be used are found here, before anything else starts.
pub(crate) async fn listen(config: &Config) -> Result<(Listener, SocketAddr), StartError> {
    let tls = config.tls.acceptor()?;
    config.tls.trust().check()?;
    let addr = config.server.listen;
    let tcp = TcpListener::bind(addr)
        .await
        .map_err(|error| StartError::Listen { addr, error })?;
    let addr = tcp.local_addr().unwrap_or(addr);
    Ok((Listener { tcp, tls }, addr))
}

/// Bounds on connections.
pub(crate) fn serve_limits(config: &Config) -> ServeLimits {
    ServeLimits {
        connections_max: config.server.connections_max,
        header_read_timeout: Duration::from_secs(config.server.header_read_timeout_s),
        shutdown_grace: Duration::from_secs(config.server.shutdown_grace_s),
    }
}
