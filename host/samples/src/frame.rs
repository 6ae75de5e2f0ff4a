//! A batch put together from stored samples. The bytes of their tokens go into it as they are;
//! a [`Frame`] makes what comes before and after them.

use crate::batch::{BatchError, integers};
use crate::layout::{Layout, TOKEN_BYTES};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeSet;

/// The tables of a batch, filled member by member.
#[derive(Debug, Default)]
pub struct Frame {
    starts: Vec<u8>,
    owner: Vec<u8>,
    sampled: Vec<u8>,
    reward: Vec<u8>,
    /// Sequence, first position, one past the last, number of the version.
    spans: Vec<[usize; 4]>,
    sequences: usize,
    members: usize,
    tokens: usize,
    trained: usize,
}

/// The bytes of a batch but those of its tokens. Between `head` and `tail` come the
/// log-probabilities of all its samples, in the order of its members, and then their ids.
#[derive(Clone, Debug)]
pub struct Ends {
    /// What comes before the tokens.
    pub head: Vec<u8>,
    /// What comes after them: `meta`.
    pub tail: Vec<u8>,
    /// Size of the whole batch in bytes.
    pub size_bytes: usize,
}

impl Frame {
    /// Adds the next member, with its sample if it has one.
    pub fn push(&mut self, group: usize, reward: Option<f64>, sample: Option<&Layout>) {
        if let Some(sample) = sample {
            self.push_sample(group, sample);
        }
        let reward = reward.unwrap_or(f64::NAN);
        self.reward.extend(reward.to_le_bytes());
        self.members += 1;
    }

    fn push_sample(&mut self, group: usize, sample: &Layout) {
        let first = self.sequences;
        for (number, part) in sample.parts().enumerate() {
            integers(&mut self.starts, [self.tokens + part.ids.start]);
            integers(&mut self.owner, [group, self.members, number]);
            self.sequences += 1;
        }
        for [sequence, start, end] in &sample.sampled {
            integers(&mut self.sampled, [first + sequence, *start, *end]);
        }
        let spans = sample.versions.iter();
        self.spans.extend(spans.map(|row| {
            let [sequence, start, end, version] = *row;
            [first + sequence, start, end, version]
        }));
        self.tokens += sample.ids.len() / TOKEN_BYTES;
        self.trained += sample.logprobs.len() / TOKEN_BYTES;
    }

    /// The versions of all tokens, ascending: the batch names them by their index.
    pub fn versions(&self) -> Vec<usize> {
        let versions: BTreeSet<usize> = self.spans.iter().map(|row| row[3]).collect();
        versions.into_iter().collect()
    }

    /// Writes the tables; `meta` is JSON whose keys are in a fixed order.
    ///
    /// # Errors
    /// [`BatchError`] if the header can't be written.
    pub fn close(self, meta: String) -> Result<Ends, BatchError> {
        let versions = self.versions();
        let mut spans = Vec::with_capacity(self.spans.len() * 4 * size_of::<u64>());
        for [sequence, start, end, version] in &self.spans {
            let index = versions.binary_search(version).unwrap_or_default();
            integers(&mut spans, [*sequence, *start, *end, index]);
        }
        let mut starts = self.starts;
        integers(&mut starts, [self.tokens]);
        // In the order of `safetensors::serialize`: by alignment, then by name.
        let tensors = [
            ("owner", Dtype::I64, vec![self.sequences, 3]),
            ("sampled", Dtype::I64, vec![self.sampled.len() / 24, 3]),
            ("sequence_start", Dtype::I64, vec![self.sequences + 1]),
            ("versions", Dtype::I64, vec![self.spans.len(), 4]),
            ("reward", Dtype::F64, vec![self.members]),
            ("logprobs", Dtype::F32, vec![self.trained]),
            ("ids", Dtype::I32, vec![self.tokens]),
            ("meta", Dtype::U8, vec![meta.len()]),
        ];
        let (header, tensors_bytes) = header_of(tensors.into())?;
        let mut head = (header.len() as u64).to_le_bytes().to_vec();
        let size_bytes = head.len() + header.len() + tensors_bytes;
        for bytes in [header, self.owner, self.sampled, starts, spans, self.reward] {
            head.extend_from_slice(&bytes);
        }
        Ok(Ends {
            head,
            tail: meta.into_bytes(),
            size_bytes,
        })
    }
}

/// The header of a safetensors file with these tensors, padded, and their size in bytes.
fn header_of(
    tensors: Vec<(&'static str, Dtype, Vec<usize>)>,
) -> Result<(Vec<u8>, usize), BatchError> {
    let mut end = 0;
    let places = tensors.into_iter().map(|(name, dtype, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets: (start, end),
        };
        (name.to_owned(), info)
    });
    let places = places.collect();
    let mut header = serde_json::to_vec(&Metadata::new(None, places)?)?;
    header.resize(header.len().next_multiple_of(size_of::<u64>()), b' ');
    Ok((header, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::{Sampled, Sequence};
    use crate::batch::{Member, Scored, VersionRange, encode};
    use crate::stored::{Sample, digest, load, mixed, store};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A range: the gap before it, its length, its version, and whether that is mixed.
    type Row = (usize, usize, usize, bool);

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        vec((0..3_usize, 0..4_usize, 0..5_usize, any::<bool>()), 0..4)
    }

    fn placed(rows: &[Row]) -> (Vec<VersionRange>, usize) {
        let mut last = 0;
        let ranges = rows.iter().map(|(gap, length, version, is_mixed)| {
            let start = last + gap;
            last = start + length;
            VersionRange {
                start,
                end: last,
                version: *version,
                newest: is_mixed.then_some(9),
            }
        });
        (ranges.collect(), last)
    }

    /// A sequence whose tokens and log-probabilities are any bits.
    fn scored() -> impl Strategy<Value = Scored> {
        let parts = (rows(), rows(), 0..3_usize, any::<u32>());
        parts.prop_map(|(ranges, versions, rest, seed)| {
            let (ranges, ranges_end) = placed(&ranges);
            let (versions, versions_end) = placed(&versions);
            let tokens = ranges_end.max(versions_end) + rest;
            let bits = |n: usize| seed.wrapping_mul(n as u32 + 1).rotate_left(7);
            let trained: usize = ranges.iter().map(|range| range.end - range.start).sum();
            let sampled = ranges.iter().map(|range| Sampled {
                step: 0,
                start: range.start,
                end: range.end,
            });
            Scored {
                sequence: Sequence {
                    ids: (0..tokens).map(|n| bits(n).cast_signed()).collect(),
                    sampled: sampled.collect(),
                },
                logprobs: (0..trained).map(|n| f32::from_bits(!bits(n))).collect(),
                versions,
            }
        })
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let member = (0..3_usize, proptest::option::of(any::<f64>()));
        let member = (member, vec(scored(), 0..4));
        let member = member.prop_map(|((group, reward), sequences)| Member {
            group,
            sequences,
            reward,
        });
        vec(member, 0..5)
    }

    fn stored(member: &Member) -> Vec<u8> {
        let sample = Sample {
            sequences: member.sequences.clone(),
            ..Sample::default()
        };
        store(sample).expect("it is whole")
    }

    /// A batch from stored samples, as the daemon sends it. Samples of no sequences may be left out.
    fn put_together(members: &[(Member, Option<Vec<u8>>)], meta: &str) -> (Vec<u8>, Vec<usize>) {
        let mut frame = Frame::default();
        let (mut logprobs, mut ids) = (Vec::new(), Vec::new());
        for (member, bytes) in members {
            let layout = bytes.as_deref().map(|bytes| Layout::of(bytes).unwrap());
            frame.push(member.group, member.reward, layout.as_ref());
            if let (Some(layout), Some(bytes)) = (layout, bytes) {
                logprobs.extend_from_slice(&bytes[layout.logprobs]);
                ids.extend_from_slice(&bytes[layout.ids]);
            }
        }
        let versions = frame.versions();
        let ends = frame.close(meta.to_owned()).expect("a header");
        let bytes = [ends.head, logprobs, ids, ends.tail].concat();
        assert_eq!(bytes.len(), ends.size_bytes, "it is known before");
        (bytes, versions)
    }

    /// What is encoded from decoded sequences, all in memory.
    fn encoded(mut members: Vec<Member>, versions: &[usize], meta: &str) -> Vec<u8> {
        let sequences = members.iter_mut().flat_map(|member| &mut member.sequences);
        for span in sequences.flat_map(|scored| &mut scored.versions) {
            span.version = versions.binary_search(&span.version).expect("it is listed");
        }
        encode(&members, meta).expect("it is whole")
    }

    proptest! {
        #[test]
        fn stored_samples_make_the_bytes_that_their_sequences_make(members in members()) {
            let with_samples: Vec<(Member, Option<Vec<u8>>)> = members
                .iter()
                .map(|member| {
                    let has_one = member.group > 0 || !member.sequences.is_empty();
                    (member.clone(), has_one.then(|| stored(member)))
                })
                .collect();
            let meta = r#"{"job":"math"}"#;
            let (bytes, versions) = put_together(&with_samples, meta);
            prop_assert_eq!(bytes, encoded(members, &versions, meta));
            for (member, bytes) in &with_samples {
                let Some(bytes) = bytes else { continue };
                let layout = Layout::of(bytes).expect("a sample");
                prop_assert_eq!(layout.digest(bytes), digest(&member.sequences));
                let loaded = load(bytes).expect("a sample").sequences;
                prop_assert_eq!(layout.digest(bytes), digest(&loaded));
                prop_assert_eq!(&layout.meta.mixed, &mixed(&member.sequences));
                prop_assert_eq!(&layout.meta.mixed, &mixed(&loaded));
            }
        }
    }

    proptest! {
        // Each case damages each byte.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_is_damaged_is_refused_or_makes_the_same_bytes(
            member in members().prop_map(|mut all| all.pop().unwrap_or_default()),
            bit in 0..8_u32,
        ) {
            let bytes = stored(&member);
            let recorded = digest(&member.sequences);
            let (whole, _) = put_together(&[(member.clone(), Some(bytes.clone()))], "{}");
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let layout = Layout::of(&damaged);
                if layout.is_ok_and(|layout| layout.digest(&damaged) == recorded) {
                    let (batch, _) = put_together(&[(member.clone(), Some(damaged))], "{}");
                    prop_assert_eq!((at, batch), (at, whole.clone()));
                }
            }
        }
    }
}
