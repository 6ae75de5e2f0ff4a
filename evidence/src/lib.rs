//! `treadle-bench`: the benchmarks behind `docs/results.md`, of the daemon and of its policies.

pub mod bench;
