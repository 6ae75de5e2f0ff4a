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
