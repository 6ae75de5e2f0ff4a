//! What ran before a crash, as far as this machine knows.

use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;

use super::{ExecutorConfig, ExecutorError, blocking};
use crate::markers::{AttemptId, Found, Markers};
use crate::process::Cgroups;

/// What earlier daemons left. Nothing of it runs any more.
#[derive(Debug)]
pub struct Recovery {
    pub(super) found: Found,
    pub(super) markers: Markers,
    pub(super) cgroups: Option<Cgroups>,
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
    let names: Vec<String> = found.attempts.keys().map(AttemptId::to_string).collect();
    let cgroups = blocking(move || {
        let cgroups = cgroup.map(|folder| Cgroups::open(&folder)).transpose()?;
        for name in names {
            if let Some(cgroups) = &cgroups {
                cgroups.clear(&name);
            }
        }
        Ok(cgroups)
    });
    let cgroups = cgroups.await.map_err(|error| ExecutorError::Cgroup {
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
    })
}
