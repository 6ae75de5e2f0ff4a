//! Adds a version: a delta to the one before, or a whole one.

use crate::checkpoint::{Checkpoint, Links};
use crate::checksum::{Algorithm, Digest};
use crate::delta::Encoding;
use crate::encode::{Changed, Pair, write_delta, write_full};
use crate::error::{At, Result, StoreError, not_whole};
use crate::files::{Lock, check_room, digest_of, remove_folder, rename, sync_folder};
use crate::local::Local;
use crate::replay::Chain;
use crate::stream::Stream;
use crate::version::{DeltaNotes, SUMS, is_delta};
use crate::workers::each;
use std::fs;
use std::path::{Path, PathBuf};

/// Most deltas after a whole version: a host that has nothing reads all of them, and nothing of them
/// can be deleted before the next whole version.
pub const CHAIN_MAX: usize = 15;
/// Most bytes of a tensor whose positions fit into 32 bits.
const POSITIONS_MAX: u64 = 1 << 32;

/// How a version is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct PublishOptions {
    /// How deltas say what changed.
    pub encoding: Encoding,
    /// Checksums of tensors.
    pub checksum: Algorithm,
}

/// What was published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Published {
    /// The version.
    pub version: u64,
    /// Whether it is a whole one.
    pub is_full: bool,
    /// Whether it was there before, with these weights.
    pub was_there: bool,
    /// Tensors in its files.
    pub tensors: usize,
    /// Bytes of these tensors.
    pub changed_bytes: u64,
    /// Bytes that were written to the store.
    pub written_bytes: u64,
}

impl Stream {
    /// Adds the checkpoint in a folder as a version. It is there as a whole, durably, or not at all.
    ///
    /// Only tensors that changed are written, if the version before is the newest one and its files
    /// have the same layout; at the latest after [`CHAIN_MAX`] such versions one is whole. The same
    /// weights can be published again.
    ///
    /// # Errors
    /// The folder is no checkpoint, the version is there with other weights or is older than the
    /// newest one, somebody else publishes, or the disk failed.
    pub fn publish(
        &self,
        folder: &Path,
        version: u64,
        options: PublishOptions,
    ) -> Result<Published> {
        fs::create_dir_all(self.folder()).at(self.folder())?;
        let _lock = Lock::take(&self.folder().join(".locks/publish"), "a publication")?;
        if is_delta(folder, Links::Followed)? {
            return Err(not_whole(folder, "it is a delta"));
        }
        let new = Checkpoint::open(folder, Links::Followed)?;
        let newest = self.versions()?.last().copied();
        if self.folder_of(version).exists() {
            return self.publish_again(&new, version);
        }
        if let Some(newest) = newest.filter(|newest| *newest > version) {
            return Err(StoreError::Older { version, newest });
        }
        let before = newest.filter(|newest| Some(*newest) == version.checked_sub(1));
        let delta = match before {
            Some(before) => self.publish_delta(&new, before, options)?,
            None => None,
        };
        match delta {
            Some(published) => Ok(published),
            None => self.publish_full(&new, version, options.checksum),
        }
    }

    /// Makes ready what the next publication compares with, so that it takes less time.
    pub fn prepare_next(&self) -> Result<()> {
        let _lock = Lock::take(&self.folder().join(".locks/publish"), "a publication")?;
        if let Some(newest) = self.versions()?.last() {
            let chain = self.chain(*newest)?;
            if (1..CHAIN_MAX).contains(&chain.deltas.len()) {
                self.head().pull(self, *newest, &[])?;
            }
        }
        Ok(())
    }

    /// The newest version as a whole, for comparing the next one with it.
    fn head(&self) -> Local {
        Local::new(self.folder().join(".head"))
    }

    /// A folder that becomes a version once it is whole.
    fn new_folder(&self) -> Result<PathBuf> {
        let folder = self.folder().join(".new");
        remove_folder(&folder)?;
        fs::create_dir(&folder).at(&folder)?;
        Ok(folder)
    }

    fn publish_full(
        &self,
        new: &Checkpoint,
        version: u64,
        algorithm: Algorithm,
    ) -> Result<Published> {
        let folder = self.new_folder()?;
        let bytes = new.shards.iter().map(|shard| shard.bytes);
        check_room(&folder, bytes.fold(0, u64::saturating_add))?;
        let written_bytes = write_full(&folder, new, algorithm)?;
        self.show(&folder, version)?;
        Ok(Published {
            version,
            is_full: true,
            was_there: false,
            tensors: new.tensors.len(),
            changed_bytes: new.tensors.values().map(|place| place.bytes).sum(),
            written_bytes,
        })
    }

    /// Makes a version visible.
    fn show(&self, folder: &Path, version: u64) -> Result<()> {
        sync_folder(folder)?;
        drop(Lock::share(&self.lock_of(version))?);
        rename(folder, &self.folder_of(version))
    }

    /// None if the next version has to be a whole one.
    fn publish_delta(
        &self,
        new: &Checkpoint,
        before: u64,
        options: PublishOptions,
    ) -> Result<Option<Published>> {
        let chain = match self.chain(before) {
            Ok(chain) => chain,
            // A whole version mends the stream.
            Err(StoreError::Damaged { .. } | StoreError::Missing(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        let full = &chain.full.checkpoint;
        if chain.deltas.len() >= CHAIN_MAX
            || !new.is_laid_out_as(full)
            || !has_same_files(new, &chain)?
        {
            return Ok(None);
        }
        if chain.deltas.is_empty() {
            return self.write_delta(full, new, &chain, options);
        }
        // What is read of it is compared with its checksums. Only if that fails all of it is.
        let head = Checkpoint::open(&self.head().folder_of(before), Links::Refused);
        if let Ok(head) = head
            && head.is_laid_out_as(full)
            && let Some(published) = self.write_delta(&head, new, &chain, options)?
        {
            return Ok(Some(published));
        }
        let pulled = match self.head().pull(self, before, &[]) {
            Err(StoreError::Damaged { .. }) => return Ok(None),
            pulled => pulled?,
        };
        let head = Checkpoint::open(&pulled.folder, Links::Refused)?;
        self.write_delta(&head, new, &chain, options)
    }

    /// Writes what differs from an old checkpoint, which is the version at the end of a chain. None
    /// if it is not what it should be, or the difference can't be written.
    fn write_delta(
        &self,
        old: &Checkpoint,
        new: &Checkpoint,
        chain: &Chain,
        options: PublishOptions,
    ) -> Result<Option<Published>> {
        let changed = changed(old, new, chain, options.checksum)?;
        let largest = changed.iter().map(|tensor| tensor.place.bytes).max();
        if options.encoding == Encoding::Overwrite && largest > Some(POSITIONS_MAX) {
            return Ok(None);
        }
        let pair = Pair {
            old,
            version: chain.version(),
            new,
        };
        let version = pair.version + 1;
        let folder = self.new_folder()?;
        let notes = DeltaNotes::new(version, options.encoding, options.checksum);
        let written_bytes = match write_delta(&folder, pair, &changed, notes) {
            Err(StoreError::Damaged { .. }) => return Ok(None),
            written => written?,
        };
        self.show(&folder, version)?;
        Ok(Some(Published {
            version,
            is_full: false,
            was_there: false,
            tensors: changed.len(),
            changed_bytes: changed.iter().map(|tensor| tensor.place.bytes).sum(),
            written_bytes,
        }))
    }

    /// The version is there: with these weights, or not.
    fn publish_again(&self, new: &Checkpoint, version: u64) -> Result<Published> {
        let chain = self.chain(version)?;
        let full = &chain.full.checkpoint;
        let is_same = new.is_laid_out_as(full) && has_same_files(new, &chain)?;
        let same = each(&new.largest_first(), |(name, place)| {
            let past = chain.past(name, place);
            let Some(wanted) = is_same.then(|| past.last()).flatten() else {
                return Ok(false);
            };
            Ok(new.digests(place, &[wanted.algorithm])?.contains(wanted))
        })?;
        if !is_same || same.contains(&false) {
            return Err(StoreError::Other(version));
        }
        Ok(Published {
            version,
            is_full: chain.deltas.is_empty(),
            was_there: true,
            tensors: 0,
            changed_bytes: 0,
            written_bytes: 0,
        })
    }
}

/// Whether all but the tensors is as in the whole version that a chain begins with.
fn has_same_files(new: &Checkpoint, chain: &Chain) -> Result<bool> {
    let full = &chain.full.checkpoint;
    let own: Vec<&String> = new.files.iter().filter(|name| *name != SUMS).collect();
    if own != full.files.iter().collect::<Vec<_>>() {
        return Ok(false);
    }
    for name in own {
        let known = chain.full.sums.as_ref().and_then(|sums| sums.file(name));
        let known: Digest = match known {
            Some(known) => known,
            None => digest_of(&full.open_file(name)?, &full.folder, Algorithm::default())?,
        };
        if digest_of(&new.open_file(name)?, &new.folder, known.algorithm)? != known {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tensors that differ, the largest ones first.
fn changed<'c>(
    old: &'c Checkpoint,
    new: &'c Checkpoint,
    chain: &Chain,
    algorithm: Algorithm,
) -> Result<Vec<Changed<'c>>> {
    let tensors = new.largest_first();
    let changed = each(&tensors, |(name, place)| {
        let known = chain.past(name, &chain.full.checkpoint.tensors[*name]);
        let known = known.last().filter(|known| known.algorithm == algorithm);
        let before = match known {
            Some(known) => known.clone(),
            None => old.digests(place, &[algorithm])?.remove(0),
        };
        let after = new.digests(place, &[algorithm])?.remove(0);
        Ok((before != after).then_some(Changed {
            name,
            place,
            old: before,
            new: after,
        }))
    })?;
    Ok(changed.into_iter().flatten().collect())
}
