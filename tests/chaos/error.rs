//! Errors that prevent a run's check.

use std::path::PathBuf;

/// Why a run could not be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChaosError {
    /// The daemon's binary is not there, or too old.
    #[error("{path}: {cause}; build it with `make build`, or name another with --binary")]
    Binary { path: PathBuf, cause: String },
    /// Options that a form can't be run with.
    #[error("the form {name} can't be run so: {refusal}")]
    Form {
        name: &'static str,
        refusal: &'static str,
    },
    /// A process did not come up.
    #[error("{name} does not answer after {after_s} s; its output is in {log}")]
    Start {
        name: String,
        after_s: u64,
        log: PathBuf,
    },
    /// A server can't be had.
    #[error("{0}")]
    Services(#[from] treadle_services::ServicesError),
    /// The broker can't be used.
    #[error("the consumer's connection: {0}")]
    Broker(#[from] treadle_broker::BrokerError),
    /// A file can't be written or read.
    #[error("{what}: {cause}")]
    File { what: String, cause: std::io::Error },
    /// The content of a file is invalid.
    #[error("{0}")]
    Nonsense(String),
}

impl ChaosError {
    /// A failed operation on a file or process.
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::File { what, cause }
    }
}
