//! Errors of commands: their text for people, and their exit codes.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use super::environment;
use treadle_calibrate::CalibrateError;
use treadle_demo::DemoError;
use treadle_rollouts::sim::SimError;
use treadle_server::start::EndCause;

/// The command failed.
const FAILURE: u8 = 1;
/// The command's arguments are invalid.
const USAGE: u8 = 2;
/// The store of a running daemon was deleted, moved or replaced.
const STORE_LOST: u8 = 3;

/// Why a command failed. The text states what is wrong, then the remedy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The configuration has an invalid value.
    #[error("{0}")]
    Config(#[from] treadle_config::ConfigError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The daemon does not start.
    #[error("{0}")]
    Start(#[from] treadle_server::start::StartError),
    /// A node's agent does not start.
    #[error("{0}")]
    Agent(#[from] treadle_node_agent::StartError),
    /// A running daemon had to stop.
    #[error("{0}")]
    Ended(#[from] treadle_server::start::EndCause),
    /// A simulated engine does not start.
    #[error("{0}")]
    EngineSim(#[from] treadle_engine_sim::EngineSimError),
    /// A demo failed to produce a comparison.
    #[error("{0}")]
    Demo(#[from] DemoError),
    /// An engine could not be calibrated.
    #[error("{0}")]
    Calibrate(#[from] CalibrateError),
    /// A rollout could not be simulated.
    #[error("{0}")]
    Sim(#[from] SimError),
    /// What-if replay failed.
    #[error("{0}")]
    WhatIf(#[from] treadle_whatif::WhatIfError),
    /// The plugin runtime does not start.
    #[error("{0}")]
    Runtime(#[from] treadle_policy_runtime::RuntimeError),
    /// The store fails.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// The journal does not replay.
    #[error("{0}")]
    Recovery(#[from] treadle_scheduler::recovery::RecoveryError),
    /// A training run can't be checked.
    #[error("{0}")]
    Check(#[from] treadle_training_check::Error),
    /// Nothing listens at the address.
    #[error(
        "no treadle answers at {url}: {cause}; start one with `treadle up` or `treadle serve`, or name another with --url or {}",
        environment::URL
    )]
    Unreachable {
        /// The address.
        url: String,
        /// The system's error.
        cause: String,
    },
    /// The connection broke before the response was complete.
    #[error(
        "{url} closed the connection before its response was complete: {cause}; check its log, then try again"
    )]
    Broken {
        /// The address.
        url: String,
        /// The system's error.
        cause: String,
    },
    /// No response in time.
    #[error("{url} did not respond within {seconds} s; check its log, then try again")]
    Slow {
        /// The address.
        url: String,
        /// How long the command waited.
        seconds: u64,
    },
    /// A response that is not treadle's.
    #[error(
        "{url} returned {what}; this is not treadle: name a daemon with --url or {}",
        environment::URL
    )]
    Foreign {
        /// The address.
        url: String,
        /// What was received.
        what: String,
    },
    /// The daemon requires a token and does not know the local one.
    #[error(
        "{refusal}; the token in {} was not sent, because {url} does not identify itself as the daemon that the token is for: name that daemon with --url, or give a token of this one with --token or {}",
        file.display(),
        environment::TOKEN
    )]
    Withheld {
        /// The daemon's response.
        refusal: String,
        /// The address.
        url: String,
        /// The file with the token.
        file: PathBuf,
    },
    /// The server claims to know the local token, but does not prove it.
    #[error(
        "{url} does not prove that it is the daemon that the token in {} is for, so nothing was sent: something else listens there, or passes requests on to the daemon; name the daemon's own address with --url, or, if you trust what is there, give it the token with --token or {}",
        file.display(),
        environment::TOKEN
    )]
    Unproven {
        /// The address.
        url: String,
        /// The file with the token.
        file: PathBuf,
    },
    /// The daemon refused.
    #[error("{message} [{code}]")]
    Refused {
        /// The stable code.
        code: String,
        /// What is wrong, and the remedy.
        message: String,
    },
    /// A file could not be read.
    #[error("can't read {}: {cause}; check the path and its permissions", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// An operating system call failed.
    #[error("{what}: {cause}")]
    System {
        /// What failed.
        what: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A command that was run for the caller failed; its output is already shown.
    #[error("the command ended with {0}")]
    Ran(u8),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// The reader of the output has closed it, as `head` does.
    #[error("the output is closed")]
    OutputClosed,
}

impl CliError {
    /// The exit code of the process.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Ran(code) => ExitCode::from(*code),
            Self::Ended(EndCause::StoreLost(_)) => ExitCode::from(STORE_LOST),
            closed if closed.is_silent() => ExitCode::SUCCESS,
            Self::Config(_)
            | Self::Usage(_)
            | Self::WhatIf(treadle_whatif::WhatIfError::Field { .. })
            | Self::Sim(SimError::Option { .. } | SimError::Comparison(_))
            | Self::Demo(DemoError::Option { .. } | DemoError::Files { .. }) => {
                ExitCode::from(USAGE)
            }
            _ => ExitCode::from(FAILURE),
        }
    }

    /// Whether nothing is to be printed: the output is closed, or the failure is already shown.
    pub(super) fn is_silent(&self) -> bool {
        match self {
            Self::OutputClosed | Self::Ran(_) => true,
            Self::Demo(DemoError::Output(cause))
            | Self::Sim(SimError::Output(cause))
            | Self::Calibrate(CalibrateError::Output(cause)) => {
                cause.kind() == ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }
}
