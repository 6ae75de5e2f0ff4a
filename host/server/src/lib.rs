//! The server: REST, AMQP, Prometheus, several daemons on one store, and the order in which a
//! daemon's parts start and stop.
//!
//! [`start::Daemon`] puts the parts together. Only the scheduler owns the core; REST and the
//! gateway talk to it through a handle.

pub mod app;
pub mod cluster;
mod commands;
pub mod demo_comparison;
mod engine_profiles;
mod history;
mod maintenance;
mod memory;
pub mod messaging;
pub mod metrics;
mod rest;
pub mod start;
mod start_error;
mod store_health;

pub use rest::routes;
pub use treadle_actions::supervisor_main;
pub use treadle_runs::actions::SUPERVISE_SUBCOMMAND;
pub use treadle_runs::sandboxes::{KEEP_SUBCOMMAND, look_at_cluster, try_sandbox};
pub use treadle_sandbox::{look, sandbox_main};
