//! What the log tells of limits on connections, each once in a while.

use std::io;
use std::net::SocketAddr;
use treadle_trust::{Rarely, note_shortage};

/// How often each limit was reached since that was told.
#[derive(Default)]
pub(crate) struct ReachedLimits {
    all: Rarely,
    of_address: Rarely,
    unaccepted: Rarely,
}

impl ReachedLimits {
    /// As many connections are open as may be.
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

    /// An address has as many connections as it may.
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
