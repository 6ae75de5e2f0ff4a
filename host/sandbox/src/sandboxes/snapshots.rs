//! Snapshots of sandboxes.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use super::Sandboxes;
use crate::blocking::{blocking, whole};
use crate::clock::now_us;
use crate::error::SandboxError;
use crate::images;
use crate::record::SandboxSpec;
use crate::sandbox::Sandbox;
use crate::shares::Shared;
use crate::snapshot::Snapshot;
use crate::usage;

/// First character of the ids of snapshots.
const FIRST: char = 'c';
/// Each tenant may have this fraction of the limit on snapshots.
const TENANTS_PART: usize = 4;

impl Sandboxes {
    /// Keeps the current files of a sandbox, so that others can be made of them, even after its
    /// removal. Its processes are frozen meanwhile, and not included. A name belongs to the
    /// tenant's newest snapshot with it; the older one is removed.
    ///
    /// # Errors
    /// If the sandbox is gone, the name is invalid, or the limit on snapshots is reached.
    pub async fn snapshot(
        &self,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
    ) -> Result<Snapshot, SandboxError> {
        self.0.agent.platform.check_pauses()?;
        if let Some(name) = &name {
            images::check_name(name).map_err(|problem| SandboxError::Value("name", problem))?;
            if self.images_of(&sandbox.tenant()).contains(name) {
                let problem = format!("`{name}` is the name of an image; take another one");
                return Err(SandboxError::Value("name", problem));
            }
        }
        let (own, sandbox) = (self.clone(), sandbox.clone());
        whole(async move { own.keep(&sandbox, name).await }).await
    }

    async fn keep(
        &self,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
    ) -> Result<Snapshot, SandboxError> {
        sandbox.made().await?;
        let tenant = sandbox.lock().record.spec.tenant.clone();
        self.check_count(&self.0.snapshots(), &tenant, name.as_deref())?;
        let id = super::name(FIRST, &self.0.agent.config.mark)
            .map_err(|error| SandboxError::System("a name", error))?;
        self.make_room_for_copies(sandbox).await;
        let copying = self.0.copying.read().await;
        let (record, layers) = self.copy_of(sandbox).await?;
        let now = self.after_namesakes(&tenant, name.as_deref());
        let mut snapshot = Snapshot {
            id,
            name,
            tenant,
            job: record.spec.job,
            sandbox: record.id,
            image: record.spec.image,
            created_at_us: now,
            used_at_us: now,
            disk_bytes: 0,
            layers,
        };
        let folders = (self.layers_folder(), self.snapshots_folder());
        let written = blocking(move || {
            let layer = folders.0.join(&snapshot.layers[0]);
            snapshot.disk_bytes = usage::of_folder(&layer);
            // After a power loss, there must not be a record without its files.
            rustix::fs::syncfs(&File::open(&layer)?)?;
            snapshot.write(&folders.1)?;
            Ok(snapshot)
        });
        let snapshot = written
            .await
            .map_err(|error| SandboxError::System("the snapshot's record", error))?;
        let added = self.add(&snapshot);
        drop(copying);
        let replaced = match added {
            Ok(replaced) => replaced,
            Err(error) => {
                // The limit was reached meanwhile.
                self.take_off_record(&snapshot.id).await?;
                return Err(error);
            }
        };
        for id in replaced {
            // The new snapshot exists in any case, and has the name.
            if let Err(error) = self.forget_snapshot(&id).await {
                tracing::warn!(snapshot = %id, %error, "could not remove a snapshot that was replaced");
            }
        }
        Ok(snapshot)
    }

    /// The current time, but after that of existing snapshots with the name: the later one counts,
    /// even if the wall clock was set back between them.
    fn after_namesakes(&self, tenant: &str, name: Option<&str>) -> u64 {
        let all = self.0.snapshots();
        let namesakes = all
            .values()
            .filter(|one| name.is_some() && (&*one.tenant, one.name.as_deref()) == (tenant, name));
        let latest = namesakes.map(|one| one.created_at_us + 1).max();
        latest.unwrap_or(0).max(now_us())
    }

    /// Adds a snapshot. Returns those that it replaces.
    fn add(&self, snapshot: &Snapshot) -> Result<Vec<String>, SandboxError> {
        let mut all = self.0.snapshots();
        self.check_count(&all, &snapshot.tenant, snapshot.name.as_deref())?;
        let older = all.values().filter(|other| other.is_replaced_by(snapshot));
        let older = older.map(|other| other.id.clone()).collect();
        all.insert(snapshot.id.clone(), snapshot.clone());
        Ok(older)
    }

    /// Checks that a tenant may have another snapshot, not counting the one it replaces.
    fn check_count(
        &self,
        all: &BTreeMap<String, Snapshot>,
        tenant: &str,
        name: Option<&str>,
    ) -> Result<(), SandboxError> {
        let most = self.0.agent.config.snapshots_max;
        let stays =
            |one: &&Snapshot| name.is_none() || one.tenant != tenant || one.name.as_deref() != name;
        let stay = all.values().filter(stays);
        let own = stay.clone().filter(|one| one.tenant == tenant).count();
        let shares = &self.0.agent.config.shares;
        let share = shares.most(tenant, Shared::Snapshots, most as u64);
        let most_own = (most.div_ceil(TENANTS_PART) as u64).min(share);
        if own as u64 >= most_own {
            return Err(SandboxError::BeyondShare {
                tenant: tenant.to_owned(),
                of: Shared::Snapshots,
                has: own as u64,
                most: most_own,
            });
        }
        if stay.count() >= most {
            return Err(SandboxError::SnapshotsFull(most));
        }
        Ok(())
    }

    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let mut all: Vec<_> = self.0.snapshots().values().cloned().collect();
        all.sort_by(|a, b| (a.created_at_us, &a.id).cmp(&(b.created_at_us, &b.id)));
        all
    }

    /// A tenant's snapshot by its id or its name.
    pub fn snapshot_called(&self, tenant: &str, called: &str) -> Option<Snapshot> {
        let all = self.0.snapshots();
        let own = || all.values().filter(|snapshot| snapshot.tenant == tenant);
        let by_id = own().find(|snapshot| snapshot.id == called);
        let named = || own().filter(|snapshot| snapshot.name.as_deref() == Some(called));
        by_id
            .or_else(|| named().max_by_key(|snapshot| snapshot.created_at_us))
            .cloned()
    }

    /// Removes a tenant's snapshot, by its id or its name. Sandboxes made of it are kept.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn remove_snapshot(&self, tenant: &str, called: &str) -> Result<(), SandboxError> {
        let found = self.snapshot_called(tenant, called);
        let unknown = || SandboxError::SnapshotUnknown(called.to_owned());
        let id = found.ok_or_else(unknown)?.id;
        self.forget_snapshot(&id).await
    }

    /// Removes its record. Its files are collected when no sandbox uses them.
    pub(super) async fn forget_snapshot(&self, id: &str) -> Result<(), SandboxError> {
        self.take_off_record(id).await?;
        self.0.snapshots().remove(id);
        Ok(())
    }

    async fn take_off_record(&self, id: &str) -> Result<(), SandboxError> {
        let (folder, id) = (self.snapshots_folder(), id.to_owned());
        let removed = blocking(move || Snapshot::remove(&folder, &id)).await;
        removed.map_err(|error| SandboxError::System("removing the snapshot", error))
    }

    /// The base of a sandbox whose specification names an image or a snapshot: sets the image, and
    /// returns the copies over it.
    pub(super) fn made_of(&self, spec: &mut SandboxSpec) -> Result<Vec<String>, SandboxError> {
        let platform = &self.0.agent.platform;
        let unknown = match platform.check_image(&spec.image) {
            Err(unknown) => Some(unknown),
            // Images of other tenants count as unknown.
            Ok(()) if !self.is_image_of(&spec.image, &spec.tenant) => {
                Some(SandboxError::ImageUnknown(spec.image.clone()))
            }
            Ok(()) => None,
        };
        let Some(unknown) = unknown else {
            platform.used(&spec.image);
            return Ok(Vec::new());
        };
        let found = self.snapshot_called(&spec.tenant, &spec.image);
        let snapshot = found.ok_or(unknown)?;
        if let Some(kept) = self.0.snapshots().get_mut(&snapshot.id) {
            kept.used_at_us = now_us();
        }
        spec.image = snapshot.image;
        Ok(snapshot.layers)
    }

    pub(super) fn layers_folder(&self) -> std::path::PathBuf {
        self.0.agent.config.folder.join("layers")
    }

    fn snapshots_folder(&self) -> std::path::PathBuf {
        self.0.agent.config.folder.join("snapshots")
    }
}
