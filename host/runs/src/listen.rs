//! The port that clients talk to.

use crate::start_error::StartError;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use treadle_config::Config;
use treadle_http::{Listener, ServeLimits};

/// Listens on the configured port, with its TLS certificate; returns the address, which the system
/// chooses for port 0. Unusable TLS files are detected here, before anything else starts.
pub async fn listen(config: &Config) -> Result<(Listener, SocketAddr), StartError> {
    let tls = config.tls.acceptor()?;
    config.tls.trust().check()?;
    let addr = config.server.listen;
    let tcp = TcpListener::bind(addr)
        .await
        .map_err(|error| StartError::Listen { addr, error })?;
    let addr = tcp.local_addr().unwrap_or(addr);
    Ok((Listener { tcp, tls }, addr))
}

/// Files that are reserved for other uses than clients' connections: the store, the broker, the
/// journal, probes of engines and uploads.
const FILES_RESERVED: u64 = 256;
/// Files that a connection takes: its own, and one to an engine.
const FILES_PER_CONNECTION: u64 = 2;

/// Limits on connections, so that accepting stops before the process runs out of files.
pub fn serve_limits(config: &Config) -> ServeLimits {
    let wanted = config.server.connections_max;
    let connections_max = wanted.min(connections_within(raise_files()));
    if connections_max < wanted {
        tracing::warn!(
            connections_max,
            wanted,
            "the limit on open files allows fewer connections; raise it (ulimit -Hn, LimitNOFILE)"
        );
    }
    ServeLimits {
        connections_max,
        // Other addresses always have some places left.
        address_connections_max: (connections_max / 4 * 3).max(1),
        first_head_timeout: Duration::from_secs(config.server.first_head_timeout_s),
        write_pause_max: Duration::from_secs(config.server.write_pause_s_max),
        header_read_timeout: Duration::from_secs(config.server.header_read_timeout_s),
        shutdown_grace: Duration::from_secs(config.server.shutdown_grace_s),
    }
}

/// Raises the soft limit on open files to the hard limit; returns it.
pub fn raise_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let before = limit.current.unwrap_or(u64::MAX);
    if before >= most {
        return before;
    }
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => most,
        Err(error) => {
            tracing::warn!(%error, before, "the limit on open files can't be raised");
            before
        }
    }
}

/// Number of clients' connections that this many files allow.
fn connections_within(files: u64) -> usize {
    let free = files.saturating_sub(FILES_RESERVED) / FILES_PER_CONNECTION;
    usize::try_from(free).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        assert_eq!(connections_within(1_024), 384);
        assert_eq!(connections_within(100), 1);
        assert_eq!(connections_within(1 << 20), ((1 << 20) - 256) / 2);
        assert!(connections_within(u64::MAX) > 1 << 40);
    }

    #[test]
    fn connections_fit_into_the_files_that_the_process_may_have() {
        // A common login default, independent of this system.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(limit.maximum.unwrap_or(u64::MAX).min(1_024));
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut config = Config::default();
        config.server.connections_max = usize::MAX;
        let limits = serve_limits(&config);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        let files = limit.current.unwrap_or(u64::MAX);
        assert_eq!(raise_files(), files);
        assert_eq!(limits.connections_max, connections_within(files));
        config.server.connections_max = 8;
        let limits = serve_limits(&config);
        assert_eq!(
            (limits.connections_max, limits.address_connections_max),
            (8, 6)
        );
    }
}
