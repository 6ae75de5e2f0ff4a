//! A member's sequences as they are stored: a batch of one member, and its digest.

use crate::assemble::{Sampled, Sequence};
use crate::batch::{BatchError, Member, Scored, VersionRange, bytes_of, encode};
use crate::layout::{Excluded, Layout, Meta, hash_sequence};
use sha2::{Digest, Sha256};

/// A member's sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// What it is trained on; versions are numbers, not indexes.
    pub sequences: Vec<Scored>,
    /// The kind of the log-probabilities, if its steps were captured.
    pub logprobs: Option<String>,
    /// Its steps that are not trained.
    pub excluded: Vec<Excluded>,
}

/// Ranges that more than one version may have sampled: sequence, first position, one past the last,
/// the newest version.
pub fn mixed(sequences: &[Scored]) -> Vec<[u64; 4]> {
    let sequences = (0..).zip(sequences);
    let ranges = sequences.flat_map(|(number, scored)| {
        let mixed = scored.versions.iter();
        mixed.filter_map(move |range| {
            let newest = range.newest?;
            Some([number, range.start as u64, range.end as u64, newest])
        })
    });
    ranges.collect()
}

/// Writes a sample.
///
/// # Errors
/// [`BatchError`] if a sequence contradicts itself.
pub fn store(sample: Sample) -> Result<Vec<u8>, BatchError> {
    let meta = Meta {
        logprobs: sample.logprobs,
        mixed: mixed(&sample.sequences),
        excluded: sample.excluded,
    };
    let member = Member {
        group: 0,
        sequences: sample.sequences,
        reward: None,
    };
    encode(&[member], &serde_json::to_string(&meta)?)
}

/// Reads what [`store`] wrote. Steps of ranges are not stored; they read as 0.
///
/// # Errors
/// [`BatchError`] if this is something else.
pub fn load(bytes: &[u8]) -> Result<Sample, BatchError> {
    let layout = Layout::of(bytes)?;
    let ids = numbers_of(&bytes[layout.ids.clone()], i32::from_le_bytes);
    let logprobs = numbers_of(&bytes[layout.logprobs.clone()], f32::from_le_bytes);
    let mut mixed = layout.meta.mixed.iter().peekable();
    let sequences = layout.parts().map(|part| {
        let versions = part.versions.iter().map(|row| {
            let own = row.map(|value| value as u64);
            let mixed = mixed.next_if(|mixed| mixed[..3] == own[..3]);
            VersionRange {
                start: row[1],
                end: row[2],
                version: row[3],
                newest: mixed.map(|mixed| mixed[3]),
            }
        });
        let versions = versions.collect();
        let sampled = part.sampled.iter().map(|row| range(row[1], row[2]));
        Scored {
            sequence: Sequence {
                ids: ids[part.ids].to_vec(),
                sampled: sampled.collect(),
            },
            logprobs: logprobs[part.logprobs].to_vec(),
            versions,
        }
    });
    Ok(Sample {
        sequences: sequences.collect(),
        logprobs: layout.meta.logprobs.clone(),
        excluded: layout.meta.excluded.clone(),
    })
}

fn numbers_of<T>(bytes: &[u8], from_bytes: impl Fn([u8; 4]) -> T) -> Vec<T> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| from_bytes(*word)).collect()
}

fn range(start: usize, end: usize) -> Sampled {
    Sampled {
        step: 0,
        start,
        end,
    }
}

/// SHA-256 of a member's sequences, which anyone can compute from a batch: docs/training.md says of
/// which bytes.
pub fn digest(sequences: &[Scored]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for scored in sequences {
        let Sequence { ids, sampled } = &scored.sequence;
        let versions = scored.versions.iter();
        hash_sequence(
            &mut hash,
            &bytes_of(ids, i32::to_le_bytes),
            &bytes_of(&scored.logprobs, f32::to_le_bytes),
            sampled.iter().map(|range| [range.start, range.end]),
            versions.map(|range| [range.start, range.end, range.version]),
        );
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences() -> Vec<Scored> {
        let scored = |ids: &[i32], ranges: &[(usize, usize)]| Scored {
            sequence: Sequence {
                ids: ids.to_vec(),
                sampled: ranges
                    .iter()
                    .map(|(start, end)| range(*start, *end))
                    .collect(),
            },
            logprobs: vec![-0.5; ranges.iter().map(|(start, end)| end - start).sum()],
            versions: vec![VersionRange {
                start: 1,
                end: 2,
                version: 7,
                newest: None,
            }],
        };
        vec![
            scored(&[5, 6, 7, 8], &[(1, 2), (3, 4)]),
            scored(&[5, 9], &[(1, 2)]),
        ]
    }

    #[test]
    fn sequences_come_back_as_they_were() {
        let mut sample = Sample {
            sequences: sequences(),
            logprobs: None,
            excluded: Vec::new(),
        };
        let plain = store(sample.clone()).expect("they are whole");
        assert_eq!(load(&plain).expect("it is a sample"), sample);
        sample.logprobs = Some("raw".to_owned());
        sample.excluded.push(Excluded {
            step: 3,
            reason: "another model produced it".to_owned(),
        });
        sample.sequences[1].versions[0].newest = Some(9);
        let bytes = store(sample.clone()).expect("they are whole");
        assert_eq!(load(&bytes).expect("it is a sample"), sample);
        assert!(load(&bytes[..bytes.len() - 1]).is_err());
        assert!(load(b"").is_err());
    }

    #[test]
    fn every_part_counts_in_the_digest() {
        let whole = digest(&sequences());
        let changes: [fn(&mut Scored); 4] = [
            |scored| scored.sequence.ids[0] = 1,
            |scored| scored.sequence.sampled[0].start = 0,
            |scored| scored.logprobs[0] = -0.25,
            |scored| scored.versions[0].version = 8,
        ];
        for change in changes {
            let mut other = sequences();
            change(&mut other[1]);
            assert_ne!(digest(&other), whole);
        }
        assert_eq!(digest(&sequences()), whole);
    }
}
