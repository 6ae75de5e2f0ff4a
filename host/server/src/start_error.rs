//! Why a daemon did not start.

use treadle_engines::transfers::NodeError;
use treadle_registry as policies;
use treadle_scheduler::recovery;

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It can't listen, or its actions or sandboxes do not start.
    #[error(transparent)]
    Part(#[from] treadle_runs::StartError),
    /// The store does not open.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// The journal does not replay.
    #[error("{0}")]
    Recovery(#[from] recovery::RecoveryError),
    /// The plugin runtime does not start.
    #[error("{0}")]
    Runtime(#[from] policies::EngineError),
    /// The host tier of KV caches does not open.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// No caller can be authenticated.
    #[error("{0}")]
    Auth(#[from] treadle_auth::AuthError),
    /// The broker's URL or prefix can't be used.
    #[error("{0}")]
    Broker(#[from] treadle_broker::BrokerError),
    /// The bound policy does not load.
    #[error("the eviction policy could not be bound: {0}")]
    Policy(#[from] treadle_registry::RegistryError),
    /// Another daemon schedules on this store.
    #[error(
        "the daemon {name} at {url} schedules on this store; stop it, name another store, or let several daemons share one with cluster.role"
    )]
    Held {
        /// Its name.
        name: String,
        /// Its URL.
        url: String,
    },
    /// All gateway ids have been used.
    #[error("the store has no gateway ids left; start with a new one (store.url or store.schema)")]
    Gateways,
    /// The GPUs for actions are missing.
    #[error("{0}")]
    Gpus(#[from] treadle_actions::GpuError),
    /// The configuration can't be used.
    #[error("{0}")]
    Config(Box<treadle_config::ConfigError>),
    /// The profile of an engine can't be used.
    #[error("the profile {profile} of `engines.endpoints` can't be used: {why}")]
    Profile {
        /// The configured value.
        profile: String,
        /// The cause.
        why: String,
    },
    /// No thread could be started.
    #[error("the scheduler's thread could not be started: {0}")]
    Thread(std::io::Error),
}

impl From<treadle_config::ConfigError> for StartError {
    fn from(error: treadle_config::ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}
