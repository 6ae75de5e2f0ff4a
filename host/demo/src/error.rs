//! Errors of the demo.

use std::path::PathBuf;

/// Why the demo produced no comparison.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An option is invalid.
    #[error("{option} is {value}; give {remedy}")]
    Option {
        /// Its name, dashes included.
        option: &'static str,
        /// The given value.
        value: String,
        /// Valid values.
        remedy: &'static str,
    },
    /// The process's limit on open files is too low.
    #[error(
        "{programs} programs over HTTP need about {needed} open files, and this process may have {files}: give --programs {fit} or fewer, raise the limit (ulimit -n {needed}), or run in virtual time with --simulate"
    )]
    Files {
        /// Programs live at once.
        programs: usize,
        /// Files that are needed.
        needed: u64,
        /// The process's limit.
        files: u64,
        /// Number of programs that the limit allows.
        fit: u64,
    },
    /// The trace can't be opened.
    #[error("--trace {}: {cause}; leave it out for generated runs", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The trace is invalid.
    #[error("--trace: {0}")]
    Trace(#[from] treadle_simulator::workload::TraceError),
    /// The generator's parameters are invalid.
    #[error("{0}")]
    Workload(#[from] treadle_simulator::workload::WorkloadError),
    /// A policy can't be used.
    #[error("--policy {}: {cause}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// The problem.
        cause: String,
    },
    /// There is nothing to run.
    #[error("the workload has no runs; give a trace with at least one that fits the engines")]
    NoRuns,
    /// A simulated engine can't be started.
    #[error("{0}")]
    Engine(#[from] treadle_engine_sim::EngineSimError),
    /// No port is free.
    #[error("can't listen on any port of 127.0.0.1: {0}")]
    Port(std::io::Error),
    /// The daemon can't be started.
    #[error("{0}")]
    Start(#[from] treadle_server::start::StartError),
    /// Part of the demo ended early.
    #[error("the demo ended early: {0}")]
    Ended(String),
    /// The output is closed.
    #[error("the comparison could not be written: {0}")]
    Output(#[from] std::io::Error),
}
