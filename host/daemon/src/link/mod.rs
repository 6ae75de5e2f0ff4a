//! Gateways and schedulers in different processes.
//!
//! A gateway numbers what happens to its steps and keeps it until the
//! scheduler says that it is on record. When a scheduler dies, the gateway
//! keeps its clients' streams open, finds the next scheduler, relays again
//! what was not on record, and both compare what they know of its steps
//! ([`treadle_core::link`]).

mod connection;
mod frames;
mod lines;
mod remote;
mod scheduler;
mod server;

pub(crate) use connection::{Peer, keep_connected};
pub(crate) use frames::{ToGateway, Withdrawn, Word};
pub(crate) use scheduler::shard_of;
pub use scheduler::{Line, Scheduler, Shards};
pub(crate) use server::{LinkServer, expect_back, knows_secret, serve_link};

use std::time::Duration;

/// Where a scheduler takes gateways' connections, followed by the shard.
pub(crate) const PATH: &str = "/internal/link";
/// What both ends upgrade to.
pub(crate) const PROTOCOL: &str = "treadle-link/1";
/// Pause between two signs of life.
const PULSE: Duration = Duration::from_secs(1);
/// Silence after which the other end is taken as gone.
const SILENCE_MAX: Duration = Duration::from_secs(4);
