//! A folder of versions.

use crate::checkpoint::{FILES_MAX, Links};
use crate::error::{Result, StoreError, damaged};
use crate::files::{digest_of, names_in};
use crate::replay::{Chain, Made};
use crate::version::{Full, Version, folder_of, version_in};
use crate::workers::each;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Most deltas that a version builds on. All are read at once, for each tensor that is made.
const DELTAS_MAX: usize = 128;
/// Bytes of the headers of these deltas, which are kept in memory.
const HEADERS_MAX: u64 = 1 << 30;
/// Most versions in a folder.
const VERSIONS_MAX: usize = 100_000;

/// A folder of versions of the same weights, each after the one before.
#[derive(Clone, Debug)]
pub struct Stream {
    folder: PathBuf,
    base: Option<PathBuf>,
}

/// A version, for people.
#[derive(Clone, Debug, Serialize)]
pub struct VersionEntry {
    /// Its number.
    pub version: u64,
    /// The version that it is a delta to; none of a whole one.
    pub base: Option<u64>,
    /// Tensors in its files: all, or those that changed.
    pub tensors: usize,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was published, in seconds since 1970.
    pub published_s: u64,
    /// Why it can't be read, if so.
    pub problem: Option<String>,
}

impl Stream {
    /// The versions in a folder, which may not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            base: None,
        }
    }

    /// Has the first delta begin from a checkpoint elsewhere, as slime's do: its version 0 is what
    /// engines started with.
    #[must_use]
    pub fn with_base(mut self, folder: impl Into<PathBuf>) -> Self {
        self.base = Some(folder.into());
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a version is, once it was published.
    pub fn folder_of(&self, version: u64) -> PathBuf {
        self.folder.join(folder_of(version))
    }

    /// The file that is locked while a version is used.
    pub(crate) fn lock_of(&self, version: u64) -> PathBuf {
        self.folder.join(".locks").join(folder_of(version))
    }

    /// The versions that are there.
    pub fn versions(&self) -> Result<BTreeSet<u64>> {
        if !self.folder.exists() {
            return Ok(BTreeSet::new());
        }
        let names = names_in(&self.folder, VERSIONS_MAX)?;
        Ok(names.iter().filter_map(|name| version_in(name)).collect())
    }

    /// Reads a version's headers.
    pub(crate) fn open_version(&self, version: u64) -> Result<Version> {
        let folder = self.folder_of(version);
        match &self.base {
            Some(base) if version == 0 && !folder.exists() => {
                Full::open(base, 0, Links::Followed).map(Version::Full)
            }
            _ => Version::open(&folder, version),
        }
    }

    /// A version, with all that it builds on.
    pub(crate) fn chain(&self, version: u64) -> Result<Chain> {
        let (mut deltas, mut at, mut headers) = (Vec::new(), version, 0);
        let full = loop {
            match self.open_version(at)? {
                Version::Full(full) => break full,
                Version::Delta(delta) => {
                    at = delta.base;
                    headers += delta.checkpoint.header_bytes;
                    deltas.push(delta);
                }
            }
            if deltas.len() > DELTAS_MAX || headers > HEADERS_MAX {
                let why = format!(
                    "it builds on more than {DELTAS_MAX} deltas, or their headers have more than \
                     {HEADERS_MAX} bytes"
                );
                return Err(damaged(version, why));
            }
        };
        deltas.reverse();
        for delta in &deltas {
            let strange = delta.checkpoint.tensors.keys();
            let mut strange = strange.filter(|name| !full.checkpoint.tensors.contains_key(*name));
            if let Some(name) = strange.next() {
                let why = format!("it changes tensor `{name}`, which version {at} lacks");
                return Err(damaged(delta.version, why));
            }
        }
        Ok(Chain { full, deltas })
    }

    /// All versions, with what is wrong with those that can't be read.
    pub fn history(&self) -> Result<Vec<VersionEntry>> {
        let versions = self.versions()?;
        Ok(versions
            .iter()
            .map(|version| self.entry(*version))
            .collect())
    }

    fn entry(&self, version: u64) -> VersionEntry {
        let folder = self.folder_of(version);
        let (mut bytes, mut published_s) = (0, 0);
        // What can't be read shows below as a problem.
        for name in names_in(&folder, FILES_MAX).unwrap_or_default() {
            let Ok(found) = fs::symlink_metadata(folder.join(name)) else {
                continue;
            };
            bytes += found.len();
            let modified = found.modified().ok();
            let modified = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            published_s = published_s.max(modified.map_or(0, |since| since.as_secs()));
        }
        let (base, tensors, problem) = match self.open_version(version) {
            Ok(Version::Full(full)) => (None, full.checkpoint.tensors.len(), None),
            Ok(Version::Delta(delta)) => {
                let problem = self.chain(version).err().map(|error| error.to_string());
                (Some(delta.base), delta.checkpoint.tensors.len(), problem)
            }
            Err(error) => (None, 0, Some(error.to_string())),
        };
        VersionEntry {
            version,
            base,
            tensors,
            bytes,
            published_s,
            problem,
        }
    }

    /// Reads a version as a whole and compares each checksum. Returns its number of tensors.
    ///
    /// # Errors
    /// The first tensor or file that is not what was published, and the version that it is in.
    pub fn verify(&self, version: u64) -> Result<usize> {
        let chain = self.chain(version)?;
        let from = &chain.full.checkpoint;
        each(&from.largest_first(), |(name, place)| {
            let past = chain.past(name, place);
            match chain.make(name, &past, from, 0, |_, _| Ok(()))? {
                Made::Right(_) => Ok(()),
                Made::Wrong(version, why) => Err(wrong(name, version, &why)),
            }
        })?;
        for name in &from.files {
            let wanted = chain.full.sums.as_ref().and_then(|sums| sums.file(name));
            let path = from.folder.join(name);
            if let Some(wanted) = wanted
                && digest_of(&from.open_file(name)?, &path, wanted.algorithm)? != wanted
            {
                let why = format!("file `{name}` has another checksum");
                return Err(damaged(chain.full.version, why));
            }
        }
        Ok(from.tensors.len())
    }
}

/// A tensor that is not what was published.
pub(crate) fn wrong(name: &str, version: u64, why: &str) -> StoreError {
    damaged(version, format!("tensor `{name}`: {why}"))
}
