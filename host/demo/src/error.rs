//! Why a demo gave no comparison.

use std::path::PathBuf;

/// Why a demo gave no comparison.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An option makes no sense.
    #[error("{option} is {value}; give {remedy}")]
    Option {
        /// Its name, dashes included.
        option: &'static str,
        /// What was given.
        value: String,
        /// What makes sense.
        remedy: &'static str,
    },
    /// The process may not have enough open files.
    #[error(
        "{programs} programs over HTTP need about {needed} open files, and this process may have {files}: give --programs {fit} or fewer, raise the limit (ulimit -n {needed}), or run in virtual time with --simulate"
    )]
    Files {
        /// Programs live at once.
        programs: usize,
        /// Files that they need.
        needed: u64,
        /// Files that the process may have.
        files: u64,
        /// Programs for which those are enough.
        fit: u64,
    },
    /// The trace does not open.
    #[error("--trace {}: {cause}; leave it out for generated runs", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The trace is not one.
    #[error("--trace: {0}")]
    Trace(#[from] treadle_simulator::workload::TraceError),
    /// The generator's parameters make no sense.
    #[error("{0}")]
    Workload(#[from] treadle_simulator::workload::WorkloadError),
    /// A policy can't decide.
    #[error("--policy {}: {cause}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// There is nothing to run.
    #[error("the workload has no runs; give a trace with at least one that fits the engines")]
    NoRuns,
    /// A simulated engine does not start.
    #[error("{0}")]
    Engine(#[from] treadle_engine_sim::EngineSimError),
    /// No port is free.
    #[error("no port of 127.0.0.1 can be listened on: {0}")]
    Port(std::io::Error),
    /// The daemon does not start.
    #[error("{0}")]
    Start(#[from] treadle_server::start::StartError),
    /// Part of the demo ended early.
    #[error("the demo ended early: {0}")]
    Ended(String),
    /// The output is closed.
    #[error("the comparison could not be written: {0}")]
    Output(#[from] std::io::Error),
}
