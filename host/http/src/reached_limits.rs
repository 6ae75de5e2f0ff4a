//! Rate-limited log messages about limits on connections.

use std::io;
use std::net::SocketAddr;
use treadle_trust::{Rarely, note_shortage};

/// How often each limit was reached since its last message.
#[derive(Default)]
pub(crate) struct ReachedLimits {
    all: Rarely,
    of_address: Rarely,
    unaccepted: Rarely,
}

impl ReachedLimits {
    /// The limit on connections is reached.
    pub(crate) fn connections_max(&self, limit: usize) {
        if let Some(times) = self.all.happens() {
            tracing::warn!(
                limit,
                times,
                "connection limit reached, further connections wait; let clients keep fewer open, \
                 or raise the limit on open files (ulimit -n, LimitNOFILE; each connection uses \
                 two)"
            );
        }
    }

    /// The limit on connections of one address is reached.
    pub(crate) fn address_max(&self, peer: SocketAddr, limit: usize) {
        if let Some(closed) = self.of_address.happens() {
            tracing::warn!(
                %peer, limit, closed,
                "connection limit of an address reached (three quarters of all), further \
                 connections are closed; let its clients keep fewer open, or raise the limit on \
                 open files (ulimit -n, LimitNOFILE; each connection uses two)"
            );
        }
    }

    /// A connection could not be accepted.
    pub(crate) fn no_connection(&self, error: &io::Error) {
        note_shortage(error);
        if let Some(times) = self.unaccepted.happens() {
            tracing::warn!(%error, times, "connections could not be accepted");
        }
    }
}
