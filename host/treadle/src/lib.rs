//! The treadle command line.

pub mod cli;
mod doctor;
