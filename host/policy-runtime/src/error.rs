//! Errors, grouped by who can fix them.

use serde::Serialize;
use thiserror::Error;

use crate::compiler::CompileFault;

/// The engine could not be set up.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// A limit in [`Limits`](crate::Limits) is too small to run anything.
    #[error("limit {field} is {value}; give at least {min}")]
    Limit {
        /// The field of `Limits`.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The minimum.
        min: u64,
    },
    /// The WebAssembly engine refused its configuration on this machine.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The deadline thread could not be started.
    #[error("the deadline thread does not start: {0}; allow the process another thread")]
    Ticker(#[source] std::io::Error),
}

/// An inspected component could not be started.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The bytes do not compile, or are not a component of a world.
    #[error("the component does not load: {0}; load only the output of an inspection")]
    Component(String),
    /// The component could not be compiled.
    #[error("the component does not compile: {0}; inspect the policy again")]
    Compile(#[from] CompileFault),
    /// The configuration is larger than the limit.
    #[error("the configuration has {found} bytes; give at most {max}")]
    ConfigTooLarge {
        /// Size found.
        found: usize,
        /// `Limits::config_bytes_max`.
        max: usize,
    },
    /// The initial snapshot is larger than the limit.
    #[error("the snapshot has {found} bytes; give at most {max}")]
    SnapshotTooLarge {
        /// Size found.
        found: usize,
        /// `Limits::snapshot_bytes_max`.
        max: usize,
    },
    /// The policy refused its configuration.
    #[error("the policy refuses its configuration: {0}")]
    Config(String),
    /// The policy failed while it was started, described or configured.
    #[error("the policy does not start: {0}")]
    Fault(#[source] PolicyFault),
}

/// A call that gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyFault {
    /// It ran past its deadline and was stopped.
    #[error("stopped at its deadline of {deadline_ms} ms")]
    Timeout {
        /// The deadline.
        deadline_ms: u64,
    },
    /// It used up its fuel and was stopped; only on a deterministic engine.
    #[error("stopped after its {fuel} units of fuel")]
    Fuel {
        /// Its fuel for the call.
        fuel: u64,
    },
    /// It panicked or did something forbidden.
    #[error("trapped: {detail}")]
    Trap {
        /// The panic message if the policy logged one, otherwise the engine's message.
        detail: String,
    },
    /// It exceeded the memory limit, and could not go on.
    #[error("needs more than its {max} bytes of memory")]
    Memory {
        /// `Limits::memory_bytes_max`.
        max: usize,
    },
    /// It exhausted its stack.
    #[error("exhausted its stack")]
    Stack,
    /// Its answer has the wrong length, a value out of range, or cannot be read.
    #[error("bad answer: {detail}")]
    BadOutput {
        /// The fault.
        detail: String,
    },
    /// It answered with an error of its own: code and message.
    #[error("the policy answered: {0}")]
    PolicyError(String),
    /// It leaves this question to the host's built-in default. Not its fault.
    #[error("the policy leaves this question to the built-in default")]
    NotSupported,
    /// The caller's columns contradict each other or exceed the limits. The policy was not called,
    /// and is not at fault.
    #[error("bad columns: {detail}")]
    BadInput {
        /// The column and the fault.
        detail: String,
    },
}

impl PolicyFault {
    /// A stable name for metrics.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Fuel { .. } => "fuel",
            Self::Trap { .. } => "trap",
            Self::Memory { .. } => "memory",
            Self::Stack => "stack",
            Self::BadOutput { .. } => "bad_output",
            Self::PolicyError(_) => "policy_error",
            Self::NotSupported => "not_supported",
            Self::BadInput { .. } => "bad_input",
        }
    }

    /// Whether the policy is at fault, so that a breaker should count it.
    pub fn is_policys_fault(&self) -> bool {
        !matches!(self, Self::NotSupported | Self::BadInput { .. })
    }
}

/// Why an upload was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Error)]
#[error("{code}: {what} ({place}); {remedy}")]
pub struct UploadRefusal {
    /// Stable, lower-case words joined by hyphens.
    pub code: &'static str,
    /// The fault.
    pub what: String,
    /// Where in the upload: a byte, a section, an import, a call.
    #[serde(rename = "where")]
    pub place: String,
    /// The remedy.
    pub remedy: String,
}

impl UploadRefusal {
    pub(crate) fn new(
        code: &'static str,
        what: impl Into<String>,
        place: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            code,
            what: what.into(),
            place: place.into(),
            remedy: remedy.into(),
        }
    }
}
