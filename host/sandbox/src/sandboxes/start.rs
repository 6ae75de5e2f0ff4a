//! Starts an agent: ends what an earlier agent left running, and takes over its sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{FlockOperation, flock};
use tokio::sync::RwLock;

use super::{Sandboxes, Shared};
use crate::agent::{Agent, Preparations};
use crate::blocking::blocking;
use crate::clock::Clock;
use crate::config::SandboxConfig;
use crate::copies::Copies;
use crate::creation_queue::CreationQueue;
use crate::error::SandboxError;
use crate::layers;
use crate::namespaces::Namespaces;
use crate::platform::Platform;
use crate::record::Record;
use crate::sandbox::{Sandbox, State};
use crate::snapshot::Snapshot;
use crate::usage;

impl Sandboxes {
    /// Starts an agent whose sandboxes are on this machine. Processes of an earlier agent in this
    /// folder are ended; recorded sandboxes keep their files, and everything else is removed.
    ///
    /// # Errors
    /// A requirement that this machine lacks.
    pub async fn start(mut config: SandboxConfig) -> Result<Self, SandboxError> {
        let opened = blocking(move || {
            if !rustix::process::geteuid().is_root() {
                return Err(io::Error::other(
                    "making namespaces requires root; run the daemon as root",
                ));
            }
            let owned = own(&mut config)?;
            let platform: Arc<dyn Platform> = Arc::new(Namespaces::open(&config)?);
            Ok((config, owned, platform))
        });
        let (config, owned, platform) = opened.await.map_err(SandboxError::Machine)?;
        Self::over(config, owned, platform).await
    }

    /// Starts an agent whose sandboxes are on another platform. The folder has their records.
    ///
    /// # Errors
    /// A requirement that this machine or the platform lacks.
    pub async fn start_on(
        platform: Arc<dyn Platform>,
        mut config: SandboxConfig,
    ) -> Result<Self, SandboxError> {
        let opened = blocking(move || Ok((own(&mut config)?, config))).await;
        let (owned, config) = opened.map_err(SandboxError::Machine)?;
        Self::over(config, owned, platform).await
    }

    async fn over(
        config: SandboxConfig,
        owned: File,
        platform: Arc<dyn Platform>,
    ) -> Result<Self, SandboxError> {
        let read = blocking(move || {
            let layers = layers::names(&config.folder.join("layers"));
            let snapshots = Snapshot::all(&config.folder.join("snapshots"), &layers)?;
            let clock = Clock::open(&config.folder, config.clock.clone())?;
            Ok((records(&config, &clock)?, snapshots, (config, clock)))
        });
        let ((records, kept), snapshots, (config, clock)) =
            read.await.map_err(SandboxError::Machine)?;
        platform.take_in(&kept).await?;
        let has_unread = kept.len() > records.len();
        let agent = Arc::new(Agent {
            creations: CreationQueue::new(config.creations_max),
            platform,
            preparations: Preparations::default(),
            beyond: Mutex::default(),
            config,
            clock,
        });
        let taken_in = records.into_iter().map(|record| {
            let id = record.id.clone();
            (id, Sandbox::new(&agent, record, State::Stopped))
        });
        let sandboxes = Self(Arc::new(Shared {
            all: Mutex::new(taken_in.collect()),
            snapshots: Mutex::new(snapshots),
            has_unread,
            making_room: tokio::sync::Mutex::default(),
            limiting: Arc::default(),
            agent: agent.clone(),
            disk_part: OnceLock::new(),
            copies: Copies::default(),
            copying: RwLock::default(),
            _owned: owned,
        }));
        sandboxes.count_copies().await;
        sandboxes.collect_copies().await;
        sandboxes.watch();
        Ok(sandboxes)
    }
}

impl Sandboxes {
    /// Counts the copies that an earlier agent left, each measured once: those of snapshots were.
    async fn count_copies(&self) {
        let snapshots = self.snapshots();
        for snapshot in &snapshots {
            self.0
                .copies
                .put(&snapshot.layers[0], &snapshot.tenant, snapshot.disk_bytes);
        }
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for sandbox in all {
            let record = &sandbox.lock().record;
            let layers = record.layers.iter().cloned();
            owners.extend(layers.map(|layer| (layer, record.spec.tenant.clone())));
        }
        for snapshot in &snapshots {
            owners.remove(&snapshot.layers[0]);
        }
        let (own, folder) = (self.clone(), self.layers_folder());
        let counted = blocking(move || {
            for (layer, tenant) in owners {
                let bytes = usage::of_folder(&folder.join(&layer));
                own.0.copies.put(&layer, &tenant, bytes);
            }
            Ok(())
        });
        let _ = counted.await;
    }
}

/// Locks the folder for this agent, and makes its path absolute, because the keepers of sandboxes
/// run elsewhere.
fn own(config: &mut SandboxConfig) -> io::Result<File> {
    fs::create_dir_all(&config.folder)?;
    config.folder = config.folder.canonicalize()?;
    let folder = &config.folder;
    fs::create_dir_all(folder.join("sandboxes"))?;
    fs::create_dir_all(folder.join("layers"))?;
    // Files inside may be setuid programs, so no other user may access them.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let owned = File::create(folder.join("lock"))?;
    flock(&owned, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        let cause = format!("{}: another daemon uses it: {error}", folder.display());
        io::Error::other(cause)
    })?;
    Ok(owned)
}

/// The recorded sandboxes, and the names of all sandboxes to keep, including those with unreadable
/// records. A folder without a record was never acknowledged, and is removed.
fn records(config: &SandboxConfig, clock: &Clock) -> io::Result<(Vec<Record>, BTreeSet<String>)> {
    let folder = config.folder.join("sandboxes");
    // Fails if the folder can't be listed, which does not mean that it is empty.
    fs::read_dir(&folder)?;
    let (mut records, mut kept) = (Vec::new(), BTreeSet::new());
    for id in layers::names(&folder) {
        match Record::read(&folder.join(&id)) {
            Ok(mut record) if record.id == id => {
                record.take_in(config.ttl, clock);
                records.push(record);
            }
            Err(error) if !is_damaged(&error) => {
                // Its files may still be needed.
                tracing::error!(sandbox = %id, %error, "could not read the record of a sandbox; leaving it unchanged");
            }
            _ => {
                layers::remove(&folder.join(&id))?;
                continue;
            }
        }
        kept.insert(id);
    }
    Ok((records, kept))
}

/// Whether there is no record, or one that was never acknowledged: records are written atomically.
fn is_damaged(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        InvalidData | IsADirectory | NotFound | UnexpectedEof
    )
}
