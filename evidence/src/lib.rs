//! `treadle-bench`: the benchmarks behind `docs/results.md`, of the daemon and of its policies.

pub mod actions;
pub mod bench;
pub mod prediction;
pub mod pressure;
pub mod training;
