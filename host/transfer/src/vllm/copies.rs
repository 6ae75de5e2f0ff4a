//! Copies that vLLM servers hold for one another.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::request::PromptKey;
use crate::{CopyId, TransferError};

/// Maximum number of copies.
const COPIES_MAX: usize = 4_096;

/// A copy that may still be used.
pub(super) struct HeldCopy {
    /// Deadline for beginning a fetch.
    pub(super) until: Instant,
    /// Deadline for completing it.
    pub(super) come_by: Instant,
    /// The engine's parameters for the fetch.
    pub(super) parameters: Value,
    /// The prompt that was computed.
    pub(super) seen: PromptKey,
}

/// All copies.
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
            let why = format!("engines already hold {COPIES_MAX} copies");
            return Err(TransferError::internal("a copy", why));
        }
        copies.insert(id, copy);
        Ok(())
    }

    /// Uses up the copy with these parameters in its handle.
    pub(super) fn spend(&self, id: CopyId, parameters: &Value) -> Result<HeldCopy, TransferError> {
        let copies = self.copies().remove(&id).ok_or_else(|| {
            TransferError::gone(
                id,
                "it was already used or dropped, or another process made it",
            )
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
