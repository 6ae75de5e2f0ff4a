//! Errors of what-if runs.

use crate::recorded::ReplayError;
use treadle_wire::{ErrorBody, ErrorCode};

/// Why a what-if run failed. The text states the problem, then the remedy.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// A field of the request is invalid.
    #[error("`{field}`: {problem}")]
    Field {
        /// Its name.
        field: String,
        /// The problem, and a valid value.
        problem: String,
    },
    /// The window can't be replayed.
    #[error("{0}")]
    Window(#[from] ReplayError),
    /// The window is too long, or empty.
    #[error("{0}")]
    Range(String),
    /// The engines' profile is unknown.
    #[error("{0}")]
    Profile(String),
    /// A policy can't be used.
    #[error("policy `{policy}`: {cause}")]
    Policy {
        /// The policy.
        policy: String,
        /// The problem.
        cause: String,
    },
    /// The limit on queued and running runs is reached.
    #[error("{0}")]
    Full(String),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The run reached its time limit.
    #[error(
        "the run took more than {0} s before any set was replayed; choose a shorter window, or give `treadle what-if compare` a longer --limit-s"
    )]
    TimedOut(u64),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// An event can't be parsed.
    #[error("event {seq} cannot be read: {error}; it was written by another version")]
    Event {
        /// Its sequence number.
        seq: u64,
        /// The parser's error.
        error: serde_json::Error,
    },
    /// A file can't be read.
    #[error("can't read {path}: {cause}; check the path and its permissions")]
    File {
        /// Its path.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// The run's thread or task ended early.
    #[error("the run ended early: {0}")]
    Ended(String),
}

impl WhatIfError {
    /// The error for an invalid field.
    pub fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The error as clients see it. Details of internal failures only go to the log.
    pub fn body(&self) -> ErrorBody {
        let code = match self {
            Self::Field { .. } => ErrorCode::InvalidField,
            Self::Window(_) | Self::Range(_) => ErrorCode::WhatIfWindow,
            Self::Profile(_) => ErrorCode::WhatIfProfile,
            Self::Policy { .. } => ErrorCode::PluginInvalid,
            Self::Full(_) => ErrorCode::WhatIfFull,
            Self::Cancelled => ErrorCode::WhatIfCancelled,
            Self::TimedOut(_) => ErrorCode::WhatIfTimeout,
            Self::Store(_) | Self::Event { .. } | Self::File { .. } | Self::Ended(_) => {
                ErrorCode::Internal
            }
        };
        let message = match self {
            Self::Store(error) => {
                tracing::error!(%error, "the store failed");
                "the store failed; see the log".to_owned()
            }
            _ => self.to_string(),
        };
        let body = ErrorBody::new(code, message);
        match self {
            Self::Field { field, .. } => body.with_param(field.clone()),
            _ => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_store::StoreError;

    #[test]
    fn store_errors_are_not_shown_to_clients() {
        let failure = WhatIfError::Store(StoreError::TooLarge {
            what: "secret",
            got: 2,
            max: 1,
        });
        assert!(failure.to_string().contains("secret"));
        assert_eq!(failure.body().message, "the store failed; see the log");
        let told = WhatIfError::field("seeds", "is 0; give 1 to 32").body();
        assert_eq!(told.message, "`seeds`: is 0; give 1 to 32");
    }
}
