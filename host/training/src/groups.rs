//! OpenGroups: submitting and listing them.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::payloads::{Json, digest_of, of_group, payload};
use crate::refusal::{REFUSALS, refused};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_core::training::{GROUP_SIZE_MAX, Group, Job, TrainingError, TrainingEvent};
use treadle_endpoints::arguments::{InPath, Query, Verbatim, name, page_limit};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get, post};
use treadle_http::refuse;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// OpenGroups in one request.
const SUBMITTED_MAX: usize = 1_000;
/// Largest content of a group.
const CONTENT_BYTES_MAX: usize = 1 << 20;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    let groups = "/api/v1/jobs/{job}/groups";
    vec![
        get(groups, VIEW, list)
            .summary("OpenGroups of a training job that are in no batch, by key")
            .fails(&[ErrorCode::JobUnknown]),
        post(groups, RUN, submit)
            .takes_action()
            .summary("Submits groups; keys that the job knows change nothing")
            .fails(REFUSALS)
            .fails(&[ErrorCode::TenantBusy]),
    ]
}

/// OpenGroups to be sampled.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GroupSubmission {
    /// At most 1,000, and 8 MiB in one request.
    groups: Vec<GroupRequest>,
}

/// A prompt to be sampled.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GroupRequest {
    /// The client's key for it.
    group: String,
    /// Number of its members, if it differs from the job's.
    size: Option<u16>,
    /// Any JSON of at most 1 MiB, which comes back with members and batches.
    #[schema(value_type = Object)]
    content: Option<Json>,
}

/// What became of a submission.
#[derive(Serialize, ToSchema)]
struct GroupsSubmitted {
    /// OpenGroups that are new.
    new: usize,
    /// OpenGroups that the job knew already.
    known: usize,
}

async fn submit(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Verbatim(request): Verbatim<GroupSubmission>,
) -> Answer<GroupsSubmitted> {
    let job = JobName::of(&caller, job);
    if request.groups.len() > SUBMITTED_MAX {
        let message = format!(
            "{} groups in one request; send at most {SUBMITTED_MAX}",
            request.groups.len()
        );
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let mut keys = Vec::with_capacity(request.groups.len());
    for group in &request.groups {
        check_size(group)?;
        keys.push(name("group", group.group.clone())?.to_string());
    }
    let known = app.read_job(&job, move |found| {
        let known = keys.iter().map(|key| found.has_group(key));
        known.collect::<Vec<bool>>()
    });
    let known = known.await?;
    let fresh = request.groups.into_iter().zip(&known);
    let fresh: Vec<GroupRequest> = fresh
        .filter(|(_, known)| !**known)
        .map(|(g, _)| g)
        .collect();
    let new = fresh.len();
    add(&app, &caller, &job, fresh).await?;
    let known = known.len() - new;
    Ok(axum::Json(GroupsSubmitted { new, known }))
}

fn check_size(group: &GroupRequest) -> Result<(), Response> {
    let size = group.size.unwrap_or(1);
    if (1..=GROUP_SIZE_MAX).contains(&size) {
        return Ok(());
    }
    Err(refused(&TrainingError::GroupSize(size)))
}

/// Stores the contents of groups, then submits them.
async fn add(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
    groups: Vec<GroupRequest>,
) -> Result<(), Response> {
    let mut payloads = Vec::new();
    let mut events = Vec::with_capacity(groups.len());
    for group in groups {
        let body = group
            .content
            .map(|content| content.to_string().into_bytes());
        if body
            .as_ref()
            .is_some_and(|body| body.len() > CONTENT_BYTES_MAX)
        {
            let message = format!(
                "the content of group `{}` is longer than {CONTENT_BYTES_MAX} bytes; send less",
                group.group
            );
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        let digest = body.as_deref().map(digest_of);
        if let (Some(body), Some(digest)) = (body, &digest) {
            payloads.push(payload(job, of_group(&group.group, digest), body));
        }
        events.push(TrainingEvent::GroupSubmitted {
            job: job.inside.clone(),
            group: group.group.into(),
            size: group.size,
            content: digest.map(Into::into),
        });
    }
    if !payloads.is_empty() {
        let bytes = payloads.iter().map(|payload| payload.size_bytes).sum();
        app.reserve(caller, bytes).await?;
        let stored = app.store.put_payloads(&payloads).await;
        stored.map_err(|error| store_failed(&error))?;
    }
    app.train_all(events).await
}

/// Paging of groups.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct GroupQuery {
    /// Only those with a greater key: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of groups; default 100.
    limit: Option<u32>,
}

/// A page of groups.
#[derive(Serialize, ToSchema)]
struct OpenGroups {
    /// By key.
    groups: Vec<OpenGroup>,
    /// The `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A group that is in no batch.
#[derive(Serialize, ToSchema)]
struct OpenGroup {
    /// Its key.
    group: String,
    /// queued, running, ready, or stale: it is too old to be trained and runs on.
    state: &'static str,
    /// Number of its members once it has all.
    size: u16,
    /// Members that have begun and were not lost.
    begun: usize,
    /// Members that came to an end of their own.
    ended: usize,
    /// Members with a reward.
    rewarded: usize,
    /// Version at the oldest first token of its members.
    version: Option<u64>,
    /// Members that it has lost since it was last queued.
    failures: u32,
    /// How often it became too old.
    returned: u32,
}

impl OpenGroup {
    fn of(key: &str, group: &Group, job: &Job) -> Self {
        let state = match group {
            _ if group.stale => "stale",
            _ if group.members.is_empty() => "queued",
            _ if job.is_ready(group) => "ready",
            _ => "running",
        };
        let members = group.members.values();
        Self {
            group: key.to_owned(),
            state,
            size: group.size,
            begun: group.members.len(),
            ended: members
                .clone()
                .filter(|member| member.end.is_some())
                .count(),
            rewarded: members.filter(|member| member.reward.is_some()).count(),
            version: group.version(),
            failures: group.failures,
            returned: group.returned,
        }
    }
}

async fn list(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Query(query): Query<GroupQuery>,
) -> Answer<OpenGroups> {
    let job = JobName::of(&caller, job);
    let limit = page_limit(query.limit) as usize;
    let groups = app.read_job(&job, move |found| {
        let after = query.after.as_deref();
        let from = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let page = found.groups.range::<str, _>(from).take(limit);
        let shown = page.map(|(key, group)| OpenGroup::of(key, group, found));
        shown.collect::<Vec<_>>()
    });
    let groups = groups.await?;
    let last = groups.last().filter(|_| groups.len() == limit);
    let next = last.map(|group| group.group.clone());
    Ok(axum::Json(OpenGroups { groups, next }))
}
