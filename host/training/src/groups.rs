//! Groups: submitting them.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::jobs::declare_by_name;
use crate::payloads::{Json, digest_of, of_group, payload};
use crate::refusal::{REFUSALS, refused};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_core::training::{DOMAIN_BYTES_MAX, GROUP_SIZE_MAX, TrainingError, TrainingEvent};
use treadle_endpoints::arguments::{InPath, Verbatim, name, optional};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, post};
use treadle_http::refuse;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// Groups in one request.
const SUBMITTED_MAX: usize = 1_000;
/// Largest content of a group.
const CONTENT_BYTES_MAX: usize = 1 << 20;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    vec![
        post("/api/v1/jobs/{job}/groups", RUN, submit)
            .takes_action()
            .summary("Submits groups; keys that the job knows change nothing")
            .details("A job that is not declared comes into being, with defaults.")
            .fails(REFUSALS)
            .fails(&[ErrorCode::TenantBusy]),
    ]
}

/// Groups to be sampled.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupSubmission {
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
    /// What its prompt is from, such as `math`, in at most 64 bytes: the bias account is kept by it
    /// too.
    domain: Option<String>,
}

/// What became of a submission.
#[derive(Serialize, ToSchema)]
pub(crate) struct GroupsSubmitted {
    /// Groups that are new.
    new: usize,
    /// Groups that the job knew already.
    known: usize,
}

pub(crate) async fn submit(
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
        check(group)?;
        keys.push(name("group", group.group.clone())?.to_string());
    }
    declare_by_name(&app, &caller, &job).await?;
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

fn check(group: &GroupRequest) -> Result<(), Response> {
    let size = group.size.unwrap_or(1);
    if !(1..=GROUP_SIZE_MAX).contains(&size) {
        return Err(refused(&TrainingError::GroupSize(size)));
    }
    if let Some(domain) = optional("domain", group.domain.clone())? {
        let length = domain.as_str().len();
        if length > DOMAIN_BYTES_MAX {
            return Err(refused(&TrainingError::Domain(length)));
        }
    }
    Ok(())
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
            domain: group.domain.map(Into::into),
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
