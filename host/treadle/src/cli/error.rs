//! What a command can end with, as text for people, and its exit code.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use super::environment;
use treadle_demo::DemoError;
use treadle_server::start::EndCause;

/// The command could not do what was asked.
const FAILURE: u8 = 1;
/// The command's arguments are invalid.
const USAGE: u8 = 2;
/// The store of a running daemon was deleted, moved or replaced.
const STORE_LOST: u8 = 3;

/// Why a command did not succeed. The text is what is wrong, then the remedy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// A value of the configuration.
    #[error("{0}")]
    Config(#[from] treadle_config::ConfigError),
    /// Arguments that don't go together.
    #[error("{0}")]
    Usage(String),
    /// The daemon does not start.
    #[error("{0}")]
    Start(#[from] treadle_server::start::StartError),
    /// A daemon that ran can't go on.
    #[error("{0}")]
    Ended(#[from] treadle_server::start::EndCause),
    /// A simulated engine does not start.
    #[error("{0}")]
    EngineSim(#[from] treadle_engine_sim::EngineSimError),
    /// A demo gave no comparison.
    #[error("{0}")]
    Demo(#[from] DemoError),
    /// What-if replay found nothing.
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
    /// Nothing listens there.
    #[error(
        "no treadle answers at {url}: {cause}; start one with `treadle up` or `treadle serve`, or name another with --url or {}",
        environment::URL
    )]
    Unreachable {
        /// Where.
        url: String,
        /// The system's error.
        cause: String,
    },
    /// The connection broke before the whole answer was there.
    #[error(
        "{url} was reached, and ended the connection before its answer was complete: {cause}; look at its log, then try again"
    )]
    Broken {
        /// Where.
        url: String,
        /// The system's error.
        cause: String,
    },
    /// An answer that took too long.
    #[error("{url} gave no answer within {seconds} s; look at its log, then try again")]
    Slow {
        /// Where.
        url: String,
        /// How long was waited.
        seconds: u64,
    },
    /// An answer that is not treadle's.
    #[error(
        "{url} answers {what}; this is not treadle: name one with --url or {}",
        environment::URL
    )]
    Foreign {
        /// Where.
        url: String,
        /// What came.
        what: String,
    },
    /// The daemon requires a token and does not know the one that is here.
    #[error(
        "{refusal}; the token in {} was not sent, because {url} does not identify itself as the daemon that the token is for: name that daemon with --url, or give a token of this one with --token or {}",
        file.display(),
        environment::TOKEN
    )]
    Withheld {
        /// The daemon's answer.
        refusal: String,
        /// Where.
        url: String,
        /// Where the token lies.
        file: PathBuf,
    },
    /// Who claims to know the token that lies here, and does not.
    #[error(
        "{url} does not prove that it is the daemon that the token in {} is for, so nothing was sent: something else listens there, or passes requests on to the daemon; name the daemon's own address with --url, or, if you trust what is there, give it the token with --token or {}",
        file.display(),
        environment::TOKEN
    )]
    Unproven {
        /// Where.
        url: String,
        /// Where the token lies.
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
    /// A file that can't be read.
    #[error("can't read {}: {cause}; check the path and its permissions", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The system refused something that no argument changes.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A command that was run for the caller did not succeed: that is shown already.
    #[error("the command ended with {0}")]
    Ran(u8),
    /// Anything else that did not come out as hoped.
    #[error("{0}")]
    Failed(String),
    /// The reader of the output has gone, which is how `head` ends a command.
    #[error("the output is closed")]
    OutputClosed,
}

impl CliError {
    /// What the process ends with.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Ran(code) => ExitCode::from(*code),
            Self::Ended(EndCause::StoreLost(_)) => ExitCode::from(STORE_LOST),
            closed if closed.is_silent() => ExitCode::SUCCESS,
            Self::Config(_)
            | Self::Usage(_)
            | Self::WhatIf(treadle_whatif::WhatIfError::Field { .. })
            | Self::Demo(DemoError::Option { .. } | DemoError::Files { .. }) => {
                ExitCode::from(USAGE)
            }
            _ => ExitCode::from(FAILURE),
        }
    }

    /// Whether there is nothing to report: the output has no reader any more, or said it.
    pub(super) fn is_silent(&self) -> bool {
        match self {
            Self::OutputClosed | Self::Ran(_) => true,
            Self::Demo(DemoError::Output(cause)) => cause.kind() == ErrorKind::BrokenPipe,
            _ => false,
        }
    }
}
