//! The server: REST, AMQP, Prometheus, several daemons on one store, and the order in which a
//! daemon's parts start and stop.
//!
//! [`daemon::Daemon`] puts the parts together. The scheduler alone owns the core; REST and the
//! gateway talk to it through a handle.

pub mod app;
pub mod cluster;
pub mod daemon;
mod leading;
mod memory;
pub mod messaging;
pub mod metrics;
mod policy_metrics;
mod rest;
mod upkeep;
