//! What vLLM's servers hold for one another on our behalf.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::request::Seen;
use crate::{CopyId, TransferError};

/// Most copies that are remembered.
const HELD_MAX: usize = 4_096;

/// A copy that may yet be used.
pub(super) struct Held {
    /// Until when a fetch may begin.
    pub(super) until: Instant,
    /// Until when it has to have come.
    pub(super) come_by: Instant,
    /// What the engine said of it.
    pub(super) parameters: Value,
    /// The prompt that it is of.
    pub(super) seen: Seen,
}

/// All of them.
#[derive(Default)]
pub(super) struct Holdings(Mutex<BTreeMap<CopyId, Held>>);

impl Holdings {
    pub(super) fn remember(&self, id: CopyId, copy: Held) -> Result<(), TransferError> {
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            let now = Instant::now();
            held.retain(|_, held| held.until > now);
        }
        if held.len() >= HELD_MAX {
            let why = format!("{HELD_MAX} copies are held by engines already");
            return Err(TransferError::internal("a copy", why));
        }
        held.insert(id, copy);
        Ok(())
    }

    /// Uses a copy up, whose handle says these parameters.
    pub(super) fn spend(&self, id: CopyId, parameters: &Value) -> Result<Held, TransferError> {
        let held = self.held().remove(&id).ok_or_else(|| {
            TransferError::gone(id, "it was used or dropped, or another process made it")
        })?;
        if held.until < Instant::now() {
            return Err(TransferError::gone(
                id,
                "the engine may have freed it by now",
            ));
        }
        if held.parameters != *parameters {
            return Err(TransferError::wrong_handle(
                "it says something else than the engine did",
            ));
        }
        Ok(held)
    }

    pub(super) fn forget(&self, id: CopyId) {
        self.held().remove(&id);
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<CopyId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
