//! A batch as trainers read it: one safetensors file, the same bytes each time.
//!
//! | tensor | type | shape | what it has |
//! |---|---|---|---|
//! | `ids` | I32 | `[tokens]` | tokens of all sequences, one after the other |
//! | `sequence_start` | I64 | `[sequences + 1]` | where each sequence begins in `ids`; the last is the number of tokens |
//! | `sampled` | I64 | `[ranges, 3]` | sequence, first position in it, one past the last: the tokens to train |
//! | `logprobs` | F32 | `[sampled tokens]` | log-probabilities of the tokens of all ranges, one range after the other |
//! | `versions` | I64 | `[spans, 4]` | sequence, first position, one past the last, index of the weight version in `meta.versions` |
//! | `owner` | I64 | `[sequences, 3]` | index of the group and of the member in `meta`, number of the sequence within the member |
//! | `reward` | F64 | `[members]` | reward of each member; NaN if it has none |
//! | `meta` | U8 | `[bytes]` | JSON: names, versions, kinds and digests |
//!
//! Samples are stored in this form, each as a batch of one member;
//! [`Frame`](crate::Frame) puts a batch together from them. Padding and masks are left to
//! the trainer: `sampled` is the mask.

use crate::assemble::Sequence;
use safetensors::tensor::{Dtype, SafeTensorError, TensorView};
use thiserror::Error;

/// The sequences of one member of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    /// Index of its group.
    pub(crate) group: usize,
    /// What it is trained on.
    pub(crate) sequences: Vec<Scored>,
    /// Its reward, if it has one.
    pub(crate) reward: Option<f64>,
}

/// A sequence with what its engine said of the sampled tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// Tokens and ranges.
    pub sequence: Sequence,
    /// Log-probabilities of the tokens of all ranges.
    pub logprobs: Vec<f32>,
    /// Ranges of positions by the index of their weight version.
    pub versions: Vec<VersionRange>,
}

/// Positions of a sequence that the same weights sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VersionRange {
    /// First position.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Index of the version in `meta`; of a stored sample, its number.
    pub version: usize,
    /// Number of the newest version that may have sampled a token of it, if it was not one for all.
    pub newest: Option<u64>,
}

/// Why a batch can't be written.
#[derive(Debug, Error)]
pub enum BatchError {
    /// The ranges of a sequence have another number of tokens than it has log-probabilities.
    #[error("{logprobs} log-probabilities for {tokens} sampled tokens of a sequence")]
    Logprobs {
        /// Number of log-probabilities.
        logprobs: usize,
        /// Number of sampled tokens.
        tokens: usize,
    },
    /// A range ends before it begins, overlaps the one before it, or leaves its sequence.
    #[error("the range {start} to {end} is not in order within a sequence of {tokens} tokens")]
    Range {
        /// Its first position.
        start: usize,
        /// One past its last.
        end: usize,
        /// Length of the sequence.
        tokens: usize,
    },
    /// The tables of a sample do not match each other, or do not cover its tokens.
    #[error("its tables do not match its sequences")]
    Tables,
    /// The file is not one of these.
    #[error("this can't be written or read as safetensors: {0}")]
    Format(#[from] SafeTensorError),
    /// What it says of its tensors can't be read.
    #[error("this can't be written or read as a sample: {0}")]
    Meta(#[from] serde_json::Error),
}

/// Writes a batch from decoded sequences, in memory; a stored sample is one of one member. `meta`
/// is JSON whose keys are in a fixed order.
///
/// # Errors
/// [`BatchError`] if a sequence contradicts itself.
pub(crate) fn encode(members: &[Member], meta: &str) -> Result<Vec<u8>, BatchError> {
    for scored in members.iter().flat_map(|member| &member.sequences) {
        scored.check()?;
    }
    Ok(Columns::of(members).encode(meta)?)
}

impl Scored {
    fn check(&self) -> Result<(), BatchError> {
        let sampled = self.sequence.sampled.iter().map(|r| (r.start, r.end));
        let versions = self.versions.iter().map(|r| (r.start, r.end));
        let length = self.sequence.ids.len();
        in_order(length, sampled.clone())?;
        in_order(length, versions)?;
        let tokens = sampled.map(|(start, end)| end - start).sum();
        let logprobs = self.logprobs.len();
        if logprobs == tokens {
            return Ok(());
        }
        Err(BatchError::Logprobs { logprobs, tokens })
    }
}

/// Checks that ranges, each as its start and its end, follow each other within a sequence.
pub(crate) fn in_order(
    tokens: usize,
    ranges: impl Iterator<Item = (usize, usize)>,
) -> Result<(), BatchError> {
    let mut last = 0;
    for (start, end) in ranges {
        if start < last || end < start || end > tokens {
            return Err(BatchError::Range { start, end, tokens });
        }
        last = end;
    }
    Ok(())
}

/// The tensors, in little-endian bytes.
#[derive(Default)]
struct Columns {
    ids: Vec<u8>,
    starts: Vec<u8>,
    sampled: Vec<u8>,
    logprobs: Vec<u8>,
    versions: Vec<u8>,
    owner: Vec<u8>,
    reward: Vec<u8>,
}

impl Columns {
    fn of(members: &[Member]) -> Self {
        let mut columns = Self::default();
        let mut tokens = 0;
        let mut sequences = 0;
        for (index, member) in members.iter().enumerate() {
            for (number, scored) in member.sequences.iter().enumerate() {
                integers(&mut columns.starts, [tokens]);
                integers(&mut columns.owner, [member.group, index, number]);
                columns.push(scored, sequences);
                tokens += scored.sequence.ids.len();
                sequences += 1;
            }
            let reward = member.reward.unwrap_or(f64::NAN);
            columns.reward.extend(reward.to_le_bytes());
        }
        integers(&mut columns.starts, [tokens]);
        columns
    }

    fn push(&mut self, scored: &Scored, number: usize) {
        let sequence = &scored.sequence;
        self.ids.extend(bytes_of(&sequence.ids, i32::to_le_bytes));
        for range in &sequence.sampled {
            integers(&mut self.sampled, [number, range.start, range.end]);
        }
        self.logprobs
            .extend(bytes_of(&scored.logprobs, f32::to_le_bytes));
        for range in &scored.versions {
            let row = [number, range.start, range.end, range.version];
            integers(&mut self.versions, row);
        }
    }

    fn encode(&self, meta: &str) -> Result<Vec<u8>, SafeTensorError> {
        let rows = |bytes: &[u8], width: usize| vec![bytes.len() / (width * 8), width];
        let tensors = [
            ("ids", Dtype::I32, vec![self.ids.len() / 4], &self.ids[..]),
            (
                "logprobs",
                Dtype::F32,
                vec![self.logprobs.len() / 4],
                &self.logprobs,
            ),
            ("meta", Dtype::U8, vec![meta.len()], meta.as_bytes()),
            ("owner", Dtype::I64, rows(&self.owner, 3), &self.owner),
            (
                "reward",
                Dtype::F64,
                vec![self.reward.len() / 8],
                &self.reward,
            ),
            ("sampled", Dtype::I64, rows(&self.sampled, 3), &self.sampled),
            (
                "sequence_start",
                Dtype::I64,
                vec![self.starts.len() / 8],
                &self.starts,
            ),
            (
                "versions",
                Dtype::I64,
                rows(&self.versions, 4),
                &self.versions,
            ),
        ];
        let mut views = Vec::with_capacity(tensors.len());
        for (name, dtype, shape, bytes) in tensors {
            views.push((name, TensorView::new(dtype, shape, bytes)?));
        }
        safetensors::tensor::serialize(views, None)
    }
}

/// Numbers in their bytes: as fast as a copy, which an iterator over the bytes is not.
pub(crate) fn bytes_of<T: Copy>(numbers: &[T], to_bytes: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * 4];
    for (bytes, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = to_bytes(*number);
    }
    bytes
}

/// Adds numbers in their bytes.
pub(crate) fn integers<const N: usize>(bytes: &mut Vec<u8>, values: [usize; N]) {
    bytes.extend(values.into_iter().flat_map(|v| (v as u64).to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::Sampled;

    fn member() -> Member {
        let sampled = vec![Sampled {
            step: 1,
            start: 2,
            end: 4,
        }];
        let ids = vec![5, 6, 7, 8];
        Member {
            group: 0,
            sequences: vec![Scored {
                sequence: Sequence { ids, sampled },
                logprobs: vec![-0.5, -0.25],
                versions: vec![],
            }],
            reward: None,
        }
    }

    #[test]
    fn a_batch_is_the_same_bytes_each_time_and_can_be_read() {
        let members = [member(), member()];
        let bytes = encode(&members, "{}").expect("it is whole");
        assert_eq!(bytes, encode(&members, "{}").expect("it is whole"));
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("it can be read");
        let tensor = |name: &str| file.tensor(name).expect("it is there");
        assert_eq!(tensor("ids").shape(), [8]);
        assert_eq!(tensor("sampled").shape(), [2, 3]);
        assert_eq!(tensor("sequence_start").data()[8], 4);
        assert_eq!(tensor("logprobs").data()[..4], (-0.5_f32).to_le_bytes());
        assert_eq!(tensor("reward").data()[..8], f64::NAN.to_le_bytes());
        assert_eq!(tensor("meta").data(), b"{}");
    }

    #[test]
    fn a_batch_that_contradicts_itself_is_refused() {
        let mut short = member();
        short.sequences[0].logprobs.pop();
        assert!(matches!(
            encode(&[short], "{}"),
            Err(BatchError::Logprobs { .. })
        ));
        let mut beyond = member();
        beyond.sequences[0].sequence.sampled[0].end = 5;
        assert!(matches!(
            encode(&[beyond], "{}"),
            Err(BatchError::Range { .. })
        ));
    }
}
