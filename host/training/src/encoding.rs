//! The payload of a batch, made of the samples of its members.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::payloads::{Bound, digest_text, of_sample};
use crate::plain::{BatchPayload, TEXT_BYTES};
use crate::room::Room;
use crate::sample_reader::{PART_SAMPLES, SampleReader, Unread};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::pin::pin;
use treadle_core::training::{Group, Member, Reward};
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_samples::{Frame, Layout};
use treadle_wire::ErrorCode;

/// The content type of a safetensors file.
const FILE: &str = "application/octet-stream";

/// Largest samples of a payload as JSON.
const PLAIN: Bound = Bound {
    what: "the payload as JSON",
    bytes_max: 1 << 30,
};

/// Bytes of samples that are kept from their check until they are sent: some of the largest. Those
/// beyond are read again.
const KEPT_BYTES: u64 = 256 << 20;
/// How many times the tables of a sample are in memory: as they are stored, as they are understood,
/// and as they are sent.
const TABLE_COPIES: u64 = 3;

/// Shorter pieces of an answer are sent together with those beside them, if they were read together:
/// each piece takes part of a call to the system.
const SHORT_BYTES: usize = 4 << 10;

/// How a payload is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// As one safetensors file.
    #[default]
    Safetensors,
    /// As JSON.
    Json,
}

/// The payload of some groups of a batch as a safetensors file: the same bytes each time. All its
/// samples were read and checked.
pub(crate) struct Payload {
    /// Its length.
    pub(crate) size_bytes: usize,
    job: JobName,
    batch: u64,
    head: Bytes,
    samples: SampleReader,
    tail: Bytes,
}

impl Payload {
    /// Of groups of a batch.
    ///
    /// # Errors
    /// A sample is not stored or is damaged, or there is no room for it now.
    pub(crate) async fn of(
        app: &TrainingApp,
        job: &JobName,
        batch: u64,
        groups: &[(Box<str>, Group)],
        room: &mut Room,
    ) -> Result<Self, Response> {
        let refusal = |error: Unread| refusal(job, batch, error);
        let (store, names) = (app.store.clone(), names_of_samples(groups));
        let kept_bytes_max = KEPT_BYTES.min(room.bytes_max() / 2);
        let samples = SampleReader::plan(store, &job.inside, &names, kept_bytes_max).await;
        let mut samples = samples.map_err(refusal)?;
        room.grow(samples.memory_bytes() + (SHORT_BYTES * PART_SAMPLES) as u64)?;
        let (mut frame, mut members) = (Frame::default(), Vec::new());
        let mut reads = pin!(samples.read());
        for (index, (_, group)) in groups.iter().enumerate() {
            for (program, member) in &group.members {
                let mut layout = None;
                if member.sample.is_some() {
                    let read = reads.try_next().await.map_err(refusal)?;
                    let ended = || refusal(Unread::Sample(format!("{program} has no sample")));
                    let read = read.ok_or_else(ended)?;
                    room.grow(read.tables_bytes.saturating_mul(TABLE_COPIES))?;
                    samples.keep(read.tokens);
                    layout = Some(read.layout);
                }
                members.push(named_member(split(program).1, member, layout.as_ref()));
                let reward = member.reward.map(Reward::get);
                frame.push(index, reward, layout.as_ref());
            }
        }
        let (own, versions) = (job.own.to_string(), frame.versions());
        let keys: Vec<&str> = groups.iter().map(|(key, _)| &**key).collect();
        let meta = json!({
            "job": own, "batch": batch, "groups": keys, "members": members, "versions": versions,
        });
        let ends = frame.close(meta.to_string());
        let ends = ends.map_err(|error| refusal(Unread::Sample(error.to_string())))?;
        Ok(Self {
            size_bytes: ends.size_bytes,
            job: job.clone(),
            batch,
            head: ends.head.into(),
            samples,
            tail: ends.tail.into(),
        })
    }

    /// Its bytes. They end with an error if a sample that is read again was lost or damaged since.
    fn bytes(self) -> impl Stream<Item = Result<Bytes, Unread>> + Send + 'static {
        let logprobs = self.samples.tensor(|tokens| tokens.logprobs);
        let ids = self.samples.tensor(|tokens| tokens.ids);
        stream::iter([Ok(self.head)])
            .chain(joined(logprobs))
            .chain(joined(ids))
            .chain(stream::iter([Ok(self.tail)]))
    }

    /// The answer that sends it, and takes its room until it was sent. It breaks off before its
    /// announced length if a sample was lost or damaged since.
    pub(crate) fn answer(mut self, room: Room) -> Response {
        self.tail = room.hold(self.tail);
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(FILE)),
            (header::CONTENT_LENGTH, HeaderValue::from(self.size_bytes)),
        ];
        let (job, batch) = (self.job.own.to_string(), self.batch);
        let bytes = self.bytes().inspect_err(move |error| {
            tracing::error!(job, batch, %error, "the payload of a batch broke off");
        });
        (headers, Body::from_stream(bytes)).into_response()
    }

    /// SHA-256 of its bytes, as text.
    pub(crate) async fn digest(self) -> Result<String, Response> {
        let (job, batch) = (self.job.clone(), self.batch);
        let mut hash = Sha256::new();
        let mut bytes = pin!(self.bytes());
        loop {
            let next = bytes.try_next().await;
            let next = next.map_err(|error| refusal(&job, batch, error))?;
            let Some(next) = next else {
                return Ok(digest_text(&hash.finalize()));
            };
            hash.update(&next);
            // Others have their turn between two samples.
            tokio::task::yield_now().await;
        }
    }
}

/// The bytes of these parts in fewer pieces. No part is taken before the one before it was sent:
/// there is room for only a few.
fn joined(
    parts: impl Stream<Item = Result<Vec<Bytes>, Unread>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Unread>> + Send + 'static {
    parts
        .map_ok(|pieces| stream::iter(join_short(&pieces).into_iter().map(Ok::<Bytes, Unread>)))
        .try_flatten()
}

/// The pieces, with short ones that follow each other in one.
fn join_short(pieces: &[Bytes]) -> Vec<Bytes> {
    let is_short = |piece: &Bytes| piece.len() < SHORT_BYTES;
    let runs = pieces.chunk_by(|one, next| is_short(one) && is_short(next));
    let joined = runs.map(|run| match run {
        [piece] => piece.clone(),
        run => {
            let length: usize = run.iter().map(Bytes::len).sum();
            let mut whole = Vec::with_capacity(length);
            for piece in run {
                whole.extend_from_slice(piece);
            }
            Bytes::from(whole)
        }
    });
    joined.collect()
}

fn names_of_samples(groups: &[(Box<str>, Group)]) -> Vec<String> {
    let members = groups.iter().flat_map(|(_, group)| &group.members);
    let names = members.filter_map(|(program, member)| {
        let digest = member.sample.as_deref()?;
        Some(of_sample(program, digest))
    });
    names.collect()
}

/// The response if a payload can't be made.
fn refusal(job: &JobName, batch: u64, error: Unread) -> Response {
    let error = match error {
        Unread::Store(error) => return store_failed(&error),
        Unread::Sample(error) => error,
    };
    tracing::error!(job = &*job.own, batch, error, "a batch can't be encoded");
    let message = format!("the payload of batch {batch} can't be made: {error}");
    refuse(ErrorCode::Internal, message)
}

/// A member in `meta`. What its sample does not have is left out.
fn named_member(program: &str, member: &Member, sample: Option<&Layout>) -> Value {
    let mut named = json!({"program": program, "sample": member.sample});
    let Some(Layout { meta, .. }) = sample else {
        return named;
    };
    if let Some(kind) = &meta.logprobs {
        named["logprobs"] = json!(kind);
    }
    if !meta.excluded.is_empty() {
        named["excluded"] = json!(meta.excluded);
    }
    if !meta.mixed.is_empty() {
        named["mixed"] = json!(meta.mixed);
    }
    named
}

/// The payload of some groups of a batch as JSON.
pub(crate) async fn plain(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    groups: Vec<(Box<str>, Group)>,
    room: &mut Room,
) -> Result<Vec<u8>, Response> {
    let names = names_of_samples(&groups);
    let samples = app.many_payloads(job, &names, room, PLAIN).await?;
    let stored: u64 = samples.values().map(|body| body.len() as u64).sum();
    room.grow(stored.saturating_mul(TEXT_BYTES))?;
    let own = job.own.to_string();
    let writing = move || {
        let payload = BatchPayload::of(&own, batch, &groups, &samples)?;
        serde_json::to_vec(&payload).map_err(|error| error.to_string())
    };
    let written = tokio::task::spawn_blocking(writing).await;
    let written = written.unwrap_or_else(|error| Err(error.to_string()));
    written.map_err(|error| refusal(job, batch, Unread::Sample(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[tokio::test]
    async fn short_pieces_are_sent_together_and_long_ones_as_they_are() {
        let long = Bytes::from(vec![7; SHORT_BYTES]);
        let short = |byte: u8| Bytes::from(vec![byte; 3]);
        let pieces = vec![
            short(1),
            short(2),
            long.clone(),
            short(3),
            long.clone(),
            long.clone(),
            short(4),
            short(5),
        ];
        let sent = joined(stream::iter([Ok(pieces.clone())]));
        let sent: Vec<Bytes> = sent.try_collect().await.expect("there is no error");
        let lengths: Vec<usize> = sent.iter().map(Bytes::len).collect();
        let long_bytes = long.len();
        assert_eq!(lengths, [6, long_bytes, 3, long_bytes, long_bytes, 6]);
        assert!(sent.iter().flatten().eq(pieces.iter().flatten()));
        assert_eq!(sent[1].as_ptr(), long.as_ptr(), "nothing copies it");
        let lost = Err(Unread::Sample("it is lost".to_owned()));
        let mut broken = pin!(joined(stream::iter([Ok(vec![short(1), short(2)]), lost])));
        let first = broken.try_next().await.expect("that is there");
        assert_eq!(first.map(|piece| piece.len()), Some(6));
        let error = broken.try_next().await.expect_err("it is lost");
        assert_eq!(error.to_string(), "it is lost");
    }

    #[tokio::test]
    async fn a_part_is_taken_once_the_one_before_it_was_sent() {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let parts = stream::iter(0..3).map(move |_| {
            counted.fetch_add(1, Relaxed);
            Ok(vec![Bytes::from(vec![7; SHORT_BYTES]); 2])
        });
        let mut sent = pin!(joined(parts));
        for (piece, parts) in [(1, 1), (2, 1), (3, 2)] {
            let next = sent.try_next().await.expect("there is no error");
            assert!(next.is_some(), "{piece}");
            assert_eq!(taken.load(Relaxed), parts, "{piece}");
        }
    }
}
