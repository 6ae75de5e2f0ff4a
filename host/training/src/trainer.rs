//! What a trainer reports: batches trained, versions, checkpoints and going back to one.

use crate::app::{JobName, TrainingApp, store_failed};
use crate::payloads::names_of;
use crate::refusal::REFUSALS;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use treadle_auth::permissions::RUN;
use treadle_auth::{Caller, Change, now_us};
use treadle_core::training::TrainingEvent;
use treadle_endpoints::arguments::{Body, InPath, LastInPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, post};
use treadle_http::refuse;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    vec![
        post("/api/v1/jobs/{job}/batches/{batch}/trained", RUN, trained)
            .summary("Reports that the trainer has trained on a batch")
            .fails(REFUSALS),
        post("/api/v1/jobs/{job}/versions", RUN, version)
            .summary("Reports the version of the weights that engines have from now on")
            .fails(REFUSALS),
        post("/api/v1/jobs/{job}/checkpoints", RUN, checkpoint)
            .summary("Reports that the trainer saved its state after a batch")
            .details("Batches up to it are released: their payloads are deleted.")
            .fails(REFUSALS),
        post("/api/v1/jobs/{job}/resume", RUN, resume)
            .summary("Reports that the trainer went back to a checkpoint")
            .details("Batches after it come again as they were, in a new lineage of versions.")
            .fails(REFUSALS),
    ]
}

/// The state of a job after a report of its trainer.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrainingProgress {
    /// The job.
    job: String,
    /// How often the trainer went back to a checkpoint.
    lineage: u32,
    /// The version that engines have.
    version: Option<u64>,
    /// The last batch in a checkpoint.
    checkpoint: u64,
    /// The next batch to be cut.
    next_batch: u64,
}

async fn progress(app: &TrainingApp, job: &JobName) -> Answer<TrainingProgress> {
    let own = job.own.to_string();
    let read = app.read_job(job, move |job| TrainingProgress {
        job: own,
        lineage: job.lineage,
        version: job.version,
        checkpoint: job.checkpoint,
        next_batch: job.next_batch,
    });
    Ok(axum::Json(read.await?))
}

/// A batch that was trained.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainedRequest {
    /// The lineage that the trainer is in; by default the job's.
    lineage: Option<u32>,
}

pub(crate) async fn trained(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(batch): LastInPath<u64>,
    Body(request): Body<TrainedRequest>,
) -> Answer<TrainingProgress> {
    let job = JobName::of(&caller, job);
    let event = TrainingEvent::BatchTrained {
        job: job.inside.clone(),
        lineage: app.lineage(&job, request.lineage).await?,
        batch,
    };
    app.train(event).await?;
    progress(&app, &job).await
}

/// A version of the weights.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionRequest {
    /// The version: on how many batches was trained.
    version: u64,
    /// The lineage that the trainer is in; by default the job's.
    lineage: Option<u32>,
    /// Digest of the weights.
    digest: Option<String>,
}

pub(crate) async fn version(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<VersionRequest>,
) -> Answer<TrainingProgress> {
    let job = JobName::of(&caller, job);
    if request.digest.as_ref().is_some_and(|text| text.len() > 256) {
        let message = "`digest` is longer than 256 bytes; send a digest";
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let event = TrainingEvent::VersionTold {
        job: job.inside.clone(),
        lineage: app.lineage(&job, request.lineage).await?,
        version: request.version,
        digest: request.digest.map(Into::into),
    };
    app.train(event).await?;
    progress(&app, &job).await
}

/// A checkpoint of the trainer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointRequest {
    /// The last batch in it; 0 for the state before the first batch.
    batch: u64,
    /// The lineage that the trainer is in, by default the job's; for `resume` the one that ends: a
    /// repeated request changes nothing then.
    pub lineage: Option<u32>,
}

pub(crate) async fn checkpoint(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<CheckpointRequest>,
) -> Answer<TrainingProgress> {
    let job = JobName::of(&caller, job);
    let batch = request.batch;
    let released = app.read_job(&job, move |found| {
        let released = found.batches.range(..=batch);
        let groups = released.flat_map(|(_, batch)| &batch.groups);
        groups
            .flat_map(|(key, group)| names_of(key, group))
            .collect::<Vec<String>>()
    });
    let released = released.await?;
    let event = TrainingEvent::Checkpointed {
        job: job.inside.clone(),
        lineage: app.lineage(&job, request.lineage).await?,
        batch,
    };
    app.train(event).await?;
    let store = &app.store;
    let removed = store
        .remove_payloads(&job.inside, &released, now_us())
        .await;
    removed.map_err(|error| store_failed(&error))?;
    app.removed(&caller);
    app.sweep(&job).await?;
    progress(&app, &job).await
}

pub(crate) async fn resume(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<CheckpointRequest>,
) -> Answer<TrainingProgress> {
    let job = JobName::of(&caller, job);
    let read = app.read_job(&job, |job| (job.lineage, job.rolled_back_to, job.version));
    let (current, rolled_back_to, version) = read.await?;
    let lineage = request.lineage.unwrap_or(current);
    let is_done = lineage.checked_add(1) == Some(current)
        && rolled_back_to == request.batch
        && version.is_none();
    if !is_done {
        let event = TrainingEvent::RolledBack {
            job: job.inside.clone(),
            lineage,
            batch: request.batch,
        };
        app.train(event).await?;
        let change = Change {
            action: "job.resumed",
            target: &job.own,
            before: json!({"lineage": lineage}),
            after: json!({"batch": request.batch}),
        };
        app.auth.audit.note(&caller, change).await;
    }
    progress(&app, &job).await
}
