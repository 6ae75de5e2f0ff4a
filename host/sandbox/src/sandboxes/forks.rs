//! Forking, copying and removing sandboxes.

use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::Sandboxes;
use crate::blocking::{blocking, whole};
use crate::error::SandboxError;
use crate::layers;
use crate::record::{Record, SandboxSpec};
use crate::sandbox::{Sandbox, State};
use crate::usage;

/// Maximum number of copies between an image and a sandbox's own files.
const LAYERS_MAX: usize = 32;
/// Entry that is counted to check whether a copy fits; no layer has this name.
const PROBE: &str = ".probe";

/// Sandboxes with copies of a sandbox's files.
#[derive(Debug)]
pub struct Forks {
    /// Those that were made.
    pub made: Vec<Arc<Sandbox>>,
    /// Why the others were not; `None` if all were made.
    pub missing: Option<SandboxError>,
}

impl Sandboxes {
    /// Makes sandboxes with the current files of a sandbox, without its processes. They share one
    /// copy. `change` modifies their specification.
    ///
    /// # Errors
    /// If the sandbox is gone, or the limit is reached; fewer sandboxes than requested may be
    /// returned.
    pub async fn fork(
        &self,
        parent: &Arc<Sandbox>,
        count: usize,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> Result<Vec<Arc<Sandbox>>, SandboxError> {
        let forks = self.fork_up_to(parent, count, change).await?;
        Ok(forks.made)
    }

    /// As [`Sandboxes::fork`], with the reason if fewer sandboxes than requested were made.
    ///
    /// # Errors
    /// If no sandbox was made.
    pub async fn fork_up_to(
        &self,
        parent: &Arc<Sandbox>,
        count: usize,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> Result<Forks, SandboxError> {
        self.0.agent.platform.check_pauses()?;
        let (own, parent) = (self.clone(), parent.clone());
        let mut spec = parent.lock().record.spec.clone();
        change(&mut spec);
        whole(async move { own.copies(&parent, count, spec).await }).await
    }

    async fn copies(
        &self,
        parent: &Arc<Sandbox>,
        count: usize,
        spec: SandboxSpec,
    ) -> Result<Forks, SandboxError> {
        parent.made().await?;
        self.check_room(&self.0.lock(), &spec)?;
        self.make_room_for_copies(parent).await;
        let _copying = self.0.copying.read().await;
        let (_, layers) = self.copy_of(parent).await?;
        let (mut made, mut missing) = (Vec::new(), None);
        for _ in 0..count {
            match self.put(spec.clone(), layers.clone()).await {
                Ok(child) => made.push(child),
                Err(error) if made.is_empty() => return Err(error),
                Err(error) => {
                    missing = Some(error);
                    break;
                }
            }
        }
        for child in &made {
            tokio::spawn(child.clone().prepare());
        }
        Ok(Forks { made, missing })
    }

    /// Copies a sandbox's current files. Returns its record, and the layers for sandboxes over the
    /// copy, uppermost first.
    pub(super) async fn copy_of(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Result<(Record, Vec<String>), SandboxError> {
        let layer = super::name('s', "").map_err(|error| SandboxError::System("a name", error))?;
        let _changing = sandbox.changing.lock().await;
        let record = sandbox.lock().record.clone();
        if record.layers.len() >= LAYERS_MAX {
            let problem = format!("was copied {LAYERS_MAX} times in a row, which is the limit");
            return Err(SandboxError::Value("sandbox", problem));
        }
        self.copy_within_share(sandbox, &layer, &record.spec.tenant)
            .await?;
        let mut layers = vec![layer];
        layers.extend(record.layers.iter().cloned());
        Ok((record, layers))
    }

    /// Copies a sandbox's files within its tenant's share.
    async fn copy_within_share(
        &self,
        sandbox: &Arc<Sandbox>,
        layer: &str,
        tenant: &str,
    ) -> Result<(), SandboxError> {
        let (config, copies) = (&self.0.agent.config, &self.0.copies);
        sandbox.measure(true).await;
        let about = sandbox.lock().disk_bytes;
        copies.take(layer, tenant, about, config)?;
        let made = sandbox.copy(layer).await;
        let made = made.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidFilename => {
                let problem = "has a file whose path is too long to be copied (about 4,000 bytes); \
                               move or remove it, then try again";
                SandboxError::Value("sandbox", problem.to_owned())
            }
            _ => SandboxError::System("copying the sandbox's files", error),
        });
        let folder = self.layers_folder().join(layer);
        let taken = match made {
            Ok(()) => {
                let measured = folder.clone();
                let bytes = blocking(move || Ok(usage::of_folder(&measured))).await;
                copies.take(layer, tenant, bytes.unwrap_or(about), config)
            }
            failed => failed,
        };
        if taken.is_err() {
            match blocking(move || layers::remove(&folder)).await {
                Ok(()) => copies.gone(layer),
                Err(error) => {
                    tracing::warn!(layer, %error, "could not remove a copy; it is collected later");
                }
            }
        }
        taken
    }

    /// Removes unused copies if another one would not fit.
    pub(super) async fn make_room_for_copies(&self, sandbox: &Arc<Sandbox>) {
        let (tenant, bytes) = (sandbox.tenant(), sandbox.lock().disk_bytes);
        let copies = &self.0.copies;
        if copies
            .take(PROBE, &tenant, bytes, &self.0.agent.config)
            .is_err()
        {
            self.collect_copies().await;
        }
        copies.gone(PROBE);
    }

    /// Ends all processes of all sandboxes, and starts no more. Their files are kept.
    pub async fn stop(&self) {
        self.0.agent.creations.close();
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        let mut ending = JoinSet::new();
        for sandbox in all {
            ending.spawn(async move {
                let _changing = sandbox.changing.lock().await;
                sandbox.end_processes().await;
                sandbox.set(State::Stopped);
            });
        }
        ending.join_all().await;
        self.note_time();
        self.0.agent.platform.close();
    }

    /// Removes a sandbox with its processes and files, without waiting for other operations. When
    /// this completes, its record is gone; its files are removed shortly after.
    pub async fn remove(&self, id: &str) {
        let Some(sandbox) = self.0.lock().remove(id) else {
            return;
        };
        sandbox.state.send_replace(State::Removed);
        let removed = whole(async move {
            let folder = sandbox.folder.clone();
            // A concurrent write may recreate it; then it is removed with the folder.
            let _ = blocking(move || Record::remove(&folder)).await;
            // A sandbox that is being made ends as soon as it starts.
            sandbox.leave().await;
            tokio::spawn(take_away(sandbox));
            Ok(())
        });
        let _ = removed.await;
    }
}

/// Removes what is left of a sandbox, when no change is in progress.
pub(super) async fn take_away(sandbox: Arc<Sandbox>) {
    let _changing = sandbox.changing.lock().await;
    let folder = sandbox.folder.clone();
    let _ = blocking(move || Record::remove(&folder)).await;
    if !sandbox.leave().await {
        tracing::error!(sandbox = %sandbox.id, "could not end processes of a sandbox");
    }
    let folder = sandbox.folder.clone();
    if let Err(error) = blocking(move || layers::remove(&folder)).await {
        tracing::error!(sandbox = %sandbox.id, %error, "could not remove files of a sandbox");
    }
}
