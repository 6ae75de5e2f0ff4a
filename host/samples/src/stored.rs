//! A member's sequences as they are stored: a batch of one member, and its digest.

use crate::assemble::{Sampled, Sequence};
use crate::batch::{BatchError, Member, Scored, VersionRange, bytes_of, encode};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
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

/// A step whose tokens are not trained.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    /// Its number.
    pub step: u64,
    /// Why, in words.
    pub reason: String,
}

/// What is stored of a sample beside its tensors.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mixed: Vec<[u64; 4]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excluded: Vec<Excluded>,
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
    let file = SafeTensors::deserialize(bytes)?;
    let meta: Meta = serde_json::from_slice(file.tensor("meta")?.data())?;
    let numbers = |name: &str| -> Result<Vec<usize>, BatchError> {
        let words = file.tensor(name)?.data();
        Ok(words
            .as_chunks()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w) as usize)
            .collect())
    };
    let ids = file.tensor("ids")?.data();
    let ids: Vec<i32> = ids
        .as_chunks()
        .0
        .iter()
        .map(|w| i32::from_le_bytes(*w))
        .collect();
    let logprobs = file.tensor("logprobs")?.data();
    let logprobs = logprobs
        .as_chunks()
        .0
        .iter()
        .map(|w| f32::from_le_bytes(*w));
    let mut logprobs = logprobs.collect::<Vec<f32>>().into_iter();
    let starts = numbers("sequence_start")?;
    let (sampled, versions) = (numbers("sampled")?, numbers("versions")?);
    // Rows are in the order of the sequences.
    let (mut sampled, mut versions) = (sampled.as_chunks::<3>().0, versions.as_chunks::<4>().0);
    let mut mixed = meta.mixed.iter().peekable();
    let mut sequences = Vec::with_capacity(starts.len());
    for (number, bounds) in starts.windows(2).enumerate() {
        let [start, end] = [bounds[0], bounds[1]];
        let Some(ids) = ids.get(start..end) else {
            let tokens = ids.len();
            return Err(BatchError::Range { start, end, tokens });
        };
        let own = take_rows(&mut sampled, number).iter();
        let sampled: Vec<Sampled> = own.map(|row| range(row[1], row[2])).collect();
        let tokens: usize = sampled.iter().map(|r| r.end.saturating_sub(r.start)).sum();
        let versions = take_rows(&mut versions, number).iter().map(|row| {
            let own = row.map(|value| value as u64);
            let mixed = mixed.next_if(|mixed| mixed[..3] == own[..3]);
            VersionRange {
                start: row[1],
                end: row[2],
                version: row[3],
                newest: mixed.map(|mixed| mixed[3]),
            }
        });
        let ids = ids.to_vec();
        sequences.push(Scored {
            sequence: Sequence { ids, sampled },
            logprobs: logprobs.by_ref().take(tokens).collect(),
            versions: versions.collect(),
        });
    }
    Ok(Sample {
        sequences,
        logprobs: meta.logprobs,
        excluded: meta.excluded,
    })
}

/// Takes the rows of a sequence from the front.
fn take_rows<'r, const N: usize>(rows: &mut &'r [[usize; N]], sequence: usize) -> &'r [[usize; N]] {
    let count = rows.iter().take_while(|row| row[0] == sequence).count();
    let (own, rest) = rows.split_at(count);
    *rows = rest;
    own
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
    let number = |hash: &mut Sha256, value: usize| hash.update((value as u64).to_le_bytes());
    for scored in sequences {
        let Sequence { ids, sampled } = &scored.sequence;
        number(&mut hash, ids.len());
        hash.update(bytes_of(ids, i32::to_le_bytes));
        number(&mut hash, sampled.len());
        for range in sampled {
            number(&mut hash, range.start);
            number(&mut hash, range.end);
        }
        hash.update(bytes_of(&scored.logprobs, f32::to_le_bytes));
        number(&mut hash, scored.versions.len());
        for range in &scored.versions {
            number(&mut hash, range.start);
            number(&mut hash, range.end);
            number(&mut hash, range.version);
        }
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
