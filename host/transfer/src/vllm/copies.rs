//! What vLLM's servers hold for one another on our behalf.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::request::Seen;
use crate::{CopyId, TransferError};

/// Most copies that are remembered.
const COPIES_MAX: usize = 4_096;

/// A copy that may yet be used.
pub(super) struct HeldCopy {
    /// Until when a fetch may begin.
    pub(super) until: Instant,
    /// Until when it has to have come.
    pub(super) come_by: Instant,
    /// The engine's answer about it.
    pub(super) parameters: Value,
    /// The prompt that it is of.
    pub(super) seen: Seen,
}

/// All of them.
#[derive(Default)]
pub(super) struct CopyIndex(Mutex<BTreeMap<CopyId, HeldCopy>>);

impl CopyIndex {
    pub(super) fn remember(&self, id: CopyId, copy: HeldCopy) -> Result<(), TransferError> {
        let mut copies = self.copies();
        if copies.len() >= COPIES_MAX {
            let now = Instant::now();
            copies.retain(|_, copies| copies.until > now);
        }
        if copies.len() >= COPIES_MAX {
            let why = format!("{COPIES_MAX} copies are held by engines already");
            return Err(TransferError::internal("a copy", why));
        }
        copies.insert(id, copy);
        Ok(())
    }

    /// Uses a copy up, whose handle has these parameters.
    pub(super) fn spend(&self, id: CopyId, parameters: &Value) -> Result<HeldCopy, TransferError> {
        let copies = self.copies().remove(&id).ok_or_else(|| {
            TransferError::gone(id, "it was used or dropped, or another process made it")
        })?;
        if copies.until < Instant::now() {
            return Err(TransferError::gone(
                id,
                "the engine may have freed it by now",
            ));
        }
        if copies.parameters != *parameters {
            return Err(TransferError::wrong_handle(
                "it differs from the engine's answer",
            ));
        }
        Ok(copies)
    }

    pub(super) fn forget(&self, id: CopyId) {
        self.copies().remove(&id);
    }

    fn copies(&self) -> MutexGuard<'_, BTreeMap<CopyId, HeldCopy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
