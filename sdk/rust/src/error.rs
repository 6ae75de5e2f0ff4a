//! Errors of policies.

use thiserror::Error;

/// An error of a policy: a stable code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{code}: {message}")]
pub struct PolicyError {
    /// Lower-case words joined by hyphens.
    pub code: String,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl PolicyError {
    /// The code of [`not_supported`](Self::not_supported).
    pub const NOT_SUPPORTED: &str = "not-supported";

    /// An error with a code of the policy's own.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }

    /// `invalid-config`: the configuration is not acceptable; name the key and the
    /// remedy.
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new("invalid-config", message)
    }

    /// `invalid-input`: the columns of a call contradict each other or the
    /// configuration.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new("invalid-input", message)
    }

    /// `failed`: anything else.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", message)
    }

    /// `not-supported`: the policy leaves this decision to the host, which then
    /// decides by its built-in default and counts no fault.
    pub fn not_supported() -> Self {
        Self::new(
            Self::NOT_SUPPORTED,
            "this policy leaves the decision to the host; nothing needs to be done",
        )
    }

    /// Whether the policy leaves the decision to the host.
    pub fn is_not_supported(&self) -> bool {
        self.code == Self::NOT_SUPPORTED
    }
}
