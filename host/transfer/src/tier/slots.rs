//! Files in the folder that engines save slots to and restore them from. Each is there for one
//! transfer, and goes with it, however that ends.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::files::{self, SLOT_FILE};
use super::receiving::{Draft, Unkept};
use super::{Pinned, Reservation, Tier, remove_file};
use crate::stream::Link;
use crate::{CopyId, KvCopy, Place, TransferError};

/// Most names of files that may yet appear, because an engine may yet write them; the oldest are
/// forgotten.
const STRAYS_MAX: usize = 1_024;

/// Files that were given up before they were there.
#[derive(Default)]
pub(super) struct Strays {
    names: Mutex<VecDeque<PathBuf>>,
}

impl Strays {
    /// Removes a file now, or when it has appeared.
    fn give_up(&self, path: PathBuf) {
        if !remove_file(&path) {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            if names.len() == STRAYS_MAX {
                names.pop_front();
            }
            names.push_back(path);
        }
    }

    /// Removes those that have appeared.
    fn sweep(&self) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|path| !path.exists() || !remove_file(path));
    }
}

/// The name of a file in the engines' folder.
pub(crate) fn slot_file(id: CopyId) -> String {
    format!("{SLOT_FILE}{id}")
}

/// A file that an engine is to write.
pub(crate) struct Saving {
    tier: Tier,
    id: CopyId,
    path: PathBuf,
}

impl Saving {
    /// The copy that comes of it.
    pub(crate) fn id(&self) -> CopyId {
        self.id
    }

    /// Takes in what the engine has written.
    pub(crate) async fn adopt(mut self, draft: Draft) -> Result<Unkept, TransferError> {
        let taken =
            super::receiving::adopt(self.tier.clone(), self.id, self.path.clone(), draft).await?;
        self.path.clear();
        Ok(taken)
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let path = std::mem::take(&mut self.path);
            self.tier.inner.strays.give_up(path);
        }
    }
}

/// A copy's bytes where the engine can read them. Dropping it removes the file, so an engine that
/// comes to it late finds nothing, rather than the KV of weights that it no longer has.
pub(crate) struct Staged {
    path: PathBuf,
    /// Held for as long as the file is there.
    _held: Held,
}

enum Held {
    Pinned(#[expect(dead_code, reason = "held")] Pinned),
    Room(#[expect(dead_code, reason = "held")] Reservation),
}

impl Drop for Staged {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

impl Tier {
    /// Prepares for a file that an engine is to write under [`slot_file`].
    pub(crate) fn saving(&self, id: CopyId) -> Saving {
        self.inner.strays.sweep();
        Saving {
            tier: self.clone(),
            id,
            path: self.slot_path(&slot_file(id)),
        }
    }

    /// Puts a copy under [`slot_file`] of `name`, from here or from the node where it is. Its bytes
    /// are compared with its checksum.
    pub(crate) async fn stage(
        &self,
        copy: &KvCopy,
        name: CopyId,
        link: &Link,
    ) -> Result<Staged, TransferError> {
        self.inner.strays.sweep();
        let path = self.slot_path(&slot_file(name));
        if self.holds(copy) {
            return self.stage_own(copy, path).await;
        }
        let Place::Tier { node } = &copy.place else {
            return Err(TransferError::wrong_handle("the copy is in no host tier"));
        };
        let room = self.reserve(copy.bytes)?;
        let staged = Staged {
            path,
            _held: Held::Room(room),
        };
        link.fetch(node, copy, &staged.path).await?;
        Ok(staged)
    }

    async fn stage_own(&self, copy: &KvCopy, path: PathBuf) -> Result<Staged, TransferError> {
        let pinned = self.pin(copy)?;
        let source = pinned.path();
        let staged = Staged {
            path,
            _held: Held::Pinned(pinned),
        };
        // If nobody waits for it any more, what is staged is dropped with the answer.
        let work = move || {
            files::link_file(&source, &staged.path)?;
            let (bytes, digest) = files::digest(&staged.path)?;
            Ok((staged, bytes, digest.text()))
        };
        let done = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| TransferError::internal("staging", error))?;
        let verified = done.and_then(|(staged, bytes, checksum)| {
            if bytes != copy.bytes || copy.checksum.as_deref() != Some(&*checksum) {
                let why = format!("{bytes} bytes of {checksum}, not as they were written");
                return Err(TransferError::damaged(copy.id, why));
            }
            Ok(staged)
        });
        if let Err(TransferError::Damaged { .. } | TransferError::File { .. }) = &verified {
            // It will not get better.
            self.remove(copy.id);
        }
        verified
    }
}
