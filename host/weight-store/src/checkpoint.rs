//! A checkpoint as Hugging Face writes it: safetensors files, an index, and other files.

use crate::checksum::{Algorithm, Digest, Hasher};
use crate::error::{At, Result, not_whole};
use crate::files::{PIECE, names_in, open, open_through_links, read_small};
use safetensors::tensor::Metadata;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The index of a checkpoint, and of a delta.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// Largest header of a safetensors file, which is that library's own bound.
const HEADER_MAX: u64 = 100_000_000;
/// Bytes of the headers of all files of a checkpoint, which are kept in memory.
const HEADERS_MAX: u64 = 256 << 20;
/// Largest index.
pub(crate) const INDEX_MAX: u64 = 256 << 20;
/// Most files of a checkpoint.
pub(crate) const FILES_MAX: usize = 20_000;
/// Most tensors of a checkpoint.
const TENSORS_MAX: usize = 1 << 21;
/// Longest name of a tensor.
const NAME_MAX: usize = 1_024;

/// Where a tensor's bytes are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    /// The number of its file.
    pub(crate) shard: usize,
    /// Where it begins in the file.
    pub(crate) at: u64,
    /// Its bytes.
    pub(crate) bytes: u64,
}

/// A safetensors file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Shard {
    pub(crate) name: String,
    /// The header with its length, as it is in the file.
    pub(crate) header: Vec<u8>,
    /// Bytes of the whole file.
    pub(crate) bytes: u64,
}

/// A checkpoint, by its headers.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) folder: PathBuf,
    pub(crate) shards: Vec<Shard>,
    pub(crate) tensors: BTreeMap<String, Place>,
    /// Notes in the headers.
    pub(crate) notes: BTreeMap<String, String>,
    /// All other files.
    pub(crate) files: Vec<String>,
    /// Bytes of all headers.
    pub(crate) header_bytes: u64,
    /// Whose folder it is.
    links: Links,
}

/// Whether links are followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Links {
    /// In a folder that the caller named, such as one of the cache of Hugging Face.
    Followed,
    /// In the store and in local copies.
    Refused,
}

#[derive(Default, Deserialize)]
struct WeightMap {
    #[serde(default)]
    weight_map: BTreeMap<String, String>,
}

/// Whether a name is that of a file right in a folder, and no hidden one.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with('.')
        && !name.contains(|c: char| c == '/' || c == '\\' || c.is_control())
}

impl Links {
    pub(crate) fn open(self, path: &Path) -> Result<File> {
        match self {
            Self::Followed => open_through_links(path),
            Self::Refused => open(path),
        }
    }
}

impl Checkpoint {
    /// Reads the headers of a checkpoint, and checks that they fit together.
    pub(crate) fn open(folder: &Path, links: Links) -> Result<Self> {
        let mut found = Self {
            folder: folder.to_owned(),
            shards: Vec::new(),
            tensors: BTreeMap::new(),
            notes: BTreeMap::new(),
            files: Vec::new(),
            header_bytes: 0,
            links,
        };
        let named = found.named_shards()?;
        for name in names_in(folder, FILES_MAX)? {
            let path = folder.join(&name);
            let is_file = match links {
                Links::Followed => path.is_file(),
                Links::Refused => path.symlink_metadata().at(&path)?.is_file(),
            };
            if !is_plain(&name) || !is_file {
                continue;
            }
            let is_shard = match &named {
                Some(named) => named.contains(&name),
                None => name.ends_with(".safetensors"),
            };
            if is_shard {
                found.add_shard(name)?;
            } else {
                found.files.push(name);
            }
        }
        if let Some(lost) = named.iter().flatten().find(|name| !found.has_shard(name)) {
            return Err(not_whole(
                folder,
                format!("its index names `{lost}`, which is not there"),
            ));
        }
        if found.shards.is_empty() && named.is_none() {
            return Err(not_whole(folder, "it has no .safetensors file"));
        }
        Ok(found)
    }

    fn has_shard(&self, name: &str) -> bool {
        self.shards.iter().any(|shard| shard.name == *name)
    }

    /// Files that the index names, if there is one.
    fn named_shards(&self) -> Result<Option<BTreeSet<String>>> {
        let path = self.folder.join(INDEX);
        if !path.exists() {
            return Ok(None);
        }
        let index = read_small(&self.links.open(&path)?, &path, INDEX_MAX)?;
        let index: WeightMap =
            serde_json::from_slice(&index).map_err(|error| not_whole(&path, error.to_string()))?;
        let named: BTreeSet<String> = index.weight_map.into_values().collect();
        if let Some(name) = named
            .iter()
            .find(|name| !is_plain(name) || !name.ends_with(".safetensors"))
        {
            let shown: String = name
                .chars()
                .take(80)
                .flat_map(char::escape_default)
                .collect();
            let why = format!("`{shown}` is no name of a .safetensors file in its folder");
            return Err(not_whole(&path, why));
        }
        Ok(Some(named))
    }

    fn add_shard(&mut self, name: String) -> Result<()> {
        let path = self.folder.join(&name);
        let file = self.links.open(&path)?;
        let bytes = file.metadata().at(&path)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).at(&path)?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_MAX || 8 + length > bytes {
            return Err(not_whole(&path, "its header is too long"));
        }
        let begin = 8 + length;
        self.header_bytes += begin;
        if self.header_bytes > HEADERS_MAX {
            let why = format!("the headers of its files have more than {HEADERS_MAX} bytes");
            return Err(not_whole(&self.folder, why));
        }
        let mut header = vec![0; begin as usize];
        file.read_exact_at(&mut header, 0).at(&path)?;
        let found: Metadata = serde_json::from_slice(&header[8..])
            .map_err(|error| not_whole(&path, format!("its header: {error}")))?;
        if begin + found.data_len() as u64 != bytes {
            let why = format!("it has {bytes} bytes, but its header says otherwise");
            return Err(not_whole(&path, why));
        }
        let shard = self.shards.len();
        for (name, tensor) in found.tensors() {
            let (from, to) = tensor.data_offsets;
            let place = Place {
                shard,
                at: begin + from as u64,
                bytes: (to - from) as u64,
            };
            if name.len() > NAME_MAX || self.tensors.len() >= TENSORS_MAX {
                let why =
                    format!("more than {TENSORS_MAX} tensors, or a name of over {NAME_MAX} bytes");
                return Err(not_whole(&path, why));
            }
            if self.tensors.insert(name.clone(), place).is_some() {
                return Err(not_whole(&path, format!("tensor `{name}` is in two files")));
            }
        }
        for (key, note) in found.metadata().iter().flatten() {
            self.notes.insert(key.clone(), note.clone());
        }
        self.shards.push(Shard {
            name,
            header,
            bytes,
        });
        Ok(())
    }

    /// Whether files and tensors are laid out the same.
    pub(crate) fn is_laid_out_as(&self, other: &Self) -> bool {
        self.shards == other.shards
    }

    /// Opens one of its files.
    pub(crate) fn open_file(&self, name: &str) -> Result<File> {
        self.links.open(&self.folder.join(name))
    }

    /// Opens the file of a tensor.
    pub(crate) fn open_shard(&self, place: &Place) -> Result<File> {
        self.open_file(&self.shards[place.shard].name)
    }

    /// The path of the file of a tensor.
    pub(crate) fn path_of(&self, place: &Place) -> PathBuf {
        self.folder.join(&self.shards[place.shard].name)
    }

    /// The checksums of a tensor as it is in the file.
    pub(crate) fn digests(&self, place: &Place, algorithms: &[Algorithm]) -> Result<Vec<Digest>> {
        let file = self.open_shard(place)?;
        let mut hashers: Vec<Hasher> = algorithms.iter().map(|a| Hasher::new(*a)).collect();
        let mut piece = vec![0; PIECE.min(place.bytes as usize)];
        let mut done = 0;
        while done < place.bytes {
            let length = piece.len().min((place.bytes - done) as usize);
            let piece = &mut piece[..length];
            file.read_exact_at(piece, place.at + done)
                .at(&self.path_of(place))?;
            for hasher in &mut hashers {
                hasher.update(piece);
            }
            done += length as u64;
        }
        Ok(hashers.into_iter().map(Hasher::finish).collect())
    }

    /// Its tensors, the largest ones first, so that threads end at about the same time.
    pub(crate) fn largest_first(&self) -> Vec<(&String, &Place)> {
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        tensors.sort_by_key(|(_, place)| std::cmp::Reverse(place.bytes));
        tensors
    }
}
