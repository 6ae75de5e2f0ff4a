//! A stored sample where it lies: its tables are read, its tokens stay the bytes that they are.

use crate::batch::{BatchError, in_order};
use safetensors::SafeTensors;
use safetensors::tensor::SafeTensorError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Bytes of an id, and of a log-probability.
pub(crate) const TOKEN_BYTES: usize = 4;

/// What is stored of a sample beside its tensors; it is not part of the digest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The kind of the log-probabilities, if its steps were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<String>,
    /// Ranges that more than one version may have sampled: see [`mixed`](crate::mixed).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixed: Vec<[u64; 4]>,
    /// Its steps that are not trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
}

/// A step whose tokens are not trained.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    /// Its number.
    pub step: u64,
    /// Why, in words.
    pub reason: String,
}

/// A stored sample: where its tokens lie in its bytes, and its tables, which match each other.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Where the ids of all its sequences are.
    pub ids: Range<usize>,
    /// Where the log-probabilities of all its sampled tokens are.
    pub logprobs: Range<usize>,
    /// What is said of it.
    pub meta: Meta,
    /// Where each sequence begins among its tokens, and their number.
    pub(crate) starts: Vec<usize>,
    /// Rows of the tensor `sampled`.
    pub(crate) sampled: Vec<[usize; 3]>,
    /// Rows of the tensor `versions`; the last column has numbers of versions.
    pub(crate) versions: Vec<[usize; 4]>,
}

/// A sequence of a stored sample.
pub(crate) struct Part<'l> {
    /// Its tokens among those of all sequences.
    pub(crate) ids: Range<usize>,
    /// Its log-probabilities among those of all sequences.
    pub(crate) logprobs: Range<usize>,
    /// Its rows of `sampled`.
    pub(crate) sampled: &'l [[usize; 3]],
    /// Its rows of `versions`.
    pub(crate) versions: &'l [[usize; 4]],
}

impl Layout {
    /// Of what [`store`](crate::store) wrote.
    ///
    /// # Errors
    /// [`BatchError`] if this is something else.
    pub fn of(bytes: &[u8]) -> Result<Self, BatchError> {
        let (header, tensors) = SafeTensors::read_metadata(bytes)?;
        let begin = header + size_of::<u64>();
        let place = |name: &str| {
            let info = tensors.info(name);
            let info = info.ok_or_else(|| SafeTensorError::TensorNotFound(name.to_owned()))?;
            let (start, end) = info.data_offsets;
            Ok::<_, BatchError>(begin + start..begin + end)
        };
        let layout = Self {
            ids: place("ids")?,
            logprobs: place("logprobs")?,
            meta: serde_json::from_slice(&bytes[place("meta")?])?,
            starts: rows::<1>(&bytes[place("sequence_start")?]).into_flattened(),
            sampled: rows(&bytes[place("sampled")?]),
            versions: rows(&bytes[place("versions")?]),
        };
        layout.check()?;
        Ok(layout)
    }

    /// The tables match each other, and each token belongs to a sequence.
    fn check(&self) -> Result<(), BatchError> {
        let tokens = self.starts.last().copied().unwrap_or_default();
        let is_ascending = self.starts.first() == Some(&0) && self.starts.is_sorted();
        if !is_ascending || self.ids.len() != tokens.saturating_mul(TOKEN_BYTES) {
            return Err(BatchError::Tables);
        }
        let (mut sampled, mut versions, mut trained) = (0, 0, 0);
        for part in self.parts() {
            let tokens = part.ids.len();
            in_order(tokens, part.sampled.iter().map(|row| (row[1], row[2])))?;
            in_order(tokens, part.versions.iter().map(|row| (row[1], row[2])))?;
            sampled += part.sampled.len();
            versions += part.versions.len();
            trained = part.logprobs.end;
        }
        if sampled != self.sampled.len() || versions != self.versions.len() {
            return Err(BatchError::Tables);
        }
        if self.logprobs.len() != trained * TOKEN_BYTES {
            return Err(BatchError::Logprobs {
                logprobs: self.logprobs.len() / TOKEN_BYTES,
                tokens: trained,
            });
        }
        Ok(())
    }

    /// Its sequences, in their order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (mut sampled, mut versions) = (&self.sampled[..], &self.versions[..]);
        let mut trained = 0_usize;
        let starts = self.starts.windows(2).enumerate();
        starts.map(move |(number, bounds)| {
            let own = take_rows(&mut sampled, number);
            let from = trained;
            let lengths = own.iter().map(|row| row[2].saturating_sub(row[1]));
            trained = lengths.fold(from, usize::saturating_add);
            Part {
                ids: bounds[0]..bounds[1],
                logprobs: from..trained,
                sampled: own,
                versions: take_rows(&mut versions, number),
            }
        })
    }

    /// SHA-256 of its sequences, as [`digest`](crate::digest) has it, from the bytes that it was
    /// read from.
    pub fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        let ids = within(bytes, self.ids.clone());
        let logprobs = within(bytes, self.logprobs.clone());
        let scaled = |range: Range<usize>| range.start * TOKEN_BYTES..range.end * TOKEN_BYTES;
        let mut hash = Sha256::new();
        for part in self.parts() {
            hash_sequence(
                &mut hash,
                within(ids, scaled(part.ids)),
                within(logprobs, scaled(part.logprobs)),
                part.sampled.iter().map(|row| [row[1], row[2]]),
                part.versions.iter().map(|row| [row[1], row[2], row[3]]),
            );
        }
        hash.finalize().into()
    }
}

fn within(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}

/// Adds the bytes of a sequence to a digest, in the order of docs/training.md.
pub(crate) fn hash_sequence(
    hash: &mut Sha256,
    ids: &[u8],
    logprobs: &[u8],
    ranges: impl ExactSizeIterator<Item = [usize; 2]>,
    versions: impl ExactSizeIterator<Item = [usize; 3]>,
) {
    number(hash, ids.len() / TOKEN_BYTES);
    hash.update(ids);
    number(hash, ranges.len());
    for value in ranges.flatten() {
        number(hash, value);
    }
    hash.update(logprobs);
    number(hash, versions.len());
    for value in versions.flatten() {
        number(hash, value);
    }
}

fn number(hash: &mut Sha256, value: usize) {
    hash.update((value as u64).to_le_bytes());
}

fn rows<const N: usize>(bytes: &[u8]) -> Vec<[usize; N]> {
    let words = bytes.as_chunks::<8>().0;
    let rows = words.as_chunks::<N>().0.iter();
    rows.map(|row| row.map(|word| u64::from_le_bytes(word) as usize))
        .collect()
}

/// Takes the rows of a sequence from the front.
fn take_rows<'r, const N: usize>(rows: &mut &'r [[usize; N]], sequence: usize) -> &'r [[usize; N]] {
    let count = rows.iter().take_while(|row| row[0] == sequence).count();
    let (own, rest) = rows.split_at(count);
    *rows = rest;
    own
}
