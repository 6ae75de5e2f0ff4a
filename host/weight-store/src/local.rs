//! Whole checkpoints on a host, made of a stream's versions.

use crate::checkpoint::{Checkpoint, Links, Place};
use crate::checksum::Algorithm;
use crate::error::{At, Result, StoreError, not_whole};
use crate::files::{
    Lock, check_room, copy_new, digest_of, names_in, open, open_to_write, remove_folder, rename,
    sync_folder,
};
use crate::replay::{Chain, Made};
use crate::stream::{Stream, wrong};
use crate::version::{folder_of, version_in};
use crate::workers::each;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most entries of a local folder.
const ENTRIES_MAX: usize = 100_000;

/// A folder on a host, with whole checkpoints that engines load.
#[derive(Clone, Debug)]
pub struct Local {
    folder: PathBuf,
}

/// What a pull did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pulled {
    /// The checkpoint's folder.
    pub folder: PathBuf,
    /// Tensors that it has.
    pub tensors: usize,
    /// Tensors that had to be made.
    pub made: usize,
    /// Bytes that were read from the store for them.
    pub moved_bytes: u64,
    /// Bytes that were written to the host's disk.
    pub written_bytes: u64,
}

/// What was done for one tensor.
#[derive(Clone, Copy, Default)]
struct Step {
    moved: u64,
    written: u64,
}

/// A checkpoint that is being made.
struct Making<'m> {
    chain: &'m Chain,
    /// It, with whatever is in it so far.
    target: Checkpoint,
    /// Its files that hold nothing yet.
    is_new: Vec<bool>,
    /// Another version that is whole on this host.
    other: Option<(u64, Checkpoint)>,
    /// Its files that were written to.
    is_written: Vec<AtomicBool>,
}

impl Local {
    /// A folder, which may not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Where a version is, once it was pulled.
    pub fn folder_of(&self, version: u64) -> PathBuf {
        self.folder.join(folder_of(version))
    }

    /// Versions that are whole here.
    pub fn versions(&self) -> Result<BTreeSet<u64>> {
        if !self.folder.exists() {
            return Ok(BTreeSet::new());
        }
        let names = names_in(&self.folder, ENTRIES_MAX)?;
        Ok(names.iter().filter_map(|name| version_in(name)).collect())
    }

    /// Makes a version here, and proves each of its tensors. What the host has of it or of other
    /// versions, also of a pull that was interrupted, is not read from the stream again. The folder
    /// is there once it is whole; versions that are not in `keep` make room for it.
    ///
    /// # Errors
    /// The version is not in the stream or is damaged there, or a disk failed.
    pub fn pull(&self, stream: &Stream, version: u64, keep: &[u64]) -> Result<Pulled> {
        fs::create_dir_all(&self.folder).at(&self.folder)?;
        let _host = Lock::wait(&self.folder.join(".lock"))?;
        let _store = if stream.folder().exists() {
            Lock::share(&stream.lock_of(version))?
        } else {
            None
        };
        let chain = stream.chain(version)?;
        let whole = self.folder_of(version);
        let unfinished = self.folder.join(".pull");
        if whole.exists() {
            if let Some(pulled) = proven(&chain, &whole)? {
                return Ok(pulled);
            }
            remove_folder(&unfinished)?;
            rename(&whole, &unfinished)?;
        }
        if !unfinished.exists() {
            match self.versions()?.into_iter().find(|v| !keep.contains(v)) {
                Some(old) => rename(&self.folder_of(old), &unfinished)?,
                None => fs::create_dir(&unfinished).at(&unfinished)?,
            }
        }
        let mut pulled = self.make(&chain, &unfinished)?;
        sync_folder(&unfinished)?;
        rename(&unfinished, &whole)?;
        pulled.folder = whole;
        let old = self.versions()?.into_iter();
        for old in old.filter(|v| *v != version && !keep.contains(v)) {
            remove_folder(&self.folder_of(old))?;
        }
        Ok(pulled)
    }

    /// Compares a version that is whole here with the stream, and changes nothing.
    ///
    /// # Errors
    /// It is not here, or not what was published.
    pub fn verify(&self, stream: &Stream, version: u64) -> Result<usize> {
        let folder = self.folder_of(version);
        if !folder.exists() {
            return Err(StoreError::Missing(version));
        }
        let proven = proven(&stream.chain(version)?, &folder)?;
        let why = "its copy on this host is not what was published; pull it again";
        proven
            .map(|pulled| pulled.tensors)
            .ok_or_else(|| not_whole(&folder, why))
    }

    /// Fills a folder.
    fn make(&self, chain: &Chain, folder: &Path) -> Result<Pulled> {
        let full = &chain.full.checkpoint;
        let is_new = lay_out(full, folder)?;
        // A disk that fills up meanwhile would be full for all others too.
        check_room(folder, missing_bytes(full, folder)?)?;
        let target = Checkpoint::open(folder, Links::Refused)?;
        let making = Making {
            chain,
            target,
            is_written: is_new.iter().map(|_| AtomicBool::new(false)).collect(),
            is_new,
            other: self.other(chain),
        };
        let steps = each(&full.largest_first(), |(name, place)| {
            making.settle(name, place)
        })?;
        let shards = full.shards.iter().zip(&making.is_written);
        let written: Vec<PathBuf> = shards
            .filter(|(_, is_written)| is_written.load(Ordering::Relaxed))
            .map(|(shard, _)| folder.join(&shard.name))
            .collect();
        each(&written, |path| {
            let file = open_to_write(path)?;
            file.sync_all().at(path)
        })?;
        let mut pulled = Pulled {
            tensors: steps.len(),
            made: steps.iter().filter(|step| step.written > 0).count(),
            moved_bytes: steps.iter().map(|step| step.moved).sum(),
            written_bytes: steps.iter().map(|step| step.written).sum(),
            ..Pulled::default()
        };
        for name in &full.files {
            if needs_copy(chain, name, folder)? {
                let path = folder.join(name);
                if path.symlink_metadata().is_ok() {
                    fs::remove_file(&path).at(&path)?;
                }
                let from = full.open_file(name)?;
                let (_, bytes) = copy_new(&from, &path, Algorithm::default())?;
                pulled.moved_bytes += bytes;
                pulled.written_bytes += bytes;
            }
        }
        Ok(pulled)
    }

    /// The newest version that is whole here, and that the wanted one builds on.
    fn other(&self, chain: &Chain) -> Option<(u64, Checkpoint)> {
        let here = self.versions().ok()?;
        let range = chain.full.version..chain.version();
        let version = *here.range(range).next_back()?;
        let found = Checkpoint::open(&self.folder_of(version), Links::Refused).ok()?;
        let is_alike = found.is_laid_out_as(&chain.full.checkpoint);
        is_alike.then_some((version, found))
    }
}

/// What a pull finds if a folder has a version as it was published; none if it has not.
fn proven(chain: &Chain, folder: &Path) -> Result<Option<Pulled>> {
    let full = &chain.full.checkpoint;
    let found = match Checkpoint::open(folder, Links::Refused) {
        Err(StoreError::NotWhole { .. }) => return Ok(None),
        found => found?,
    };
    if !found.is_laid_out_as(full) || found.files != full.files {
        return Ok(None);
    }
    for name in &full.files {
        if needs_copy(chain, name, folder)? {
            return Ok(None);
        }
    }
    let right = each(&full.largest_first(), |(name, place)| {
        let past = chain.past(name, place);
        let wanted = match past.last() {
            Some(wanted) => wanted.clone(),
            None => full.digests(place, &[Algorithm::default()])?.remove(0),
        };
        Ok(found.digests(place, &[wanted.algorithm])?.contains(&wanted))
    })?;
    Ok((!right.contains(&false)).then(|| Pulled {
        folder: folder.to_owned(),
        tensors: right.len(),
        ..Pulled::default()
    }))
}

/// Gives a folder the files of a checkpoint, with their headers. Returns which have nothing else yet.
fn lay_out(full: &Checkpoint, folder: &Path) -> Result<Vec<bool>> {
    for name in names_in(folder, ENTRIES_MAX)? {
        let is_own = full.files.contains(&name) || full.shards.iter().any(|s| s.name == name);
        let path = folder.join(&name);
        let is_file = path.symlink_metadata().at(&path)?.is_file();
        if !is_own || !is_file {
            let removed = if path.symlink_metadata().at(&path)?.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.at(&path)?;
        }
    }
    let mut is_new = Vec::with_capacity(full.shards.len());
    for shard in &full.shards {
        let path = folder.join(&shard.name);
        if path.symlink_metadata().is_ok() {
            let file = open(&path)?;
            let mut header = vec![0; shard.header.len()];
            let is_same = file.metadata().at(&path)?.len() == shard.bytes
                && file.read_exact_at(&mut header, 0).is_ok()
                && header == shard.header;
            if is_same {
                is_new.push(false);
                continue;
            }
            fs::remove_file(&path).at(&path)?;
        }
        let file = File::create_new(&path).at(&path)?;
        file.set_len(shard.bytes).at(&path)?;
        file.write_all_at(&shard.header, 0).at(&path)?;
        is_new.push(true);
    }
    Ok(is_new)
}

/// Bytes of a checkpoint's tensors for which its files in a folder have no room on the disk yet.
fn missing_bytes(full: &Checkpoint, folder: &Path) -> Result<u64> {
    let mut missing: u64 = 0;
    for shard in &full.shards {
        let path = folder.join(&shard.name);
        let has = 512 * path.symlink_metadata().at(&path)?.blocks();
        missing = missing.saturating_add(shard.bytes.saturating_sub(has));
    }
    Ok(missing)
}

/// Whether a file other than a safetensors file is not here as it was published.
fn needs_copy(chain: &Chain, name: &str, folder: &Path) -> Result<bool> {
    let path = folder.join(name);
    if path.symlink_metadata().is_err() {
        return Ok(true);
    }
    let full = &chain.full.checkpoint;
    let known = chain.full.sums.as_ref().and_then(|sums| sums.file(name));
    let known = match known {
        Some(known) => known,
        None => digest_of(&full.open_file(name)?, &path, Algorithm::default())?,
    };
    Ok(digest_of(&open(&path)?, &path, known.algorithm)? != known)
}

impl Making<'_> {
    /// Makes a tensor right: out of what is here, if that can be, else out of the stream.
    fn settle(&self, name: &str, place: &Place) -> Result<Step> {
        let full = &self.chain.full.checkpoint;
        let mut past = self.chain.past(name, place);
        let mut step = Step::default();
        if past.last().is_none() {
            past.first = Some(full.digests(place, &[Algorithm::default()])?.remove(0));
            step.moved += place.bytes;
        }
        let mut sources: Vec<(usize, &Checkpoint)> = Vec::new();
        if !self.is_new[place.shard] {
            let known = past.first.iter().chain(past.changes.iter().map(|(_, d)| d));
            let mut algorithms: Vec<_> = known.map(|digest| digest.algorithm).collect();
            algorithms.sort_unstable();
            algorithms.dedup();
            let found = self.target.digests(place, &algorithms)?;
            if past.last().is_some_and(|wanted| found.contains(wanted)) {
                return Ok(step);
            }
            let changes = past.changes.iter().rposition(|(_, d)| found.contains(d));
            if let Some(at) = changes {
                sources.push((at + 1, &self.target));
            } else if past.first.as_ref().is_some_and(|d| found.contains(d)) {
                sources.push((0, &self.target));
            }
        }
        if let Some((version, other)) = &self.other {
            let known = past
                .changes
                .iter()
                .take_while(|(delta, _)| delta.version <= *version);
            sources.push((known.count(), other));
        }
        sources.push((0, full));
        sources.sort_by_key(|(known, _)| std::cmp::Reverse(*known));
        let file = &self.target.shards[place.shard].name;
        let file = open_to_write(&self.target.folder.join(file))?;
        self.is_written[place.shard].store(true, Ordering::Relaxed);
        let mut last = None;
        for (known, from) in sources {
            let sink = |at, bytes: &[u8]| file.write_all_at(bytes, place.at + at);
            match self.chain.make(name, &past, from, known, sink)? {
                Made::Right(moved) => {
                    step.moved += moved;
                    step.written = place.bytes;
                    return Ok(step);
                }
                Made::Wrong(version, why) => last = Some((version, why)),
            }
        }
        let (version, why) = last.unwrap_or_default();
        Err(wrong(name, version, &why))
    }
}
