//! Agent workloads, and a cluster of engine models that serves them in virtual time, under the
//! daemon's core and policies.
//!
//! Nothing here reads a clock or opens a socket: time is a number of microseconds that the caller
//! advances.

pub mod actions;
pub mod cluster;
mod correlation;
pub mod rollout;
pub mod workload;

pub use correlation::pearson;
