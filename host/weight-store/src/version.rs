//! A version in a stream: a whole checkpoint with its checksums, or a delta.

use crate::checkpoint::{Checkpoint, INDEX, INDEX_MAX, Links};
use crate::checksum::{Algorithm, Digest};
use crate::delta::Encoding;
use crate::error::{Result, StoreError, damaged};
use crate::files::read_small;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Checksums of a whole version, beside its files. Other readers copy the file and make no use of it.
pub(crate) const SUMS: &str = "treadle-checksums.json";
/// What compresses deltas.
const ZSTD: &str = "zstd";

/// A version's folder.
pub(crate) fn folder_of(version: u64) -> String {
    format!("weight_v{version:06}")
}

/// The version that a folder's name says.
pub(crate) fn version_in(name: &str) -> Option<u64> {
    let version: u64 = name.strip_prefix("weight_v")?.parse().ok()?;
    (folder_of(version) == name).then_some(version)
}

/// Checksums of a whole version.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sums {
    pub(crate) checksum_format: Algorithm,
    pub(crate) tensors: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<String, String>,
}

impl Sums {
    /// The checksum of a tensor.
    pub(crate) fn tensor(&self, name: &str) -> Option<Digest> {
        Some(self.digest(self.tensors.get(name)?))
    }

    /// The checksum of another file.
    pub(crate) fn file(&self, name: &str) -> Option<Digest> {
        Some(self.digest(self.files.get(name)?))
    }

    fn digest(&self, hex: &str) -> Digest {
        Digest {
            algorithm: self.checksum_format,
            hex: hex.into(),
        }
    }
}

/// A delta's part of its index.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DeltaNotes {
    pub(crate) version: String,
    pub(crate) base_version: String,
    pub(crate) delta_encoding: Encoding,
    pub(crate) compression_format: String,
    pub(crate) checksum_format: Algorithm,
}

/// The index of a delta.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DeltaIndex {
    pub(crate) metadata: DeltaNotes,
    pub(crate) weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AnyIndex {
    #[serde(default)]
    metadata: BTreeMap<String, serde_json::Value>,
}

/// A whole version.
#[derive(Debug)]
pub(crate) struct Full {
    pub(crate) version: u64,
    pub(crate) checkpoint: Checkpoint,
    /// None of one that others wrote.
    pub(crate) sums: Option<Sums>,
}

/// A delta.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) version: u64,
    pub(crate) base: u64,
    pub(crate) encoding: Encoding,
    pub(crate) algorithm: Algorithm,
    pub(crate) checkpoint: Checkpoint,
}

/// A version.
#[derive(Debug)]
pub(crate) enum Version {
    Full(Full),
    Delta(Delta),
}

impl DeltaNotes {
    pub(crate) fn new(version: u64, encoding: Encoding, algorithm: Algorithm) -> Self {
        Self {
            version: format!("{version:06}"),
            base_version: format!("{:06}", version - 1),
            delta_encoding: encoding,
            compression_format: ZSTD.to_owned(),
            checksum_format: algorithm,
        }
    }
}

/// Whether the index in a folder says that it is a delta.
pub(crate) fn is_delta(folder: &Path, links: Links) -> Result<bool> {
    Ok(index_of(folder, links)?.is_some_and(|index| {
        let index: Option<AnyIndex> = serde_json::from_slice(&index).ok();
        index.is_some_and(|index| index.metadata.contains_key("delta_encoding"))
    }))
}

fn index_of(folder: &Path, links: Links) -> Result<Option<Vec<u8>>> {
    let path = folder.join(INDEX);
    if !path.exists() {
        return Ok(None);
    }
    read_small(&links.open(&path)?, &path, INDEX_MAX).map(Some)
}

impl Version {
    /// Reads a version's headers.
    pub(crate) fn open(folder: &Path, version: u64) -> Result<Self> {
        let as_damaged = |error| match error {
            StoreError::NotWhole { path, why } => {
                damaged(version, format!("{}: {why}", path.display()))
            }
            other => other,
        };
        // A link may lead to what another job stored.
        if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Err(StoreError::Missing(version));
        }
        if is_delta(folder, Links::Refused)? {
            return Delta::open(folder, version)
                .map_err(as_damaged)
                .map(Self::Delta);
        }
        Full::open(folder, version, Links::Refused)
            .map_err(as_damaged)
            .map(Self::Full)
    }
}

impl Full {
    /// Reads the headers of a whole version.
    pub(crate) fn open(folder: &Path, version: u64, links: Links) -> Result<Self> {
        let mut checkpoint = Checkpoint::open(folder, links)?;
        let mut sums = None;
        if let Some(at) = checkpoint.files.iter().position(|name| name == SUMS) {
            checkpoint.files.remove(at);
            let path = folder.join(SUMS);
            let text = read_small(&checkpoint.open_file(SUMS)?, &path, INDEX_MAX)?;
            let found: Sums = serde_json::from_slice(&text)
                .map_err(|error| damaged(version, format!("{}: {error}", path.display())))?;
            let lacks = checkpoint
                .tensors
                .keys()
                .find(|name| !found.tensors.contains_key(*name));
            if let Some(name) = lacks {
                return Err(damaged(version, format!("{SUMS} lacks tensor `{name}`")));
            }
            sums = Some(found);
        }
        Ok(Self {
            version,
            checkpoint,
            sums,
        })
    }
}

impl Delta {
    fn open(folder: &Path, version: u64) -> Result<Self> {
        let index = index_of(folder, Links::Refused)?.unwrap_or_default();
        let index: DeltaIndex = serde_json::from_slice(&index)
            .map_err(|error| damaged(version, format!("its index: {error}")))?;
        let notes = index.metadata;
        let number = |text: &str| text.parse::<u64>().ok();
        let base = number(&notes.base_version).filter(|base| *base < version);
        let Some(base) = base.filter(|_| number(&notes.version) == Some(version)) else {
            let why = format!(
                "its index says version `{}` after `{}`",
                notes.version, notes.base_version
            );
            return Err(damaged(version, why));
        };
        if notes.compression_format != ZSTD {
            let why = format!(
                "it is compressed with `{}`, not {ZSTD}",
                notes.compression_format
            );
            return Err(damaged(version, why));
        }
        let checkpoint = Checkpoint::open(folder, Links::Refused)?;
        for (name, file) in &index.weight_map {
            let place = checkpoint.tensors.get(name);
            if place.is_none_or(|place| checkpoint.shards[place.shard].name != *file) {
                return Err(damaged(version, format!("`{file}` lacks tensor `{name}`")));
            }
        }
        for name in checkpoint.tensors.keys() {
            if !index.weight_map.contains_key(name) || !checkpoint.notes.contains_key(name) {
                let why = format!("tensor `{name}` lacks its checksum, or is not in the index");
                return Err(damaged(version, why));
            }
        }
        Ok(Self {
            version,
            base,
            encoding: notes.delta_encoding,
            algorithm: notes.checksum_format,
            checkpoint,
        })
    }

    /// What a tensor becomes, if it changed.
    pub(crate) fn digest(&self, name: &str) -> Option<Digest> {
        let place = self.checkpoint.tensors.get(name)?;
        debug_assert!(place.shard < self.checkpoint.shards.len());
        Some(Digest {
            algorithm: self.algorithm,
            hex: self.checkpoint.notes.get(name)?.as_str().into(),
        })
    }
}
