//! Models that surround the core: inference engines, agent workloads, and a cluster of both in
//! virtual time.
//!
//! Nothing here reads a clock or opens a socket: time is a number of microseconds that the caller
//! advances.

pub mod cluster;
pub mod contest;
pub mod prediction;
pub mod pressure;
pub mod rollout;
pub mod workload;

pub use treadle_engine_model::{engine, hardware, links};
pub use treadle_policy::native;
