//! The shelf of policies: uploads, and which of them is bound.

use crate::auth::directory::WHOLE_DAEMON;
use crate::driver::{BoundPolicy, DriverHandle};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::{Inspection, LoadError, PolicyEngine, UploadRefusal};
use treadle_store::{BindingRow, PluginHead, PluginRow, Store, StoreError};

/// The eviction policy that is bound unless another is: the reference plugin,
/// built from `plugins/thunderagent-eviction`.
const DEFAULT_EVICTION: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/thunderagent_eviction.wasm"));
/// The name under which the native default can be bound.
pub const NATIVE: &str = "native";
/// Bindings hold for all jobs until jobs have bindings of their own.
const ALL_JOBS: &str = "*";

/// The embedded policy as it was built, for those who measure it.
pub fn default_eviction_module() -> &'static [u8] {
    DEFAULT_EVICTION
}

/// Why a policy was not stored or bound.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The upload is no acceptable policy.
    #[error("{0}")]
    Refused(UploadRefusal),
    /// The policy does not load with this configuration.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// No stored policy has this digest or name.
    #[error("no plugin `{0}` is stored; `treadle plugin list` names those that are")]
    Unknown(String),
    /// Several stored policies have this name.
    #[error("`{name}` names {count} plugins; give the version (name@1.2.3) or the digest")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
    /// The world has no binding that can be changed.
    #[error("world `{0}` takes no plugins; only `eviction` does")]
    World(String),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The daemon is stopping.
    #[error("{0}")]
    Stopped(#[from] crate::driver::DriverStopped),
}

/// Uploaded policies and their bindings.
pub struct PolicyShelf {
    engine: PolicyEngine,
    store: Arc<dyn Store>,
    driver: DriverHandle,
}

impl PolicyShelf {
    /// A shelf over a store.
    pub fn new(engine: PolicyEngine, store: Arc<dyn Store>, driver: DriverHandle) -> Self {
        Self {
            engine,
            store,
            driver,
        }
    }

    /// Largest upload, in bytes.
    pub fn upload_bytes_max(&self) -> usize {
        self.engine.limits().upload_bytes_max
    }

    /// Binds what was bound before the restart, or the reference plugin.
    pub async fn restore(&self) -> Result<PolicyRef, ShelfError> {
        let reference = self.push(DEFAULT_EVICTION.to_vec()).await?.0;
        // What the daemon brings along is everybody's.
        self.store
            .claim_plugin(WHOLE_DAEMON, &reference.digest, unix_us())
            .await?;
        let bound = self.store.bindings().await?;
        let eviction = bound
            .into_iter()
            .find(|b| b.world == World::Eviction.as_str());
        let (digest, config) = eviction.map_or((reference.digest, "{}".to_owned()), |binding| {
            (binding.digest, binding.config)
        });
        self.activate(&digest, &config).await
    }

    /// Checks and stores an upload. The second value is false if it was there.
    pub async fn push(&self, bytes: Vec<u8>) -> Result<(PluginHead, bool), ShelfError> {
        let inspection = self.inspect(bytes).await?;
        let head = PluginHead {
            digest: inspection.digest.clone(),
            world: inspection.world.clone(),
            name: inspection.name.clone(),
            version: inspection.version.clone(),
            summary: inspection.summary.clone(),
            size_bytes: inspection.component.len() as u64,
            uploaded_at_us: unix_us(),
        };
        let row = PluginRow {
            head: head.clone(),
            component: inspection.component,
        };
        let new = self.store.put_plugin(&row).await?;
        Ok((head, new))
    }

    /// Takes an upload through every check without storing it.
    pub async fn inspect(&self, bytes: Vec<u8>) -> Result<Inspection, ShelfError> {
        let engine = self.engine.clone();
        // Compiling takes a while; it must not hold requests up.
        let inspected = tokio::task::spawn_blocking(move || engine.inspect(&bytes)).await;
        match inspected {
            Ok(inspected) => inspected.map_err(ShelfError::Refused),
            Err(_) => Err(ShelfError::Unknown("the inspection ended early".into())),
        }
    }

    /// Stored policies, newest first.
    pub async fn list(&self) -> Result<Vec<PluginHead>, ShelfError> {
        Ok(self.store.plugins().await?)
    }

    /// Binds a policy to a world, from the next decision on.
    pub async fn bind(
        &self,
        world: &str,
        policy: &str,
        config: &str,
    ) -> Result<PolicyRef, ShelfError> {
        if world != World::Eviction.as_str() {
            return Err(ShelfError::World(world.into()));
        }
        let digest = self.resolve(policy).await?;
        let bound = self.activate(&digest, config).await?;
        let row = BindingRow {
            job: ALL_JOBS.into(),
            world: world.into(),
            digest,
            config: config.into(),
            since_us: unix_us(),
        };
        self.store.put_binding(&row).await?;
        Ok(bound)
    }

    async fn activate(&self, digest: &str, config: &str) -> Result<PolicyRef, ShelfError> {
        if digest == NATIVE {
            self.driver.bind(None)?;
            return Ok(PolicyRef(NATIVE.into()));
        }
        let row = self.store.plugin(digest).await?;
        let row = row.ok_or_else(|| ShelfError::Unknown(digest.into()))?;
        let (engine, config) = (self.engine.clone(), config.to_owned());
        let component = row.component;
        let loaded = tokio::task::spawn_blocking(move || engine.load(&component, &config)).await;
        let instance = loaded.map_err(|_| ShelfError::Unknown("loading ended early".into()))??;
        let head = row.head;
        let short = head.digest.get(..12).unwrap_or(&head.digest);
        let policy = PolicyRef(format!("{}@{}+{short}", head.name, head.version));
        self.driver.bind(Some(BoundPolicy {
            policy: policy.clone(),
            instance,
        }))?;
        Ok(policy)
    }

    /// A digest, the beginning of one, a name, or a name with its version.
    async fn resolve(&self, policy: &str) -> Result<String, ShelfError> {
        if policy == NATIVE {
            return Ok(NATIVE.into());
        }
        let (name, version) = policy
            .split_once('@')
            .map_or((policy, None), |(n, v)| (n, Some(v)));
        let matches = |head: &&PluginHead| {
            let by_digest = policy.len() >= 8 && head.digest.starts_with(policy);
            by_digest || (head.name == name && version.is_none_or(|v| head.version == v))
        };
        let heads = self.store.plugins().await?;
        let found: Vec<_> = heads.iter().filter(matches).collect();
        match found.as_slice() {
            [] => Err(ShelfError::Unknown(policy.into())),
            [one] => Ok(one.digest.clone()),
            many => Err(ShelfError::Ambiguous {
                name: policy.into(),
                count: many.len(),
            }),
        }
    }
}

fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}
