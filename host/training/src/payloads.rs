//! Names of payloads in the store, and reading them.

use crate::app::{JobName, TrainingApp, store_failed};
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
fn folder(name: &str) -> &str {
    &name[..name.rfind('/').map_or(0, |at| at + 1)]
}

/// JSON as a client sent it.
pub(crate) type Json = Box<RawValue>;

/// A stored JSON value; null without a name.
///
/// # Errors
/// It is named and not stored.
pub(crate) fn json_of(
    payloads: &BTreeMap<String, Vec<u8>>,
    name: Option<&str>,
) -> Result<Json, Response> {
    let Some(name) = name else {
        return Ok(RawValue::NULL.to_owned());
    };
    let text = payloads
        .get(name)
        .and_then(|bytes| str::from_utf8(bytes).ok());
    let value = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
    value.ok_or_else(|| {
        tracing::error!(name, "a payload is not in the store");
        let message = format!("{name} is not in the store; the log has what failed");
        refuse(ErrorCode::Internal, message)
    })
}
