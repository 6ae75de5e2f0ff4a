//! Batches: what is in them, and their tokens.

use crate::app::{JobName, TrainingApp, stopped, wait_of};
use crate::encoding::{Format, Payload, plain};
use crate::jobs::end_text;
use crate::payloads::{Bound, Json, info_of, json_of, of_group};
use crate::plain::BatchPayload;
use crate::refusal::REFUSALS;
use crate::room::Room;
use crate::waits::Waiting;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_core::training::{Group, Job, Reward, TrainingEvent};
use treadle_endpoints::arguments::{InPath, LastInPath, Query};
use treadle_endpoints::signature::Accepted;
use treadle_endpoints::{Endpoint, get};
use treadle_http::refuse;
use treadle_model::tenant::split;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Largest contents of a batch that are answered at once.
const CONTENTS: Bound = Bound {
    what: "contents and `info` of the batch together",
    bytes_max: 256 << 20,
};
/// Slices of a batch.
const SLICES_MAX: u32 = 65_536;

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    let batch = "/api/v1/jobs/{job}/batches/{batch}";
    vec![
        get(batch, RUN, show)
            .summary("A batch of a training job; it is cut when it is first asked for")
            .details("It never changes. `wait_s` waits for it, at most 60.")
            .answers::<TrainingBatch>(200, "The batch.")
            .answers::<BatchNotReady>(202, "It is not ready.")
            .fails(REFUSALS),
        get("/api/v1/jobs/{job}/batches/{batch}/payload", VIEW, payload)
            .summary("The tokens of a batch as one safetensors file, the same bytes each time")
            .details("`format=json` has them as JSON, of at most 1 GiB as they are stored.")
            .answers::<BatchPayload>(200, "docs/training.md lists the tensors.")
            .answers_as(
                "application/octet-stream",
                "docs/training.md lists the tensors.",
            )
            .fails(REFUSALS),
    ]
}

/// Which part of a batch, and how long to wait for it.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchQuery {
    /// Seconds to wait until the batch is ready; default 0, at most 60.
    wait_s: Option<u64>,
    /// The slice: its groups number `rank`, `rank + of`, ... of the batch.
    pub rank: Option<u32>,
    /// Number of slices.
    pub of: Option<u32>,
}

/// Which part of a payload, and how it is written.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PayloadQuery {
    /// safetensors, the default, or json.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: Format,
    /// The slice: its groups number `rank`, `rank + of`, ... of the batch.
    rank: Option<u32>,
    /// Number of slices.
    of: Option<u32>,
}

/// A part of a batch.
#[derive(Clone, Copy)]
struct Slice {
    rank: u32,
    of: u32,
}

impl BatchQuery {
    fn slice(self) -> Result<Slice, Response> {
        let (rank, of) = (self.rank.unwrap_or(0), self.of.unwrap_or(1));
        if rank < of && of <= SLICES_MAX && self.rank.is_some() == self.of.is_some() {
            return Ok(Slice { rank, of });
        }
        let message = format!(
            "`rank` and `of` belong together: 0 <= rank < of <= {SLICES_MAX}; leave both out for \
             the whole batch"
        );
        Err(refuse(ErrorCode::InvalidField, message))
    }
}

/// A batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrainingBatch {
    /// The job.
    job: String,
    /// Its number.
    batch: u64,
    /// true.
    ready: bool,
    /// How often the trainer went back to a checkpoint.
    lineage: u32,
    /// The version that it is trained on.
    trained_on: u64,
    /// Whether the trainer has trained on it.
    trained: bool,
    /// Its groups, by key.
    groups: Vec<BatchGroup>,
}

/// A group in a batch.
#[derive(Serialize, ToSchema)]
struct BatchGroup {
    /// Its key.
    group: String,
    /// What was submitted with it.
    #[schema(value_type = Object)]
    content: Json,
    /// Version at the oldest first token of its members.
    version: u64,
    /// By how many training steps the version that it is trained on is newer.
    lag: u64,
    /// Its members, by program.
    members: Vec<BatchMember>,
}

/// A member in a batch.
#[derive(Serialize, ToSchema)]
struct BatchMember {
    /// Its program.
    program: String,
    /// completed or truncated.
    end: &'static str,
    /// Its reward; null if the job takes none.
    reward: Option<f64>,
    /// Version at its first token.
    version: u64,
    /// Tokens that it sampled.
    tokens: u64,
    /// Its steps.
    turns: u32,
    /// Digest of its sample.
    sample: Option<String>,
    /// Whether what was stored of it is deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// What its client said of it.
    #[schema(value_type = Object)]
    info: Json,
}

/// A batch that is not ready.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchNotReady {
    /// The job.
    job: String,
    /// The number of the batch.
    batch: u64,
    /// false.
    ready: bool,
    /// Who waits for whom.
    waits: Vec<Waiting>,
}

/// A slice of a batch on record.
struct Cut {
    lineage: u32,
    trained: bool,
    groups: Vec<(Box<str>, Group)>,
}

fn cut_of(job: &Job, batch: u64, slice: Slice) -> Option<Cut> {
    let found = job.batches.get(&batch)?;
    let groups = found.groups.iter().skip(slice.rank as usize);
    let groups = groups.step_by(slice.of as usize);
    Some(Cut {
        lineage: job.lineage,
        trained: found.trained,
        groups: groups
            .map(|(key, group)| (key.clone(), group.clone()))
            .collect(),
    })
}

/// Waits for a batch; `None` at the deadline.
async fn cut(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    query: BatchQuery,
) -> Result<Option<Cut>, Response> {
    let slice = query.slice()?;
    let deadline = Instant::now() + wait_of(query.wait_s);
    let mut changes = app.driver.training_changes();
    let mut asked = false;
    loop {
        changes.mark_unchanged();
        let read = app.read_job(job, move |found| {
            let is_next = found.next_batch == batch;
            (
                cut_of(found, batch, slice),
                is_next && found.requested == batch,
            )
        });
        let (found, is_requested) = read.await?;
        if let Some(cut) = found {
            return Ok(Some(cut));
        }
        if !is_requested && !std::mem::replace(&mut asked, true) {
            let job = job.inside.clone();
            app.train(TrainingEvent::BatchRequested { job, batch })
                .await?;
            continue;
        }
        match timeout_at(deadline, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(stopped()),
            Err(_) => return Ok(None),
        }
        // Many things happen at once.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn show(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(batch): LastInPath<u64>,
    Query(query): Query<BatchQuery>,
) -> Result<Response, Response> {
    let mut room = app.room_for(&caller);
    let found = view(&app, &JobName::of(&caller, job), batch, query, &mut room).await?;
    Ok(match found {
        Ok(batch) => {
            let written = tokio::task::spawn_blocking(move || serde_json::to_vec(&batch)).await;
            let written = written.map_err(|_| stopped())?;
            // Numbers and strings always have a JSON form.
            room.answer("application/json", written.unwrap_or_default())
        }
        Err(not_ready) => Accepted(not_ready).into_response(),
    })
}

/// A slice of a batch, once it is ready or at the deadline.
pub(crate) async fn view(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    query: BatchQuery,
    room: &mut Room,
) -> Result<Result<TrainingBatch, BatchNotReady>, Response> {
    let Some(cut) = cut(app, job, batch, query).await? else {
        let waits = app.waits(job).await?;
        return Ok(Err(BatchNotReady {
            job: job.own.to_string(),
            batch,
            ready: false,
            waits,
        }));
    };
    let names = cut.groups.iter().flat_map(|(key, group)| {
        let content = group.content.as_deref();
        let content = content.map(|digest| of_group(key, digest));
        let members = group.members.iter();
        let infos = members.filter_map(|(program, member)| info_of(program, member));
        content.into_iter().chain(infos).collect::<Vec<String>>()
    });
    let names: Vec<String> = names.collect();
    let payloads = app.many_payloads(job, &names, room, CONTENTS).await?;
    let groups = cut.groups.iter();
    let groups = groups.map(|(key, group)| BatchGroup::of(batch, key, group, &payloads));
    let groups = groups.collect::<Result<Vec<BatchGroup>, Response>>()?;
    Ok(Ok(TrainingBatch {
        job: job.own.to_string(),
        batch,
        ready: true,
        lineage: cut.lineage,
        trained_on: batch - 1,
        trained: cut.trained,
        groups,
    }))
}

impl BatchGroup {
    fn of(
        batch: u64,
        key: &str,
        group: &Group,
        payloads: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, Response> {
        let version = group.version().unwrap_or_default();
        let content = group.content.as_deref();
        let content = content.map(|digest| of_group(key, digest));
        let members = group.members.iter().map(|(program, member)| {
            let info = info_of(program, member);
            Ok(BatchMember {
                program: split(program).1.to_owned(),
                end: member.end.map_or("", end_text),
                reward: member.reward.map(Reward::get),
                version: member.version,
                tokens: member.tokens,
                turns: member.turns,
                sample: member.sample.as_deref().map(str::to_owned),
                deleted: member.deleted,
                info: json_of(payloads, info.as_deref())?,
            })
        });
        Ok(Self {
            group: key.to_owned(),
            content: json_of(payloads, content.as_deref())?,
            version,
            lag: (batch - 1).saturating_sub(version),
            members: members.collect::<Result<_, Response>>()?,
        })
    }
}

async fn payload(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(batch): LastInPath<u64>,
    Query(query): Query<PayloadQuery>,
) -> Result<Response, Response> {
    let (mut room, job) = (app.room_for(&caller), JobName::of(&caller, job));
    let PayloadQuery { format, rank, of } = query;
    let part = BatchQuery {
        wait_s: None,
        rank,
        of,
    };
    match format {
        Format::Safetensors => {
            let payload = payload_of(&app, &job, batch, part, &mut room).await?;
            Ok(payload.answer(room))
        }
        Format::Json => {
            let groups = groups_of(&app, &job, batch, part).await?;
            let bytes = plain(&app, &job, batch, groups, &mut room).await?;
            Ok(room.answer("application/json", bytes))
        }
    }
}

/// The tokens of a slice of a batch that was cut.
pub(crate) async fn payload_of(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    query: BatchQuery,
    room: &mut Room,
) -> Result<Payload, Response> {
    let groups = groups_of(app, job, batch, query).await?;
    Payload::of(app, job, batch, &groups, room).await
}

/// The groups of a slice of a batch that was cut.
async fn groups_of(
    app: &TrainingApp,
    job: &JobName,
    batch: u64,
    query: BatchQuery,
) -> Result<Vec<(Box<str>, Group)>, Response> {
    let slice = query.slice()?;
    let found = app.read_job(job, move |found| {
        let next = found.next_batch;
        (cut_of(found, batch, slice), next)
    });
    let (found, next) = found.await?;
    let found = found.ok_or_else(|| {
        let (code, what) = if batch >= next {
            (ErrorCode::BatchAhead, "is not cut yet: get the batch first")
        } else {
            (ErrorCode::BatchReleased, "was released by a checkpoint")
        };
        refuse(code, format!("batch {batch} {what}"))
    })?;
    Ok(found.groups)
}
