//! Why a policy was not stored, bound or called.

use treadle_policy::evaluator::ChangeError;
use treadle_policy_runtime::{LoadError, UploadRefusal};
use treadle_scheduler::{DriverStopped, NotRecorded};
use treadle_store::StoreError;

/// Why a policy was not stored or bound.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The upload is not an acceptable policy.
    #[error("{0}")]
    Refused(UploadRefusal),
    /// The policy does not load with this configuration.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The tenant has used its share of the space for plugins.
    #[error(
        "the tenant would have {plugins} plugins of {bytes} bytes, its share is {plugins_max} of {bytes_max} bytes, the limits of the store divided by its tenants; bind one that is stored, or upload a smaller one"
    )]
    BeyondShare {
        /// Its plugins with the new one.
        plugins: u64,
        /// Their size.
        bytes: u64,
        /// How many it may have.
        plugins_max: u64,
        /// Their largest size.
        bytes_max: u64,
    },
    /// No stored policy has this digest or name.
    #[error("no plugin `{0}` is stored; `treadle plugin list` shows those that can be bound")]
    Unknown(String),
    /// Several stored policies have this name.
    #[error("`{name}` names {count} plugins; give the version (name@1.2.3) or the digest")]
    Ambiguous {
        /// The name.
        name: String,
        /// Number of such policies.
        count: usize,
    },
    /// The policy has another world than the binding.
    #[error(
        "`{policy}` is of the world `{found}`, not `{wanted}`; bind it there: `--world {found}`, or `world` in the body"
    )]
    World {
        /// The policy.
        policy: String,
        /// Its world.
        found: String,
        /// The world of the binding.
        wanted: String,
    },
    /// The built-in default was to be a canary or a shadow.
    #[error("`native` can only be active; name a plugin for a canary or a shadow")]
    NativeRole,
    /// The change of the binding is refused.
    #[error("{0}")]
    Change(#[from] ChangeError),
    /// A working thread ended early.
    #[error("{0} was aborted; try again")]
    EndedEarly(&'static str),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The daemon is stopping.
    #[error("{0}")]
    Stopped(#[from] DriverStopped),
    /// The change may not be on record.
    #[error("{0}")]
    NotRecorded(#[from] NotRecorded),
}
