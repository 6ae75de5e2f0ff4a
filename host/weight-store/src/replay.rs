//! The bytes of a tensor at a version: those of an earlier one, with each later change applied.

use crate::checkpoint::{Checkpoint, Place};
use crate::checksum::{Digest, Hasher};
use crate::delta::Stage;
use crate::error::{At, Result};
use crate::files::{PIECE, Part};
use crate::version::{Delta, Full};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A whole version, and the deltas after it up to the one that is wanted.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) full: Full,
    pub(crate) deltas: Vec<Delta>,
}

/// How a tensor came to be.
pub(crate) struct Past<'c> {
    /// Where it is in the whole version.
    pub(crate) place: &'c Place,
    /// Its checksum there, unless nobody computed it.
    pub(crate) first: Option<Digest>,
    /// Deltas that change it, with its checksum after each.
    pub(crate) changes: Vec<(&'c Delta, Digest)>,
}

/// How an attempt to make a tensor ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Made {
    /// It is what it should be. How many bytes were read from the store for it.
    Right(u64),
    /// It is not. The first version at which it was wrong, and why.
    Wrong(u64, String),
}

impl Chain {
    /// The version at its end.
    pub(crate) fn version(&self) -> u64 {
        self.deltas
            .last()
            .map_or(self.full.version, |delta| delta.version)
    }

    /// How a tensor came to be.
    pub(crate) fn past<'c>(&'c self, name: &str, place: &'c Place) -> Past<'c> {
        let changes = self.deltas.iter();
        Past {
            place,
            first: self.full.sums.as_ref().and_then(|sums| sums.tensor(name)),
            changes: changes
                .filter_map(|delta| Some((delta, delta.digest(name)?)))
                .collect(),
        }
    }

    /// Makes a tensor out of what a folder has of it after `known` of its changes, and gives it to
    /// `sink` piece by piece.
    pub(crate) fn make(
        &self,
        name: &str,
        past: &Past<'_>,
        from: &Checkpoint,
        known: usize,
        sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Made> {
        let changes = &past.changes[known..];
        let files = changes.iter().map(|(delta, _)| {
            let place = &delta.checkpoint.tensors[name];
            Ok((delta.checkpoint.open_shard(place)?, place))
        });
        let files: Vec<(File, &Place)> = files.collect::<Result<_>>()?;
        let mut read = if std::ptr::eq(from, &raw const self.full.checkpoint) {
            past.place.bytes
        } else {
            0
        };
        let mut stages = Vec::with_capacity(files.len());
        for ((file, place), (delta, wanted)) in files.iter().zip(changes) {
            let packed = Part {
                file,
                at: place.at,
                left: place.bytes,
            };
            read += place.bytes;
            match Stage::begin(delta.encoding, packed, delta.version, wanted.clone()) {
                Ok(stage) => stages.push(stage),
                Err(error) => return Ok(Made::Wrong(delta.version, error.to_string())),
            }
        }
        // With changes, each proves what is before it; without, this does.
        let wanted = match known.checked_sub(1) {
            Some(last) => Some(&past.changes[last].1),
            None => past.first.as_ref(),
        };
        let source = Source {
            checkpoint: from,
            version: known
                .checked_sub(1)
                .map_or(self.full.version, |at| past.changes[at].0.version),
            wanted,
        };
        Ok(match run(&source, past.place, stages, sink)? {
            Some((version, why)) => Made::Wrong(version, why),
            None => Made::Right(read),
        })
    }
}

struct Source<'s> {
    checkpoint: &'s Checkpoint,
    version: u64,
    wanted: Option<&'s Digest>,
}

/// Passes a tensor's bytes through all changes. Returns the version that was wrong, if one was.
fn run(
    source: &Source<'_>,
    place: &Place,
    mut stages: Vec<Stage<'_>>,
    mut sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<Option<(u64, String)>> {
    let path = source.checkpoint.path_of(place);
    let file = source.checkpoint.open_shard(place)?;
    let mut hasher = source.wanted.map(|wanted| Hasher::new(wanted.algorithm));
    let mut piece = vec![0; PIECE.min(place.bytes as usize)];
    let mut done = 0;
    while done < place.bytes {
        let length = piece.len().min((place.bytes - done) as usize);
        let piece = &mut piece[..length];
        file.read_exact_at(piece, place.at + done).at(&path)?;
        if let Some(hasher) = &mut hasher {
            hasher.update(piece);
        }
        for stage in &mut stages {
            if let Err(error) = stage.apply(done, piece) {
                return Ok(Some((stage.version(), error.to_string())));
            }
        }
        sink(done, piece).at(&path)?;
        done += length as u64;
    }
    let differs = || "its checksum is another one".to_owned();
    if hasher.is_some_and(|hasher| Some(&hasher.finish()) != source.wanted) {
        return Ok(Some((source.version, differs())));
    }
    for stage in stages {
        let version = stage.version();
        match stage.ends_well() {
            Ok(true) => {}
            Ok(false) => return Ok(Some((version, differs()))),
            Err(error) => return Ok(Some((version, error.to_string()))),
        }
    }
    Ok(None)
}

impl Past<'_> {
    /// What the tensor is at the end, if its checksum is known.
    pub(crate) fn last(&self) -> Option<&Digest> {
        match self.changes.last() {
            Some((_, digest)) => Some(digest),
            None => self.first.as_ref(),
        }
    }
}
