//! treadle and the systems of others in virtual time: what the benchmarks compare.

pub mod actions;
pub mod prediction;
pub mod pressure;
pub mod training;
