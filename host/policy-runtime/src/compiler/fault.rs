//! Why a component was not compiled.

use thiserror::Error;

use crate::error::UploadRefusal;

/// Why a component was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileFault {
    /// It exceeded its time limit.
    #[error("compiling takes longer than {limit}")]
    Timeout {
        /// Which limit: seconds on the clock or on a processor.
        limit: String,
    },
    /// It exceeded its memory limit.
    #[error("compiling takes more than {max} bytes of memory")]
    Memory {
        /// `CompilerLimits::memory_bytes_max`.
        max: u64,
    },
    /// The code exceeds the limit.
    #[error("the compiled code has more than {max} bytes")]
    ArtifactTooLarge {
        /// `CompilerLimits::artifact_bytes_max`.
        max: u64,
    },
    /// The compiler rejects it, or failed on it.
    #[error("does not compile: {detail}")]
    Failed {
        /// The compiler's message.
        detail: String,
    },
    /// Too many other components wait to be compiled.
    #[error("the compile queue is full ({waiting_max} components)")]
    Busy {
        /// `CompilerLimits::waiting_max`.
        waiting_max: usize,
    },
    /// The child process does not work. Not the component's fault.
    #[error("the compiler process failed: {detail}")]
    Unavailable {
        /// What happened.
        detail: String,
    },
}

impl CompileFault {
    /// A stable name for an upload's refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "compile-timeout",
            Self::Memory { .. } => "compile-memory",
            Self::ArtifactTooLarge { .. } => "compile-too-large",
            Self::Failed { .. } => "compile-failed",
            Self::Busy { .. } => "compile-busy",
            Self::Unavailable { .. } => "compile-unavailable",
        }
    }

    /// Whether the component is at fault, so that retrying is useless.
    pub fn is_components_fault(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Unavailable { .. })
    }

    pub(crate) fn refusal(&self) -> UploadRefusal {
        let (place, remedy) = match self {
            Self::Timeout { .. } | Self::Memory { .. } | Self::ArtifactTooLarge { .. } => (
                "the component's code",
                "make it smaller: split very large functions, build with less inlining, drop \
                 dependencies that are not needed",
            ),
            Self::Failed { .. } => (
                "the component's code",
                "build it again without experimental WebAssembly features",
            ),
            Self::Busy { .. } => ("the queue of the compiler", "upload it again in a minute"),
            Self::Unavailable { .. } => (
                "the compiler process",
                "nothing is wrong with the upload; the operator finds more in the daemon's log",
            ),
        };
        UploadRefusal::new(self.code(), self.to_string(), place, remedy)
    }
}
