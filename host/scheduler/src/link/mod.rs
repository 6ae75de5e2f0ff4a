//! Gateways and schedulers in different processes.
//!
//! A gateway numbers its events about its steps and keeps them until the scheduler confirms that
//! they are on record. When a scheduler dies, the gateway keeps its clients' streams open, finds
//! the next scheduler and relays again what was not on record. Then both compare their records of
//! its steps ([`treadle_core::link`]).

mod frames;
mod lines;
mod remote;

pub use frames::{FromGateway, Live, ToGateway, WireInstruction, Withdrawn};
pub use lines::{LineError, add_line, read_line};
pub use remote::RemoteScheduler;

use std::time::Duration;

/// Path at which a scheduler accepts gateways, followed by the shard.
pub const PATH: &str = "/internal/link";
/// The upgrade protocol of both ends.
pub const PROTOCOL: &str = "treadle-link/1";
/// Interval of heartbeats.
pub const PULSE: Duration = Duration::from_secs(1);
/// Silence after which the other end counts as gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(4);
