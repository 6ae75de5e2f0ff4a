//! Files in the engines' folder for slots. Each exists for one transfer, and is removed when that
//! ends.

use std::path::PathBuf;
use std::sync::Arc;

use super::files::{self, SLOT_FILE};
use super::receiving::{Draft, Unkept};
use super::{Pinned, Plan, Reservation, Tier};
use crate::stream::Link;
use crate::{CopyId, CopyLocation, KvCopy, TransferError};

/// The name of a copy's file in the engines' folder.
pub(crate) fn slot_file(id: CopyId) -> String {
    format!("{SLOT_FILE}{id}")
}

/// A file for an engine to write.
pub(crate) struct Saving {
    tier: Tier,
    id: CopyId,
    path: PathBuf,
    /// Room reserved for its estimated size.
    room: Option<Reservation>,
}

impl Saving {
    /// The id of the resulting copy.
    pub(crate) fn id(&self) -> CopyId {
        self.id
    }

    /// Turns the engine's file into a copy.
    pub(crate) async fn adopt(mut self, draft: Draft) -> Result<Unkept, TransferError> {
        let path = self.path.clone();
        let room = match self.room.take() {
            Some(room) => room,
            None => self.tier.reserve(0).await?,
        };
        let taken = super::receiving::adopt(room, self.id, path, draft).await?;
        self.tier.inner.orphans.end(&self.path);
        self.path.clear();
        Ok(taken)
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let path = std::mem::take(&mut self.path);
            self.tier.give_up(path, self.room.take());
        }
    }
}

/// A copy's bytes where the engine can read them. Dropping it removes the file, so that an engine
/// that reads it late finds nothing rather than outdated KV.
pub(crate) struct Staged {
    tier: Tier,
    path: PathBuf,
    /// Held while the file exists.
    _pinned: Option<Pinned>,
    room: Option<Reservation>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        self.tier.give_up(path, self.room.take());
    }
}

impl Tier {
    /// Prepares for a file that an engine will write under [`slot_file`], and reserves room for its
    /// estimated size.
    pub(crate) async fn saving(&self, id: CopyId, plan: &Plan) -> Result<Saving, TransferError> {
        let inner = &self.inner;
        self.sweep_aside();
        let path = self.slot_path(&slot_file(id));
        if self.index().knows(id) || !inner.orphans.begin(&path) {
            return Err(TransferError::wrong_handle(format!(
                "the copy {id} already exists"
            )));
        }
        let mut saving = Saving {
            tier: self.clone(),
            id,
            path,
            room: None,
        };
        saving.room = Some(self.reserve(inner.estimates.of(plan)).await?);
        Ok(saving)
    }

    /// Makes a copy available under [`slot_file`] of `name`, from this node or the one that has it,
    /// after comparing its bytes with its checksum.
    pub(crate) async fn stage(
        &self,
        copy: &KvCopy,
        name: CopyId,
        link: &Link,
    ) -> Result<Staged, TransferError> {
        self.sweep_aside();
        let path = self.slot_path(&slot_file(name));
        if self.holds(copy) {
            return self.stage_own(copy, path).await;
        }
        let CopyLocation::Tier { node, .. } = &copy.place else {
            return Err(TransferError::wrong_handle("the copy is in no host tier"));
        };
        let room = self.reserve(copy.bytes).await?;
        let staged = self.staged(path, None, Some(room))?;
        link.fetch(node, copy, &staged.path).await?;
        Ok(staged)
    }

    /// Leaves a file as an orphan; its room is released when it is removed.
    fn give_up(&self, path: PathBuf, room: Option<Reservation>) {
        let inner = Arc::clone(&self.inner);
        super::aside(move || {
            inner.orphans.give_up(path);
            drop(room);
        });
    }

    fn sweep_aside(&self) {
        let inner = Arc::clone(&self.inner);
        super::aside(move || inner.orphans.sweep_given_up());
    }

    fn staged(
        &self,
        path: PathBuf,
        pinned: Option<Pinned>,
        room: Option<Reservation>,
    ) -> Result<Staged, TransferError> {
        if !self.inner.orphans.begin(&path) {
            let why = "another transfer has a file of this name";
            return Err(TransferError::wrong_handle(why));
        }
        Ok(Staged {
            tier: self.clone(),
            path,
            _pinned: pinned,
            room,
        })
    }

    async fn stage_own(&self, copy: &KvCopy, path: PathBuf) -> Result<Staged, TransferError> {
        let pinned = self.pin(copy)?;
        let source = pinned.path();
        let room = self.room_beside(copy.bytes).await?;
        let staged = self.staged(path, Some(pinned), room)?;
        // If the caller has stopped waiting, the staged file is dropped with the result.
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
                let why = format!(
                    "its {bytes} bytes with checksum {checksum} differ from what was written"
                );
                return Err(TransferError::damaged(copy.id, why));
            }
            Ok(staged)
        });
        if let Err(TransferError::Damaged { .. } | TransferError::File { .. }) = &verified {
            // The damage is permanent.
            self.remove(copy.id);
        }
        verified
    }
}
