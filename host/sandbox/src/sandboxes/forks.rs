//! Sandboxes come from others, and go.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::Sandboxes;
use crate::blocking::{blocking, whole};
use crate::error::SandboxError;
use crate::layers;
use crate::record::{Record, SandboxSpec};
use crate::sandbox::{Sandbox, State};

/// Copies that may lie between an image and a sandbox's own files.
const LAYERS_MAX: usize = 32;

impl Sandboxes {
    /// Makes sandboxes with the files that one has now; its processes stay its own. All of them lie
    /// over one copy. In what they are to be, `change` is made.
    ///
    /// # Errors
    /// It is gone, or there are as many as may be: then there are fewer than asked for, or none.
    pub async fn fork(
        &self,
        parent: &Arc<Sandbox>,
        count: usize,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> Result<Vec<Arc<Sandbox>>, SandboxError> {
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
    ) -> Result<Vec<Arc<Sandbox>>, SandboxError> {
        parent.made().await?;
        let there = self.0.lock().len();
        if there >= self.0.agent.config.sandboxes_max {
            return Err(SandboxError::Full(there));
        }
        let _copying = self.0.copying.read().await;
        let (_, layers) = self.copy_of(parent).await?;
        let mut children = Vec::new();
        for _ in 0..count {
            match self.put(spec.clone(), layers.clone()).await {
                Ok(child) => children.push(child),
                Err(error) if children.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        for child in &children {
            tokio::spawn(child.clone().prepare());
        }
        Ok(children)
    }

    /// Copies a sandbox's files as they are now: its record, and the copies that others then lie
    /// over, uppermost first.
    pub(super) async fn copy_of(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Result<(Record, Vec<String>), SandboxError> {
        let layer = super::name('s', "").map_err(|error| SandboxError::System("a name", error))?;
        let _changing = sandbox.changing.lock().await;
        let record = sandbox.lock().record.clone();
        if record.layers.len() >= LAYERS_MAX {
            let problem = format!("was copied {LAYERS_MAX} times in a row, as often as may be");
            return Err(SandboxError::Value("sandbox", problem));
        }
        let copied = sandbox.copy(&layer).await;
        copied.map_err(|error| SandboxError::System("copying the sandbox's files", error))?;
        let mut layers = vec![layer];
        layers.extend(record.layers.iter().cloned());
        Ok((record, layers))
    }

    /// Ends all processes of all sandboxes, and starts none any more. Their files stay.
    pub async fn stop(&self) {
        self.0.agent.turns.close();
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

    /// Removes a sandbox with its processes and files. It waits for nothing that others do. Once this
    /// completes it is on no record; its files go a moment later.
    pub async fn remove(&self, id: &str) {
        let Some(sandbox) = self.0.lock().remove(id) else {
            return;
        };
        sandbox.state.send_replace(State::Removed);
        let removed = whole(async move {
            let folder = sandbox.folder.clone();
            // It is there later where it is written just now, and goes with the folder.
            let _ = blocking(move || Record::remove(&folder)).await;
            // One that is being made ends as it comes up.
            sandbox.leave().await;
            tokio::spawn(take_away(sandbox));
            Ok(())
        });
        let _ = removed.await;
    }
}

/// Removes what is left of a sandbox, once nothing changes it any more.
pub(super) async fn take_away(sandbox: Arc<Sandbox>) {
    let _changing = sandbox.changing.lock().await;
    let folder = sandbox.folder.clone();
    let _ = blocking(move || Record::remove(&folder)).await;
    if !sandbox.leave().await {
        tracing::error!(sandbox = %sandbox.id, "processes of a sandbox can't be ended");
    }
    let folder = sandbox.folder.clone();
    if let Err(error) = blocking(move || layers::remove(&folder)).await {
        tracing::error!(sandbox = %sandbox.id, %error, "files of a sandbox stay");
    }
}
