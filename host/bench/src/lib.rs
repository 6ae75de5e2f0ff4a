//! `treadle-bench`: benchmarks of the daemon and of its policies, rollouts in virtual time, and
//! calibration of the engine model.

pub mod actions;
pub mod bench;
pub mod calibrate;
pub mod comparison;
pub mod plots;
pub mod prediction;
pub mod pressure;
pub mod sim;
