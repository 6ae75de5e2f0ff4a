//! What ran before a crash, as far as this machine knows.

use std::path::Path;

use sha2::{Digest, Sha256};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;

use super::{ExecutorConfig, ExecutorError, blocking};
use crate::markers::{AttemptId, Found, Markers};
use crate::process::{Cgroups, Pens};

/// What earlier daemons left. Nothing of it runs any more.
#[derive(Debug)]
pub struct Recovery {
    pub(super) found: Found,
    pub(super) markers: Markers,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) pens: Option<Pens>,
}

impl Recovery {
    /// The end of an attempt that was started before, to be put on record: how it ended, or that
    /// this is unknown. `None` for one that certainly never began: it may be executed now.
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

    /// Whether what is not among its attempts certainly never began.
    pub fn is_all(&self) -> bool {
        self.found.is_all
    }

    /// Every attempt that began and was not acknowledged.
    pub fn attempts(&self) -> impl Iterator<Item = (ActionId, u32)> {
        let attempts = self.found.attempts.keys();
        attempts.map(|id| (id.action, id.attempt))
    }
}

/// Takes the folder of markers, reads what earlier daemons left there, and ends what still runs of
/// it: processes of actions and services.
///
/// # Errors
/// The folder or the cgroup can't be used.
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

/// Cgroups for the supervisors of the daemon that has this folder, and no other.
fn pens(folder: &Path) -> Option<Pens> {
    let digest = Sha256::digest(folder.canonicalize().ok()?.as_os_str().as_encoded_bytes());
    let digits: Vec<_> = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let pens = Pens::open(&format!("{}{}", Pens::NAME, digits.concat()));
    if pens.is_none() {
        tracing::debug!("supervisors of actions have no cgroups of their own, and have guards");
    }
    pens
}
