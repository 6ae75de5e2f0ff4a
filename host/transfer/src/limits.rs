//! Bounds of transfers.

use std::time::Duration;

/// Bounds of transfers. Nothing waits for longer, and nothing grows beyond.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
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
    /// How long after it was asked for a copy in an engine's own memory (vLLM) may be used. It has to
    /// stay well below the time after which the engine frees what nobody has begun to fetch
    /// (`kv_lease_duration`, 30 s by itself): nobody notices blocks that hold something else.
    pub engine_held: Duration,
    /// Transfers that wait for one worker in one direction.
    pub waiting_max: usize,
    /// Connections that a tier's server serves at once.
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
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
