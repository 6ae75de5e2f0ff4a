//! Recovers the attempts of earlier daemons on this machine.

use std::path::Path;

use sha2::{Digest, Sha256};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;

use super::{ExecutorConfig, ExecutorError, blocking};
use crate::markers::{AttemptId, EarlierAttempts, Markers};
use crate::process::{Cgroups, Pens};

/// The attempts of earlier daemons. None of them is running any more.
#[derive(Debug)]
pub struct Recovery {
    pub(super) found: EarlierAttempts,
    pub(super) markers: Markers,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) pens: Option<Pens>,
}

impl Recovery {
    /// The event to record for an attempt that was started before: its end, or that its end is
    /// unknown. `None` if it certainly never began, and may be executed now.
    pub fn end(&self, action: ActionId, attempt: u32) -> Option<ActionEvent> {
        let id = AttemptId { action, attempt };
        let (outcome, output) = match self.found.attempts.get(&id) {
            Some(Some(end)) => (end.outcome.clone(), end.output.clone()),
            None if self.found.is_all => return None,
            Some(None) | None => (Outcome::Unknown, None),
        };
        Some(ActionEvent::ActionEnded {
            action,
            attempt,
            outcome,
            output,
        })
    }

    /// Whether an attempt that was not found certainly never began.
    pub fn is_all(&self) -> bool {
        self.found.is_all
    }

    /// All attempts that began and were not acknowledged.
    pub fn attempts(&self) -> impl Iterator<Item = (ActionId, u32)> {
        let attempts = self.found.attempts.keys();
        attempts.map(|id| (id.action, id.attempt))
    }
}

/// Locks the folder of markers, reads those of earlier daemons, and ends their remaining processes
/// and services.
///
/// # Errors
/// If the folder or the cgroup is unusable.
pub async fn recover(config: &ExecutorConfig) -> Result<Recovery, ExecutorError> {
    let (folder, epoch, cgroup) = (config.markers.clone(), config.epoch, config.cgroup.clone());
    let found = blocking(move || {
        let markers = Markers::open(&folder)?;
        let found = markers.recover(epoch)?;
        Ok((markers, found))
    });
    let (markers, found) = found.await.map_err(|error| ExecutorError::Markers {
        folder: config.markers.display().to_string(),
        error,
    })?;
    let (folder, has_pens) = (config.markers.clone(), config.pens);
    let cgroups = blocking(move || match cgroup {
        Some(cgroup) => Ok((Some(Cgroups::open(&cgroup)?), None)),
        None => Ok((None, has_pens.then(|| pens(&folder)).flatten())),
    });
    let (cgroups, pens) = cgroups.await.map_err(|error| ExecutorError::Cgroup {
        folder: config
            .cgroup
            .clone()
            .unwrap_or_default()
            .display()
            .to_string(),
        error,
    })?;
    Ok(Recovery {
        found,
        markers,
        cgroups,
        pens,
    })
}

/// The cgroups of supervisors for the daemon with this folder.
fn pens(folder: &Path) -> Option<Pens> {
    let digest = Sha256::digest(folder.canonicalize().ok()?.as_os_str().as_encoded_bytes());
    let digits: Vec<_> = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let pens = Pens::open(&format!("{}{}", Pens::NAME, digits.concat()));
    if pens.is_none() {
        tracing::debug!("no cgroups for the supervisors of actions; using guard processes");
    }
    pens
}
