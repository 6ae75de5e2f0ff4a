//! Sandboxes in this machine's kernel: namespaces, overlays, cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::blocking::blocking;
use crate::cgroup::{Cgroup, Cgroups, Hierarchy, Limits};
use crate::config::SandboxConfig;
use crate::digest::hex;
use crate::error::SandboxError;
use crate::images::{self, Images};
use crate::inside::IDS;
use crate::layers;
use crate::live::Live;
use crate::platform::{Environment, MeasuredImage, Place, Platform};
use crate::record::Record;
use crate::shares::Shared;
use crate::usage;
use crate::wire::{Guard, Setup};

/// The platform of this machine's kernel.
#[derive(Debug)]
pub(crate) struct Namespaces {
    config: SandboxConfig,
    cgroups: Cgroups,
    images: Images,
    /// Number of user namespaces that were made.
    made: Arc<AtomicU32>,
}

/// The local place of a sandbox.
#[derive(Debug)]
struct Namespaced {
    id: String,
    folder: PathBuf,
    cgroup: Cgroup,
    config: SandboxConfig,
    cgroups: Cgroups,
    images: Images,
    made: Arc<AtomicU32>,
}

impl Namespaces {
    /// Opens the platform, when no other agent uses the folder.
    ///
    /// # Errors
    /// If the machine lacks a requirement.
    pub(crate) fn open(config: &SandboxConfig) -> io::Result<Self> {
        let folder = &config.folder;
        // These characters have a meaning in mount options.
        if folder.to_string_lossy().contains([',', ':', '\\']) {
            return Err(io::Error::other(format!(
                "{}: use a path without `,:\\`",
                folder.display()
            )));
        }
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let hierarchy = Hierarchy::find(&mounts, config.cgroup.as_deref())?;
        let digest = Sha256::digest(folder.canonicalize()?.as_os_str().as_encoded_bytes());
        let own = format!("treadle-{}", hex(&digest[..6]));
        let cgroups = Cgroups::open(hierarchy, &own, config.cores.clone())?;
        for cgroup in cgroups.found() {
            if !cgroup.remove() {
                let name = cgroup.name();
                tracing::error!(cgroup = %name, "could not end processes of an earlier daemon");
            }
        }
        cgroups.limit_memory(config.memory_bytes_all)?;
        Ok(Self {
            images: Images::open(&folder.join("images"), config.uid)?,
            cgroups,
            made: Arc::default(),
            config: config.clone(),
        })
    }
}

#[async_trait]
impl Platform for Namespaces {
    async fn take_in(&self, _kept: &BTreeSet<String>) -> Result<(), SandboxError> {
        // Done before any of its files were replaced.
        Ok(())
    }

    fn place(&self, id: &str, tenant: &str, folder: &Path) -> Box<dyn Place> {
        Box::new(Namespaced {
            id: id.to_owned(),
            folder: folder.to_owned(),
            cgroup: self.cgroups.of(id, tenant),
            config: self.config.clone(),
            cgroups: self.cgroups.clone(),
            images: self.images.clone(),
            made: self.made.clone(),
        })
    }

    async fn limit_memory(&self, tenant: &str, bytes: u64) -> io::Result<()> {
        let of_tenant = self.cgroups.of_tenant(tenant);
        let limited = blocking(move || of_tenant.limit_memory(bytes)).await;
        match limited {
            // None of its sandboxes was made yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            limited => limited,
        }
    }

    fn check_image(&self, name: &str) -> Result<(), SandboxError> {
        self.images.get(name).map(drop)
    }

    fn images(&self) -> Vec<String> {
        self.images.names()
    }

    fn used(&self, name: &str) {
        self.images.used(name);
    }

    async fn measured(&self) -> io::Result<Vec<MeasuredImage>> {
        let images = self.images.clone();
        blocking(move || images.measured()).await
    }

    fn image_owner(&self, name: &str) -> Option<String> {
        self.images.owner(name)
    }

    async fn import(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError> {
        let (images, name, from) = (self.images.clone(), name.to_owned(), from.to_owned());
        let owner = owner.map(str::to_owned);
        let import = move || images.import(&name, &from, owner.as_deref());
        let imported = tokio::task::spawn_blocking(import).await;
        imported
            .unwrap_or_else(|error| Err(SandboxError::System("importing", io::Error::other(error))))
    }

    async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        let (images, name) = (self.images.clone(), name.to_owned());
        let failed = |error| SandboxError::System("removing the image", io::Error::other(error));
        let removed = tokio::task::spawn_blocking(move || images.remove(&name)).await;
        let gone = removed.map_err(failed)??;
        tokio::spawn(async move {
            if let Err(error) = blocking(move || layers::remove(&gone)).await {
                tracing::warn!(%error, "could not remove files of an image; the next start retries");
            }
        });
        Ok(())
    }

    fn close(&self) {
        self.cgroups.close();
    }
}

impl Namespaced {
    fn is_without_cgroups(&self) -> bool {
        self.config.without.contains(&Guard::Cgroup)
    }

    /// A user id for the accounting of a namespace, unique while there are fewer sandboxes than
    /// user ids.
    fn owner(&self) -> u32 {
        self.config.uid + self.made.fetch_add(1, Ordering::Relaxed) % IDS
    }

    fn setup(&self, record: &Record) -> io::Result<Setup> {
        let image = self.images.get(&record.spec.image);
        let image = image.map_err(io::Error::other)?;
        let config = &self.config;
        let memory_bytes = record.spec.memory_bytes.unwrap_or(config.memory_bytes);
        Ok(Setup {
            name: self.id.clone(),
            root: self.folder.join("root"),
            overlays: images::overlays(&image, record, &self.folder, &config.folder.join("layers")),
            read_only: image.read_only,
            shm_bytes: memory_bytes / 2,
            owner: self.owner(),
            file_bytes_max: config.disk_bytes_max,
            without: config.without.clone(),
        })
    }
}

#[async_trait]
impl Place for Namespaced {
    async fn make(&self, record: &Record) -> io::Result<Arc<dyn Environment>> {
        let setup = self.setup(record)?;
        let config = &self.config;
        let (folder, uid) = (self.folder.clone(), config.uid);
        let (id, tenant) = (self.id.clone(), record.spec.tenant.clone());
        let (cgroups, has_none) = (self.cgroups.clone(), self.is_without_cgroups());
        let shares = &config.shares;
        let limits = Limits {
            tenant_memory_bytes: shares.most(&tenant, Shared::MemoryBytes, config.memory_bytes_all),
            memory_bytes: record.spec.memory_bytes.unwrap_or(config.memory_bytes),
            processes: config.processes_max,
        };
        let (setup, procs) = blocking(move || {
            for overlay in &setup.overlays {
                let part = overlay.upper.parent().unwrap_or(&folder);
                if !overlay.upper.exists() {
                    fs::create_dir_all(part)?;
                    layers::make_owned(&overlay.upper, uid)?;
                }
                layers::remove(&overlay.work)?;
                fs::create_dir(&overlay.work)?;
            }
            fs::create_dir_all(&setup.root)?;
            if has_none {
                return Ok((setup, Vec::new()));
            }
            let cgroup = cgroups.make(&id, &tenant, limits)?;
            // Making it uses a core, like an action.
            cgroup.give(&[&[]])?;
            Ok((setup, cgroup.procs()))
        })
        .await?;
        Ok(Live::start(config, &setup, &procs).await?)
    }

    async fn end(&self) -> bool {
        let cgroup = self.cgroup.clone();
        blocking(move || Ok(cgroup.remove())).await.unwrap_or(false)
    }

    async fn remove(&self) -> bool {
        self.end().await
    }

    async fn freeze(&self, frozen: bool) -> io::Result<()> {
        let cgroup = self.cgroup.clone();
        blocking(move || cgroup.freeze(frozen)).await
    }

    async fn copy(&self, layer: &str, runs: bool) -> io::Result<()> {
        let runs = runs && !self.is_without_cgroups();
        let (cgroup, folder) = (self.cgroup.clone(), self.folder.clone());
        let layer = self.config.folder.join("layers").join(layer);
        blocking(move || {
            if runs {
                cgroup.freeze(true)?;
            }
            let copied = copy_to(&folder, &layer);
            if runs {
                cgroup.freeze(false)?;
            }
            copied.inspect_err(|_| {
                let _ = layers::remove(&layer);
            })
        })
        .await
    }

    async fn disk_bytes(&self) -> Option<u64> {
        let (folder, cgroup) = (self.folder.clone(), self.cgroup.clone());
        let measured = blocking(move || {
            let nameless = usage::of_nameless(&cgroup.processes());
            Ok(usage::of_folder(&folder).saturating_add(nameless))
        });
        measured.await.ok()
    }

    fn give(&self, grants: &[&[u32]]) -> io::Result<()> {
        if self.is_without_cgroups() {
            return Ok(());
        }
        self.cgroup.give(grants)
    }

    fn memory_bytes(&self) -> u64 {
        self.cgroup.memory_bytes()
    }

    fn out_of_memory(&self) -> u64 {
        self.cgroup.out_of_memory()
    }
}

fn copy_to(folder: &Path, layer: &Path) -> io::Result<()> {
    fs::create_dir(layer)?;
    for part in layers::names(folder) {
        // Parts are named by numbers.
        if part.parse::<usize>().is_ok() {
            fs::create_dir(layer.join(&part))?;
            let files = folder.join(&part).join("files");
            layers::copy(&files, &layer.join(&part).join("files"))?;
        }
    }
    Ok(())
}
