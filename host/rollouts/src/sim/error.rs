//! Why a simulation gave no figures.

use std::path::PathBuf;

/// Why a simulation gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// An option makes no sense.
    #[error("{option} is {value}; {remedy}")]
    Option {
        /// Its name, dashes included.
        option: &'static str,
        /// What was given.
        value: String,
        /// What makes sense.
        remedy: String,
    },
    /// A trace does not open.
    #[error("{option} {}: {cause}; check the path and its permissions", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A trace is not one.
    #[error("{option}: {cause}; docs/traces.md has the format")]
    Trace {
        /// The option that names it.
        option: &'static str,
        /// What is wrong.
        cause: treadle_simulator::workload::TraceError,
    },
    /// The programs, the cluster and the policies do not go together.
    #[error("--{0}")]
    Comparison(crate::comparison::ComparisonError),
    /// The simulation ended early.
    #[error("the simulation ended early: {0}")]
    Ended(String),
    /// The output is closed.
    #[error("the figures could not be written: {0}")]
    Output(#[from] std::io::Error),
}
