//! Names of payloads in the store, and reading them.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::room::Room;
use axum::response::Response;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use treadle_auth::now_us;
use treadle_core::training::{Group, Job, Member};
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_samples::calls_of;
use treadle_store::TrainingPayload;
use treadle_wire::ErrorCode;

/// A payload is stored before its event: what no event names after this long never will be.
const UNNAMED_US: u64 = 3_600_000_000;

/// Most payloads that are read by one query for an answer.
const READ_AT_ONCE: usize = 16;
/// How many times each stored byte is in memory while an answer is made: as it was stored, as it is
/// understood, and as it is sent.
const COPIES: u64 = 3;

/// A bound on what an answer has.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) what: &'static str,
    pub(crate) bytes_max: u64,
}

/// Where a group's content is stored.
pub(crate) fn of_group(group: &str, digest: &str) -> String {
    format!("group/{group}/{digest}")
}

/// Where a member's sample is stored.
pub(crate) fn of_sample(program: &str, digest: &str) -> String {
    format!("sample/{}/{digest}", split(program).1)
}

/// Where what a client said of a member is stored.
pub(crate) fn of_info(program: &str, digest: &str) -> String {
    format!("info/{}/{digest}", split(program).1)
}

/// SHA-256 as text.
pub(crate) fn digest_text(digest: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in digest {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The digest of a body.
pub(crate) fn digest_of(body: &[u8]) -> String {
    digest_text(&Sha256::digest(body))
}

/// A payload to be stored now.
pub(crate) fn payload(job: &JobName, name: String, body: Vec<u8>) -> TrainingPayload {
    TrainingPayload {
        job: job.inside.to_string(),
        name,
        at_us: now_us(),
        size_bytes: body.len() as u64,
        body,
    }
}

/// Where what a client said of a member is stored, if it said anything.
pub(crate) fn info_of(program: &str, member: &Member) -> Option<String> {
    let digest = member.info.as_deref()?;
    Some(of_info(program, digest))
}

/// Names of all payloads of a group.
pub(crate) fn names_of(key: &str, group: &Group) -> impl Iterator<Item = String> {
    let content = group.content.as_deref();
    let content = content.map(|digest| of_group(key, digest));
    let members = group.members.iter().flat_map(|(program, member)| {
        let sample = member.sample.as_deref();
        let sample = sample.map(|digest| of_sample(program, digest));
        sample.into_iter().chain(info_of(program, member))
    });
    content.into_iter().chain(members.collect::<Vec<_>>())
}

impl TrainingApp {
    /// Payloads that are stored, by name.
    pub(crate) async fn payloads(
        &self,
        job: &JobName,
        names: &[String],
    ) -> Result<BTreeMap<String, Vec<u8>>, Response> {
        let found = self.store.payloads(&job.inside, names).await;
        let found = found.map_err(|error| store_failed(&error))?;
        Ok(found.into_iter().map(|row| (row.name, row.body)).collect())
    }

    /// Payloads of an answer, by name, within its room.
    ///
    /// # Errors
    /// They exceed the bound, or there is no room for them now.
    pub(crate) async fn many_payloads(
        &self,
        job: &JobName,
        names: &[String],
        room: &mut Room,
        bound: Bound,
    ) -> Result<BTreeMap<String, Vec<u8>>, Response> {
        let (mut found, mut bytes) = (BTreeMap::new(), 0);
        for names in names.chunks(READ_AT_ONCE) {
            let rows = self.payloads(job, names).await?;
            let more: u64 = rows.values().map(|body| body.len() as u64).sum();
            bytes += more;
            if bytes > bound.bytes_max {
                let Bound { what, bytes_max } = bound;
                let message = format!(
                    "{what} has more than {bytes_max} bytes, the most that are answered at once; \
                     get it in slices, with `rank` and `of`"
                );
                return Err(refuse(ErrorCode::TrainingFull, message));
            }
            room.grow(more.saturating_mul(COPIES))?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// Removes payloads that no group of the job names any more: of programs that were dropped, and
    /// of requests that were refused.
    pub(crate) async fn sweep(&self, job: &JobName) -> Result<(), Response> {
        let before_us = now_us().saturating_sub(UNNAMED_US);
        let mut after = String::new();
        let mut stored = Vec::new();
        loop {
            let page = self.store.payload_names(&job.inside, before_us, &after);
            let page = page.await.map_err(|error| store_failed(&error))?;
            let Some(last) = page.last() else { break };
            after.clone_from(last);
            stored.extend(page);
        }
        if stored.is_empty() {
            return Ok(());
        }
        // Read after the names: an event that named one of them since is seen.
        let named = self.read_job(job, named).await?;
        stored.retain(|name| !named.contains(name) && !named.contains(folder(name)));
        let removed = self
            .store
            .remove_payloads(&job.inside, &stored, before_us)
            .await;
        removed.map(drop).map_err(|error| store_failed(&error))
    }
}

/// Names of all payloads of a job.
fn named(job: &Job) -> BTreeSet<String> {
    let served = job.batches.values().flat_map(|batch| &batch.groups);
    let groups = job.groups.iter().chain(served);
    let names = groups.flat_map(|(key, group)| {
        let steps = group
            .members
            .keys()
            .map(|program| calls_of(split(program).1));
        names_of(key, group).chain(steps.collect::<Vec<_>>())
    });
    names.collect()
}

/// A name up to its last slash.
pub(crate) fn folder(name: &str) -> &str {
    &name[..name.rfind('/').map_or(0, |at| at + 1)]
}

/// JSON as a client sent it.
pub(crate) type Json = Box<RawValue>;

/// What is said of a payload whose bytes have another digest than those that were stored.
pub(crate) fn damaged(name: &str) -> String {
    format!("{name} is damaged in the store: its digest is another; restore it from a backup")
}

/// What is said of a payload that is not stored.
pub(crate) fn missing(name: &str) -> String {
    format!("{name} is not in the store")
}

/// A stored JSON value, whose name ends with its digest; null without a name.
///
/// # Errors
/// It is named and not stored, or damaged.
pub(crate) fn json_of(
    payloads: &BTreeMap<String, Vec<u8>>,
    name: Option<&str>,
) -> Result<Json, Response> {
    let Some(name) = name else {
        return Ok(RawValue::NULL.to_owned());
    };
    let stored = payloads.get(name);
    if stored.is_some_and(|bytes| !name.ends_with(&digest_of(bytes))) {
        tracing::error!(name, "a payload is damaged in the store");
        return Err(refuse(ErrorCode::Internal, damaged(name)));
    }
    let text = stored.and_then(|bytes| str::from_utf8(bytes).ok());
    let value = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
    value.ok_or_else(|| {
        tracing::error!(name, "a payload is not in the store");
        let message = format!("{name} is not in the store; the log has what failed");
        refuse(ErrorCode::Internal, message)
    })
}
