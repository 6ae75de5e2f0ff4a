//! The host tier: a folder of copies with a size limit, on disk or in memory (tmpfs).
//!
//! A copy is two files: its bytes as the engine wrote them, and its handle. Both are written under
//! a temporary name first, the handle last, so a killed process leaves either a complete copy or
//! files that the next process removes. The least recently used copy is evicted for a new one,
//! unless a transfer uses it.

mod estimates;
mod evicted;
mod files;
mod index;
mod orphans;
mod receiving;
mod slots;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use estimates::Estimates;
pub(crate) use estimates::Plan;
pub use evicted::{Evicted, Evictions};
pub(crate) use evicted::{EvictionPosition, News};
use files::Folder;
use index::Index;
use orphans::{ORPHAN_AGE, Orphans};
pub(crate) use receiving::{Draft, Unkept};
pub(crate) use slots::{Saving, Staged, slot_file};

use crate::{CopyId, CopyLocation, KvCopy, TransferError};

/// The settings of a tier.
#[derive(Clone, Debug)]
pub struct TierSettings {
    /// The folder of copies; only one process may use it.
    pub folder: PathBuf,
    /// The folder where the engines of this node save slots and restore them from (llama.cpp's
    /// `--slot-save-path`). If it is on the same file system, no bytes are copied.
    pub slots_folder: PathBuf,
    /// Limit on the copies, in bytes.
    pub bytes_max: u64,
    /// The address of this tier's server for other nodes; any name if there is no server.
    pub node: Box<str>,
}

/// The usage of a tier.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TierUsage {
    /// Number of copies.
    pub copies: usize,
    /// Bytes of copies, including those being received.
    pub bytes: u64,
    /// Copies that transfers use now.
    pub in_transfer: usize,
    /// The limit.
    pub bytes_max: u64,
}

/// A host tier; clones share it.
#[derive(Clone)]
pub struct Tier {
    inner: Arc<Inner>,
}

struct Inner {
    folder: Folder,
    node: Box<str>,
    index: Mutex<Index>,
    evictions: Evictions,
    orphans: Orphans,
    estimates: Estimates,
}

impl Tier {
    /// Opens a tier and takes over the complete copies of the previous process, the most recently
    /// used first, as far as they fit. Blocks on the file system.
    pub fn open(settings: &TierSettings) -> Result<Self, TransferError> {
        let folder = Folder::open(&settings.folder, &settings.slots_folder)?;
        let mut index = Index::new(settings.bytes_max);
        let evictions = Evictions::new()?;
        let (orphans, estimates) = (Orphans::default(), Estimates::default());
        orphans.sweep(folder.slots(), ORPHAN_AGE)?;
        for copy in folder.scan()? {
            estimates.learn_of(&copy);
            index.insert(copy);
        }
        for copy in index.shrink() {
            folder.remove(copy.id);
            evictions.push(Evicted::of(&copy));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                folder,
                node: settings.node.clone(),
                index: Mutex::new(index),
                evictions,
                orphans,
                estimates,
            }),
        })
    }

    /// The name of this node.
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// The copies in this tier, the least recently used first.
    pub fn copies(&self) -> Vec<KvCopy> {
        self.index().copies()
    }

    /// The current usage.
    pub fn usage(&self) -> TierUsage {
        self.index().usage()
    }

    /// Evicted copies of this tier and, as far as reported, of other nodes.
    pub fn evictions(&self) -> &Evictions {
        &self.inner.evictions
    }

    /// Drops copies, at once or when the transfer that uses them ends. A missing copy is not an
    /// error.
    pub async fn forget(&self, ids: impl IntoIterator<Item = CopyId>) {
        let gone: Vec<CopyId> = {
            let mut index = self.index();
            let ids = ids.into_iter();
            ids.filter(|id| index.remove(*id)).collect()
        };
        self.unlink(gone).await;
    }

    /// Drops a scheduler's copies except the known ones; those of all schedulers if `owner` is
    /// `None`. Returns the number of dropped copies.
    pub async fn keep_only(&self, owner: Option<&str>, known: &BTreeSet<CopyId>) -> usize {
        let is_theirs = |copy: &KvCopy| match &copy.place {
            CopyLocation::Tier { owner: own, .. } => owner.is_none_or(|owner| **own == *owner),
            _ => false,
        };
        let copies = self.copies();
        let strangers = copies.iter().filter(|copy| is_theirs(copy));
        let strangers: Vec<CopyId> = strangers
            .map(|copy| copy.id)
            .filter(|id| !known.contains(id))
            .collect();
        self.forget(strangers.iter().copied()).await;
        strangers.len()
    }

    /// Removes a copy from the index; its files are removed in the background.
    fn remove(&self, id: CopyId) {
        let is_over = self.index().remove(id);
        if is_over {
            self.unlink_aside(id);
        }
    }

    /// Removes the files of copies that are no longer in the index.
    async fn unlink(&self, ids: Vec<CopyId>) {
        if ids.is_empty() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        let removed = tokio::task::spawn_blocking(move || {
            for id in ids {
                inner.folder.remove(id);
            }
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "could not remove files of the tier");
        }
    }

    fn unlink_aside(&self, id: CopyId) {
        let inner = Arc::clone(&self.inner);
        aside(move || inner.folder.remove(id));
    }

    /// Removes orphaned files from the engines' folder: those of cancelled transfers and of killed
    /// processes. Call it periodically; blocks on the file system.
    pub fn sweep(&self) {
        let inner = &self.inner;
        if let Err(error) = inner.orphans.sweep(inner.folder.slots(), ORPHAN_AGE) {
            tracing::warn!(%error, "orphaned files in the engines' folder could not be removed");
        }
    }

    /// Whether the handle's copy is in this tier.
    pub(crate) fn holds(&self, copy: &KvCopy) -> bool {
        matches!(&copy.place, CopyLocation::Tier { node, .. } if *node == self.inner.node)
    }

    /// Protects a copy from eviction, after comparing the handle with the stored copy.
    pub(crate) fn pin(&self, copy: &KvCopy) -> Result<Pinned, TransferError> {
        let mut index = self.index();
        let Some(held) = index.get(copy.id) else {
            return Err(TransferError::gone(copy.id, "it was dropped or evicted"));
        };
        if !held.is_same(copy) {
            return Err(TransferError::wrong_handle(
                "it differs from the copy itself",
            ));
        }
        index.pin(copy.id);
        drop(index);
        let (inner, id) = (Arc::clone(&self.inner), copy.id);
        aside(move || inner.folder.touch(id));
        Ok(Pinned {
            tier: self.clone(),
            id,
        })
    }

    /// Reserves room. Evicted copies are reported, and removed when this returns.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<Reservation, TransferError> {
        let gone = self.index().reserve(bytes)?;
        let reserved = Reservation {
            tier: self.clone(),
            bytes,
        };
        for copy in &gone {
            self.inner.evictions.push(Evicted::of(copy));
        }
        self.unlink(gone.iter().map(|copy| copy.id).collect()).await;
        Ok(reserved)
    }

    /// Reserves room for a file that exists both in the tier and in the engines' folder, if it
    /// can't be linked.
    pub(crate) async fn room_beside(
        &self,
        bytes: u64,
    ) -> Result<Option<Reservation>, TransferError> {
        if !self.inner.folder.crosses() {
            return Ok(None);
        }
        self.reserve(bytes).await.map(Some)
    }

    /// The path of a copy's bytes.
    pub(crate) fn path(&self, id: CopyId) -> PathBuf {
        self.inner.folder.kv(id)
    }

    fn slot_path(&self, name: &str) -> PathBuf {
        self.inner.folder.slots().join(name)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.inner
            .index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy in use by a transfer.
pub(crate) struct Pinned {
    tier: Tier,
    id: CopyId,
}

impl Pinned {
    pub(crate) fn path(&self) -> PathBuf {
        self.tier.path(self.id)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let is_over = self.tier.index().unpin(self.id);
        if is_over {
            self.tier.unlink_aside(self.id);
        }
    }
}

/// Room reserved for a copy.
pub(crate) struct Reservation {
    tier: Tier,
    bytes: u64,
}

impl Reservation {
    /// Adjusts the reservation to the received size.
    pub(crate) async fn resize(&mut self, bytes: u64) -> Result<(), TransferError> {
        if bytes > self.bytes {
            let mut more = self.tier.reserve(bytes - self.bytes).await?;
            more.bytes = 0;
        } else {
            self.tier.index().release(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.tier.index().release(self.bytes);
    }
}

/// Runs blocking work, on a blocking thread if there is a runtime.
fn aside(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            runtime.spawn_blocking(work);
        }
        Err(_) => work(),
    }
}

/// Removes a file; returns whether it existed.
fn remove_file(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "could not remove a file of the tier");
            }
            false
        }
    }
}
