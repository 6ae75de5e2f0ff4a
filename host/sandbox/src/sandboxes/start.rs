//! The start of an agent: what an earlier one left is ended, and what it had is taken in.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use tokio::sync::RwLock;

use super::{Sandboxes, Shared};
use crate::agent::{Agent, Preparations, blocking};
use crate::cgroup::{Cgroups, Hierarchy};
use crate::config::SandboxConfig;
use crate::digest::hex;
use crate::error::SandboxError;
use crate::images::Images;
use crate::layers;
use crate::record::{Record, now_us};
use crate::sandbox::{Sandbox, State};
use crate::snapshot::Snapshot;
use crate::turns::Turns;

impl Sandboxes {
    /// Starts an agent. What runs of an earlier one in this folder is ended; sandboxes that are on
    /// record keep their files, and all else is removed.
    ///
    /// # Errors
    /// What this machine lacks.
    pub async fn start(config: SandboxConfig) -> Result<Self, SandboxError> {
        let opened = blocking(move || open(config)).await;
        let (shared, records) = opened.map_err(SandboxError::Machine)?;
        for record in records {
            let id = record.id.clone();
            let sandbox = Sandbox::new(&shared.agent, record, State::Stopped);
            shared.lock().insert(id, sandbox);
        }
        let sandboxes = Self(shared);
        sandboxes.collect_copies().await;
        sandboxes.watch();
        Ok(sandboxes)
    }
}

fn open(config: SandboxConfig) -> io::Result<(Arc<Shared>, Vec<Record>)> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other(
            "it takes root to make namespaces; run the daemon as root",
        ));
    }
    let folder = &config.folder;
    fs::create_dir_all(folder.join("sandboxes"))?;
    fs::create_dir_all(folder.join("layers"))?;
    // Files inside may be programs that give their user's rights: no user of the machine gets at them.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    // Names with these have another meaning in the options of a mount.
    if folder.to_string_lossy().contains([',', ':', '\\']) {
        return Err(io::Error::other(format!(
            "{}: use a path without `,:\\`",
            folder.display()
        )));
    }
    let owned = File::create(folder.join("lock"))?;
    flock(&owned, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        let cause = format!("{}: another daemon uses it: {error}", folder.display());
        io::Error::other(cause)
    })?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let hierarchy = Hierarchy::find(&mounts, config.cgroup.as_deref())?;
    let digest = Sha256::digest(folder.canonicalize()?.as_os_str().as_encoded_bytes());
    let own = hex(&digest[..6]);
    let cgroups = Cgroups::open(hierarchy, &format!("treadle-{own}"), config.cores.clone())?;
    for id in cgroups.found() {
        if !cgroups.of(&id).remove() {
            tracing::error!(sandbox = %id, "processes of an earlier daemon can't be ended");
        }
    }
    let snapshots = Snapshot::all(&folder.join("snapshots"))?.into_iter();
    let snapshots = snapshots.map(|snapshot| (snapshot.id.clone(), snapshot));
    let images = Images::open(&folder.join("images"), config.uid)?;
    let records = records(&config)?;
    let agent = Agent {
        turns: Turns::new(config.creations_max),
        cgroups,
        images,
        namespaces: AtomicU32::new(0),
        preparations: Preparations::default(),
        config,
    };
    let shared = Shared {
        agent: Arc::new(agent),
        all: Mutex::default(),
        snapshots: Mutex::new(snapshots.collect()),
        copying: RwLock::default(),
        _owned: owned,
    };
    Ok((Arc::new(shared), records))
}

/// What is on record; what has no record was never acknowledged, and is removed.
fn records(config: &SandboxConfig) -> io::Result<Vec<Record>> {
    let folder = config.folder.join("sandboxes");
    let mut records = Vec::new();
    for id in layers::names(&folder) {
        match Record::read(&folder.join(&id)) {
            Ok(mut record) if record.id == id => {
                if record.expires_at_us.is_none() {
                    // It was never ready.
                    let ttl = record.spec.ttl.unwrap_or(config.ttl);
                    record.expires_at_us = Some(now_us() + ttl.as_micros() as u64);
                }
                records.push(record);
            }
            Err(error) if !is_damaged(&error) => {
                // Its files may be somebody's.
                tracing::error!(sandbox = %id, %error, "its record can't be read; it is left as it is");
            }
            _ => layers::remove(&folder.join(&id))?,
        }
    }
    Ok(records)
}

/// Whether there is no record, or none that was ever acknowledged: those are written whole.
fn is_damaged(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        InvalidData | IsADirectory | NotFound | UnexpectedEof
    )
}
