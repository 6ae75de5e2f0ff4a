//! The samples of a payload, read and checked a few at a time.

use crate::payloads::{damaged, digest_text, missing};
use crate::read_ahead::read_ahead;
use axum::body::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use treadle_samples::Layout;
use treadle_store::{Store, StoreError};

/// Bytes of samples that are read together; a longer one is read by itself. Smaller parts need more
/// statements, and of larger ones less is checked while others are read.
const PART_BYTES: u64 = 1 << 20;
/// Most samples of a part.
pub(crate) const PART_SAMPLES: usize = 128;
/// Parts that are read and checked at the same time, ahead of what is sent.
const PARTS_AHEAD: usize = 3;
/// How many times the bytes of a part are in memory while it is read: a database has a row itself
/// while it hands it over. Long samples are not copied after that, and short ones take the place of
/// their rows.
const COPIES: u64 = 2;
/// How many times the largest part may be in memory: those that are read, and what is sent.
const PARTS: u64 = COPIES * PARTS_AHEAD as u64 + 1;

/// Reads samples in the order of their names. Once all were read and checked, it has their tokens,
/// tensor by tensor: those of the first samples are kept, the others are read and checked again.
pub(crate) struct SampleReader {
    store: Arc<dyn Store>,
    job: Arc<str>,
    /// Names of samples that are read together.
    parts: Vec<Arc<[String]>>,
    /// How many parts are kept once they were read.
    kept_parts: usize,
    /// How many samples these have.
    kept_samples: usize,
    kept: Vec<Tokens>,
    memory_bytes: u64,
}

/// The tokens of a sample, as they are stored.
#[derive(Clone)]
pub(crate) struct Tokens {
    /// Log-probabilities of its sampled tokens.
    pub(crate) logprobs: Bytes,
    /// Ids of its tokens.
    pub(crate) ids: Bytes,
}

/// A sample that is the one that was recorded.
pub(crate) struct Checked {
    pub(crate) layout: Layout,
    pub(crate) tokens: Tokens,
    /// Bytes of it that are no tokens.
    pub(crate) tables_bytes: u64,
}

/// Why a sample can't be served.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The store failed.
    Store(StoreError),
    /// It is not stored, or not as it was recorded.
    Sample(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Sample(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unread {}

/// Samples that are read together.
#[derive(Default)]
struct Part {
    names: Vec<String>,
    bytes: u64,
}

impl SampleReader {
    /// Finds out how large the samples of these names are; at most `kept_bytes_max` of them are
    /// kept.
    ///
    /// # Errors
    /// One is not stored.
    pub(crate) async fn plan(
        store: Arc<dyn Store>,
        job: &str,
        names: &[String],
        kept_bytes_max: u64,
    ) -> Result<Self, Unread> {
        let sizes = store.payload_sizes(job, names).await;
        let sizes = sizes.map_err(Unread::Store)?.into_iter();
        let parts = parts_of(names, &sizes.collect())?;
        let largest = parts.iter().map(|part| part.bytes).max();
        let (mut kept_parts, mut kept_samples, mut kept_bytes) = (0, 0, 0);
        for part in &parts {
            if kept_bytes + part.bytes > kept_bytes_max {
                break;
            }
            kept_bytes += part.bytes;
            kept_parts += 1;
            kept_samples += part.names.len();
        }
        Ok(Self {
            store,
            job: job.into(),
            parts: parts.into_iter().map(|part| part.names.into()).collect(),
            kept_parts,
            kept_samples,
            kept: Vec::with_capacity(kept_samples),
            memory_bytes: kept_bytes + largest.unwrap_or(0) * PARTS,
        })
    }

    /// The most memory that it takes, however many samples there are.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Reads and checks all samples.
    pub(crate) fn read(&self) -> impl Stream<Item = Result<Checked, Unread>> + Send + use<> {
        self.parts_from(0)
            .map_ok(|samples| stream::iter(samples.into_iter().map(Ok::<Checked, Unread>)))
            .try_flatten()
    }

    /// Keeps the tokens of the next sample that was read, if it is one of the first.
    pub(crate) fn keep(&mut self, tokens: Tokens) {
        if self.kept.len() < self.kept_samples {
            self.kept.push(tokens);
        }
    }

    /// One tensor of all samples, once each was read: the pieces of at most `PART_SAMPLES` samples
    /// at a time.
    pub(crate) fn tensor(
        &self,
        pick: fn(Tokens) -> Bytes,
    ) -> impl Stream<Item = Result<Vec<Bytes>, Unread>> + Send + use<> {
        let kept = self.kept.chunks(PART_SAMPLES);
        let kept = kept.map(|some| some.iter().cloned().map(pick).collect::<Vec<Bytes>>());
        let kept: Vec<Vec<Bytes>> = kept.collect();
        let others = self.parts_from(self.kept_parts);
        let others = others.map_ok(move |samples| {
            let tokens = samples.into_iter().map(|checked| checked.tokens);
            tokens.map(pick).collect::<Vec<Bytes>>()
        });
        stream::iter(kept).map(Ok).chain(others)
    }

    fn parts_from(
        &self,
        part: usize,
    ) -> impl Stream<Item = Result<Vec<Checked>, Unread>> + Send + use<> {
        let (store, job) = (self.store.clone(), self.job.clone());
        let parts = stream::iter(self.parts[part..].to_vec());
        let reads = parts.map(move |names| read_part(store.clone(), job.clone(), names));
        read_ahead(reads, PARTS_AHEAD)
            .map(|read| read.unwrap_or_else(|error| Err(Unread::Sample(error.to_string()))))
    }
}

/// Divides samples into parts.
fn parts_of(names: &[String], sizes: &BTreeMap<String, u64>) -> Result<Vec<Part>, Unread> {
    let mut parts: Vec<Part> = Vec::new();
    for name in names {
        let size = sizes.get(name);
        let size = *size.ok_or_else(|| Unread::Sample(missing(name)))?;
        let fits = |part: &Part| {
            part.names.len() < PART_SAMPLES && part.bytes.saturating_add(size) <= PART_BYTES
        };
        if !parts.last().is_some_and(fits) {
            parts.push(Part::default());
        }
        if let Some(part) = parts.last_mut() {
            part.names.push(name.clone());
            part.bytes += size;
        }
    }
    Ok(parts)
}

async fn read_part(
    store: Arc<dyn Store>,
    job: Arc<str>,
    names: Arc<[String]>,
) -> Result<Vec<Checked>, Unread> {
    let rows = store.payload_bodies(&job, &names).await;
    let rows = rows.map_err(Unread::Store)?;
    let checked = tokio::task::spawn_blocking(move || checked(&names, rows)).await;
    checked.unwrap_or_else(|error| Err(Unread::Sample(error.to_string())))
}

/// Samples in the order of their names, each checked against the digest in its name.
fn checked(names: &[String], rows: Vec<(String, Bytes)>) -> Result<Vec<Checked>, Unread> {
    let rows: BTreeMap<String, Bytes> = rows.into_iter().collect();
    let samples = names.iter().map(|name| {
        let body = rows.get(name);
        let body = body.ok_or_else(|| Unread::Sample(missing(name)))?;
        let layout = Layout::of(body);
        let layout =
            layout.map_err(|error| Unread::Sample(format!("{name} is damaged: {error}")))?;
        if !name.ends_with(&digest_text(&layout.digest(body))) {
            return Err(Unread::Sample(damaged(name)));
        }
        let tokens = Tokens {
            logprobs: body.slice(layout.logprobs.clone()),
            ids: body.slice(layout.ids.clone()),
        };
        let tables_bytes = body.len() - tokens.logprobs.len() - tokens.ids.len();
        Ok(Checked {
            layout,
            tokens,
            tables_bytes: tables_bytes as u64,
        })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payloads::of_sample;
    use treadle_samples::{Sample, Sampled, Scored, Sequence, digest, store};
    use treadle_store::{Location, TrainingPayload};

    const JOB: &str = "math";

    /// A stored sample of four tokens, all of them this one.
    fn row(token: i32) -> TrainingPayload {
        let sampled = vec![Sampled {
            step: 0,
            start: 1,
            end: 3,
        }];
        let sequence = Sequence {
            ids: vec![token; 4],
            sampled,
        };
        let sequences = vec![Scored {
            sequence,
            logprobs: vec![-0.5; 2],
            versions: Vec::new(),
        }];
        let name = of_sample(&format!("p{token}"), &digest_text(&digest(&sequences)));
        let sample = Sample {
            sequences,
            ..Sample::default()
        };
        let body = store(sample).expect("it is whole");
        TrainingPayload {
            job: JOB.to_owned(),
            name,
            at_us: 1,
            size_bytes: body.len() as u64,
            body,
        }
    }

    async fn filled(rows: &[TrainingPayload]) -> Arc<dyn Store> {
        let store = treadle_store::open(&Location::Memory).await;
        let store: Arc<dyn Store> = store.expect("a store");
        store.put_payloads(rows).await.expect("they are stored");
        store
    }

    fn names(rows: &[TrainingPayload]) -> Vec<String> {
        rows.iter().map(|row| row.name.clone()).collect()
    }

    /// A reader that has read all samples and kept some.
    async fn read(
        store: &Arc<dyn Store>,
        rows: &[TrainingPayload],
        kept_bytes_max: u64,
    ) -> SampleReader {
        let plan = SampleReader::plan(store.clone(), JOB, &names(rows), kept_bytes_max).await;
        let mut reader = plan.expect("all are stored");
        let samples: Vec<Checked> = reader.read().try_collect().await.expect("all are whole");
        assert_eq!(samples.len(), rows.len());
        for sample in samples {
            reader.keep(sample.tokens);
        }
        reader
    }

    /// The first token of each sample that comes, and how the stream ends.
    async fn ids(reader: &SampleReader) -> (Vec<i32>, Result<(), String>) {
        let mut found = Vec::new();
        let mut ids = std::pin::pin!(reader.tensor(|tokens| tokens.ids));
        loop {
            match ids.try_next().await {
                Ok(Some(some)) => {
                    let first = |bytes: &Bytes| i32::from_le_bytes(bytes.as_chunks().0[0]);
                    found.extend(some.iter().map(first));
                }
                Ok(None) => return (found, Ok(())),
                Err(error) => return (found, Err(error.to_string())),
            }
        }
    }

    #[tokio::test]
    async fn tokens_come_in_order_and_break_off_at_a_sample_that_was_damaged_since() {
        // The names of these have another order.
        let rows: Vec<TrainingPayload> = (0..500).rev().map(row).collect();
        let store = filled(&rows).await;
        let reader = read(&store, &rows, 0).await;
        assert!(reader.kept.is_empty());
        let expected: Vec<i32> = (0..500).rev().collect();
        assert_eq!(ids(&reader).await, (expected.clone(), Ok(())));
        let mut damaged = rows[200].clone();
        let end = damaged.body.len();
        // The last token; after it comes `{}`.
        damaged.body[end - 3] ^= 1;
        store.put_payloads(&[damaged]).await.expect("it is stored");
        let (found, end) = ids(&reader).await;
        assert_eq!(found, expected[..PART_SAMPLES], "the parts before it");
        let error = end.expect_err("one is damaged");
        assert!(error.contains(&rows[200].name), "{error}");
        assert!(error.contains("damaged in the store"), "{error}");
    }

    #[tokio::test]
    async fn samples_up_to_the_limit_are_kept_and_others_are_read_again() {
        let rows: Vec<TrainingPayload> = (0..500).map(row).collect();
        let store = filled(&rows).await;
        let two_parts: u64 = rows[..2 * PART_SAMPLES]
            .iter()
            .map(|row| row.size_bytes)
            .sum();
        let reader = read(&store, &rows, two_parts + 1).await;
        assert_eq!(reader.kept.len(), 2 * PART_SAMPLES);
        let all = read(&store, &rows, u64::MAX).await;
        let removed = store.remove_payloads(JOB, &names(&rows), u64::MAX).await;
        assert_eq!(removed.expect("they are removed"), 500);
        let (found, end) = ids(&reader).await;
        assert_eq!(found.len(), 2 * PART_SAMPLES);
        let error = end.expect_err("they are gone");
        assert!(error.contains(&rows[2 * PART_SAMPLES].name), "{error}");
        assert_eq!(ids(&all).await, ((0..500).collect(), Ok(())));
        let plan = SampleReader::plan(store, JOB, &names(&rows), 0).await;
        let error = plan.err().map(|error| error.to_string());
        let error = error.expect("none is stored");
        assert!(error.contains("not in the store"), "{error}");
    }

    #[tokio::test]
    async fn memory_is_that_of_a_few_samples_however_many_there_are() {
        let large = 64 << 20;
        let mut rows: Vec<TrainingPayload> = (0..1_000).map(row).collect();
        for row in &mut rows {
            row.size_bytes = large;
        }
        let store = filled(&rows).await;
        let plan = SampleReader::plan(store, JOB, &names(&rows), 256 << 20).await;
        let reader = plan.expect("all are stored");
        assert_eq!((reader.kept_samples, reader.parts.len()), (4, 1_000));
        assert_eq!(reader.memory_bytes(), (4 + PARTS) * large);
    }
}
