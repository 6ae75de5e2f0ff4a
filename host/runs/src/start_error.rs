//! Why a part of a daemon, or a node's agent, did not start.

use std::net::SocketAddr;

/// Why a part of a daemon, or a node's agent, did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is in use or not permitted.
    #[error("can't listen on {addr}: {error}; choose another with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// Files of TLS can't be used.
    #[error("{0}; see `[tls]` of the configuration")]
    Tls(#[from] treadle_trust::TlsError),
    /// The store fails.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// This machine can't run sandboxes.
    #[error("{0}; see `[sandboxes]` of the configuration")]
    Sandboxes(#[from] treadle_sandbox::SandboxError),
    /// The executor of actions does not start.
    #[error("{0}; see `[actions]` of the configuration")]
    Actions(#[from] treadle_actions::ExecutorError),
    /// The GPUs for actions are missing.
    #[error("{0}")]
    Gpus(#[from] treadle_actions::GpuError),
    /// The configuration can't be used.
    #[error("{0}")]
    Config(Box<treadle_config::ConfigError>),
    /// A node's agent can't keep its state.
    #[error("{folder} can't be used: {error}; choose another folder with --folder")]
    NodeFolder {
        /// The folder.
        folder: String,
        /// The cause.
        error: std::io::Error,
    },
}

impl From<treadle_config::ConfigError> for StartError {
    fn from(error: treadle_config::ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}
