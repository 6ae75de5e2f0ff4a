//! Bounds of transfers.

use std::time::Duration;

use treadle_trust::{Acceptor, Connector, Trust};

/// TLS between nodes: what a tier proves itself with, and whose certificates it accepts.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// What it proves itself with.
    pub acceptor: Acceptor,
    /// Whom it trusts.
    pub trust: Trust,
}

/// Bounds of transfers. Nothing waits for longer, and nothing grows beyond.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What opens connections to engines, within its own time.
    pub engines: Connector,
    /// TLS between the tiers of nodes, for all of them or for none.
    pub tls: Option<NodeTls>,
    /// Until a connection comes about.
    pub connect: Duration,
    /// A look at what an engine can do.
    pub probe: Duration,
    /// A whole export: its turn, and a step that runs in the slot, included.
    pub export: Duration,
    /// A whole import, likewise.
    pub import: Duration,
    /// Forgetting a copy.
    pub drop: Duration,
    /// Between two pieces of a stream.
    pub idle: Duration,
    /// How long after it was asked for a copy in an engine's own memory (vLLM) may be used. It has
    /// to stay well below the time after which the engine frees what has not begun to be fetched
    /// (`kv_lease_duration`, 30 s by default): blocks that hold something else by then go
    /// unnoticed.
    pub engine_held: Duration,
    /// Transfers that wait for one worker in one direction.
    pub waiting_max: usize,
    /// Connections that a tier's server serves at once.
    pub connections_max: usize,
}

/// How long vLLM holds what no other engine has asked for (`kv_lease_duration`). An engine that
/// fetches renews that.
const ENGINE_LEASE: Duration = Duration::from_secs(30);
/// Time after which older ones free it in any case (`VLLM_NIXL_ABORT_REQUEST_TIMEOUT`).
const ENGINE_FREES_AFTER: Duration = Duration::from_mins(8);
/// Part of it that is never used.
const ENGINE_SPARE: Duration = Duration::from_mins(1);

impl Limits {
    /// The same for copies that an engine holds: the fetch begins, and what is fetched has come,
    /// before it is freed.
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
