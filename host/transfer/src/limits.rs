//! Timeouts and limits of transfers.

use std::time::Duration;

use treadle_trust::{Acceptor, Connector, Trust};

/// TLS between nodes: a tier's certificate, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Its certificate.
    pub acceptor: Acceptor,
    /// The authorities that it trusts.
    pub trust: Trust,
}

/// Timeouts and limits of transfers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The connector for engines, which has its own timeout.
    pub engines: Connector,
    /// TLS between the tiers of nodes; either all of them use it or none.
    pub tls: Option<NodeTls>,
    /// Timeout for connecting.
    pub connect: Duration,
    /// Timeout for probing an engine's abilities.
    pub probe: Duration,
    /// Timeout for an export, including its wait and a step that runs in the slot.
    pub export: Duration,
    /// Timeout for an import, including its wait and a step that runs in the slot.
    pub import: Duration,
    /// Timeout for dropping a copy.
    pub drop: Duration,
    /// Timeout between two pieces of a stream.
    pub idle: Duration,
    /// How long a copy in an engine's own memory (vLLM) may be used after the request for it. It
    /// has to stay well below the time after which the engine frees blocks whose fetch has not
    /// begun (`kv_lease_duration`, 30 s by default), because reading blocks with other contents is
    /// not detected.
    pub engine_held: Duration,
    /// Transfers that may wait for one worker in one direction.
    pub waiting_max: usize,
    /// Concurrent connections to a tier's server.
    pub connections_max: usize,
}

/// How long vLLM holds blocks that no other engine has requested (`kv_lease_duration`). A fetching
/// engine renews the lease.
const ENGINE_LEASE: Duration = Duration::from_secs(30);
/// Time after which older versions free the blocks in any case (`VLLM_NIXL_ABORT_REQUEST_TIMEOUT`).
const ENGINE_FREES_AFTER: Duration = Duration::from_mins(8);
/// Safety margin of that time.
const ENGINE_SPARE: Duration = Duration::from_mins(1);

impl Limits {
    /// The limits for copies held by an engine: a fetch begins and completes before the blocks are
    /// freed.
    pub(crate) fn of_engine_held(&self) -> Self {
        let usable = ENGINE_FREES_AFTER.saturating_sub(ENGINE_SPARE);
        let engine_held = self.engine_held.min(ENGINE_LEASE / 2);
        Self {
            import: self.import.min(usable.saturating_sub(engine_held)),
            engine_held,
            ..self.clone()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let connect = Duration::from_secs(2);
        Self {
            engines: Connector::to_all(connect),
            tls: None,
            connect,
            probe: Duration::from_secs(3),
            export: Duration::from_secs(30),
            import: Duration::from_secs(30),
            drop: Duration::from_secs(5),
            idle: Duration::from_secs(5),
            engine_held: Duration::from_secs(15),
            waiting_max: 64,
            connections_max: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_holds_has_come_before_it_is_freed() {
        let hours = Limits {
            import: Duration::from_hours(8),
            ..Limits::default()
        };
        let held = hours.of_engine_held();
        assert_eq!(held.import, Duration::from_secs(405));
        assert!(held.engine_held + held.import < ENGINE_FREES_AFTER);
        let longer = Limits {
            engine_held: Duration::from_hours(1),
            ..hours
        };
        let longer = longer.of_engine_held();
        assert_eq!(
            longer.engine_held, held.engine_held,
            "the lease is no longer"
        );
        let usual = Limits::default();
        let same = usual.of_engine_held();
        assert_eq!(
            (same.import, same.engine_held),
            (usual.import, usual.engine_held)
        );
    }
}
