//! Sandboxes come from others, and go.

use std::sync::Arc;

use super::Sandboxes;
use crate::agent::blocking;
use crate::error::SandboxError;
use crate::layers;
use crate::sandbox::{Sandbox, State};

/// Copies that may lie between an image and a sandbox's own files.
const LAYERS_MAX: usize = 32;

impl Sandboxes {
    /// Makes sandboxes with the files that one has now; its processes stay its own. All of them lie
    /// over one copy.
    ///
    /// # Errors
    /// It is gone, or there are as many as may be: then there are fewer than asked for, or none.
    pub async fn fork(
        &self,
        parent: &Arc<Sandbox>,
        count: usize,
    ) -> Result<Vec<Arc<Sandbox>>, SandboxError> {
        parent.made().await?;
        let layer = super::name().map_err(|error| SandboxError::System("a name", error))?;
        let children = {
            let _changing = parent.changing.lock().await;
            let record = parent.lock().record.clone();
            if record.layers.len() >= LAYERS_MAX {
                let problem = format!("was forked {LAYERS_MAX} times in a row, as often as may be");
                return Err(SandboxError::Value("sandbox", problem));
            }
            let copied = parent.copy(&layer).await;
            copied.map_err(|error| SandboxError::System("copying the sandbox's files", error))?;
            let mut layers = vec![layer];
            layers.extend(record.layers);
            let mut children = Vec::new();
            for _ in 0..count {
                match self.put(record.spec.clone(), layers.clone()).await {
                    Ok(child) => children.push(child),
                    Err(error) if children.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            children
        };
        for child in &children {
            tokio::spawn(child.clone().prepare());
        }
        Ok(children)
    }

    /// Ends all processes of all sandboxes. Their files stay.
    pub async fn stop(&self) {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        for sandbox in all {
            let _changing = sandbox.changing.lock().await;
            sandbox.end_processes().await;
            sandbox.set(State::Stopped);
        }
        self.0.agent.cgroups.close();
    }

    /// Removes a sandbox with its processes and files. It waits for nothing that others do.
    pub async fn remove(&self, id: &str) {
        let Some(sandbox) = self.0.lock().remove(id) else {
            return;
        };
        sandbox.state.send_replace(State::Removed);
        // One that is being made ends as it comes up.
        sandbox.end_processes().await;
        let removed = sandbox.clone();
        tokio::spawn(async move {
            let _changing = removed.changing.lock().await;
            removed.end_processes().await;
            let folder = removed.folder.clone();
            if let Err(error) = blocking(move || layers::remove(&folder)).await {
                tracing::error!(sandbox = %removed.id, %error, "files of a sandbox stay");
            }
        });
    }
}
