//! Why a lab run came to nothing.

use treadle_simulator::lab::LabError;
use treadle_wire::{ErrorBody, ErrorCode};

/// Why a lab run came to nothing. The text is what is wrong, then the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabFailure {
    /// A field of the request makes no sense.
    #[error("`{field}`: {problem}")]
    Field {
        /// Its name.
        field: String,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The window can't be repeated.
    #[error("{0}")]
    Window(#[from] LabError),
    /// The window is too long, or not there.
    #[error("{0}")]
    Range(String),
    /// Nothing is known of the engines.
    #[error("{0}")]
    Profile(String),
    /// A policy can't decide.
    #[error("policy `{policy}`: {cause}")]
    Policy {
        /// Which.
        policy: String,
        /// What is wrong with it.
        cause: String,
    },
    /// As many runs wait as may.
    #[error("{0}")]
    Full(String),
    /// It was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// It took too long.
    #[error(
        "the run took more than {} s; choose a shorter window, fewer sets or fewer seeds",
        super::RUN_S_MAX
    )]
    TimedOut,
    /// The store failed.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// An event is not readable.
    #[error("event {seq} cannot be read: {error}; it was written by another version")]
    Event {
        /// Its position.
        seq: u64,
        /// What the reader said.
        error: serde_json::Error,
    },
    /// A file that can't be read.
    #[error("can't read {path}: {cause}; check the path and its permissions")]
    File {
        /// Its path.
        path: String,
        /// What happened.
        cause: String,
    },
    /// A thread ended early.
    #[error("the run ended early: {0}")]
    Ended(String),
}

impl LabFailure {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// As clients see it.
    pub(crate) fn body(&self) -> ErrorBody {
        let code = match self {
            Self::Field { .. } => ErrorCode::InvalidField,
            Self::Window(_) | Self::Range(_) => ErrorCode::LabWindow,
            Self::Profile(_) => ErrorCode::LabProfile,
            Self::Policy { .. } => ErrorCode::PluginInvalid,
            Self::Full(_) => ErrorCode::LabFull,
            Self::Cancelled => ErrorCode::LabCancelled,
            Self::TimedOut => ErrorCode::LabTimeout,
            Self::Store(_) | Self::Event { .. } | Self::File { .. } | Self::Ended(_) => {
                ErrorCode::Internal
            }
        };
        let body = ErrorBody::new(code, self.to_string());
        match self {
            Self::Field { field, .. } => body.with_param(field.clone()),
            _ => body,
        }
    }
}
