//! Members: beginning them, and what their clients report of them.

use crate::app::{JobName, TrainingApp, store_failed, wait_of};
use crate::payloads::{digest_text, json_of, of_group, of_info, of_sample, payload};
use crate::refusal::{REFUSALS, not_recorded, refused};
use crate::report::Located;
use crate::sample::{Checked, SampleRequest};
use crate::waits::{Waiting, waits};
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::pin;
use std::slice;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_core::training::{
    Begun as Admission, End, MemberRef, Reward, State as Runs, TrainingError, TrainingEvent,
};
use treadle_endpoints::arguments::{Body, InPath, LastInPath, name, optional};
use treadle_endpoints::signature::{Accepted, Answer};
use treadle_endpoints::{Endpoint, post, put};
use treadle_http::{error_response, refuse};
use treadle_model::ClientName;
use treadle_samples::{digest, store};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// Largest `info` of a member.
const INFO_BYTES_MAX: usize = 1 << 16;
/// While no group needs a member, the state is read at most this often for a request that waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An admission that waits for nothing is on record within this time.
const ADMISSION: Duration = Duration::from_secs(1);

pub(crate) fn endpoints() -> Vec<Endpoint<TrainingApp>> {
    let member = "/api/v1/jobs/{job}/members/{program}";
    vec![
        post("/api/v1/jobs/{job}/members", RUN, begin)
            .summary("Begins a member of the next group that needs one, or of a given group")
            .details("Repeating the request with the same program has the same result.")
            .answers::<MemberBegun>(200, "The program may begin.")
            .answers::<MemberWaits>(202, "No program may begin yet.")
            .fails(REFUSALS),
        put(member, RUN, end)
            .takes_sample()
            .summary("Reports how a member ended, with its sample and reward if there are any")
            .details("The same report can be sent again.")
            .fails(REFUSALS)
            .fails(&[ErrorCode::SampleInvalid, ErrorCode::TenantBusy]),
        put("/api/v1/jobs/{job}/members/{program}/reward", RUN, reward)
            .summary("Reports a member's reward, or that none could be computed")
            .details("Until its group is in a batch, a later report replaces an earlier one.")
            .fails(REFUSALS),
    ]
}

/// A member that is to begin.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MemberRequest {
    /// The program.
    program: String,
    /// Its group; by default the next one that needs a member.
    group: Option<String>,
    /// Seconds to wait until it may begin; default 0, at most 60.
    wait_s: Option<u64>,
}

/// A member that may begin.
#[derive(Serialize, ToSchema)]
struct MemberBegun {
    /// The program.
    program: String,
    /// Its group.
    group: String,
    /// What was submitted with the group.
    #[schema(value_type = Object)]
    content: Value,
    /// The version that engines have.
    version: u64,
    /// The group has all its members: the program is not trained.
    surplus: bool,
}

/// No member may begin.
#[derive(Serialize, ToSchema)]
struct MemberWaits {
    /// null.
    program: Option<String>,
    /// Who waits for whom in the job.
    waits: Vec<Waiting>,
}

/// What a program that wants to begin finds.
enum Place {
    /// It is a member already.
    Member(Box<str>),
    /// A group needs it.
    Wanted(Box<str>),
    /// None does.
    Nowhere,
}

async fn begin(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<MemberRequest>,
) -> Result<Response, Response> {
    let job = JobName::of(&caller, job);
    let program = name("program", request.program)?;
    let inside: Box<str> = caller.principal.inside(&program).into();
    let group = optional("group", request.group)?.map(|group| Box::from(group.as_str()));
    let deadline = Instant::now() + wait_of(request.wait_s);
    loop {
        let place = place(&app, &job, inside.clone(), group.clone()).await?;
        let at = |group: Box<str>| MemberRef {
            job: job.inside.clone(),
            group,
            program: inside.clone(),
        };
        let (member, arrived) = match place {
            Place::Member(key) => (at(key), Arrived::Began(Admission::Member)),
            Place::Wanted(key) => {
                let member = at(key);
                let arrived = arrive(&app, &job, member.clone(), deadline).await?;
                (member, arrived)
            }
            Place::Nowhere if Instant::now() < deadline => {
                sleep(LOOK_EVERY.min(deadline - Instant::now())).await;
                continue;
            }
            Place::Nowhere => {
                let mut waits = app.read_job(&job, waits).await?;
                waits.push(no_group());
                return Ok(nothing(waits));
            }
        };
        match arrived {
            // Another program was faster; there may be another group.
            Arrived::Began(Admission::Surplus) if group.is_none() => {}
            Arrived::Began(admitted) => {
                let begun = begun(&app, &job, program, member, admitted).await?;
                return Ok(Json(begun).into_response());
            }
            Arrived::Waits(waits) => return Ok(nothing(waits)),
        }
    }
}

fn nothing(waits: Vec<Waiting>) -> Response {
    let program = None;
    Accepted(MemberWaits { program, waits }).into_response()
}

fn no_group() -> Waiting {
    Waiting {
        who: "rollouts",
        waits_for: "groups",
        message: "no group needs a member; submit more groups".to_owned(),
    }
}

async fn place(
    app: &TrainingApp,
    job: &JobName,
    program: Box<str>,
    group: Option<Box<str>>,
) -> Result<Place, Response> {
    let inside = job.inside.clone();
    let found = app.read(move |state: &Runs| {
        let job = state.jobs.get(&inside)?;
        if let Some((of, key)) = state.members.get(&program)
            && *of == inside
            && group.as_ref().is_none_or(|group| group == key)
        {
            return Some(Ok(Place::Member(key.clone())));
        }
        if group.is_none() && job.served.contains(&program) {
            return Some(Err(TrainingError::Dropped(program)));
        }
        let group = group.or_else(|| job.next_wanted().map(Box::from));
        Some(Ok(group.map_or(Place::Nowhere, Place::Wanted)))
    });
    let found = found.await?.ok_or_else(|| job.unknown())?;
    found.map_err(|error| refused(&error))
}

/// What became of a program that wanted to begin.
enum Arrived {
    Began(Admission),
    /// It may not begin yet.
    Waits(Vec<Waiting>),
}

/// Waits until a program may begin, until the deadline.
async fn arrive(
    app: &TrainingApp,
    job: &JobName,
    member: MemberRef,
    deadline: Instant,
) -> Result<Arrived, Response> {
    let mut arriving = pin!(app.driver.arrive(member, true));
    // A program that need not wait is answered in any case.
    let deadline = deadline.max(Instant::now() + ADMISSION);
    let Ok(arrived) = timeout_at(deadline, arriving.as_mut()).await else {
        return app.read_job(job, waits).await.map(Arrived::Waits);
    };
    let admitted = arrived.map_err(not_recorded)?;
    admitted
        .map(Arrived::Began)
        .map_err(|error| refused(&error))
}

async fn begun(
    app: &TrainingApp,
    job: &JobName,
    program: ClientName,
    member: MemberRef,
    admitted: Admission,
) -> Result<MemberBegun, Response> {
    let key = member.group.clone();
    let read = app.read_job(job, move |job| {
        let group = job.groups.get(&member.group);
        let version = group.and_then(|group| Some(group.members.get(&member.program)?.version));
        let version = version.or(job.version).unwrap_or_default();
        (version, group.and_then(|group| group.content.clone()))
    });
    let (version, content) = read.await?;
    let content = content.map(|digest| of_group(&key, &digest));
    let content = match content {
        Some(name) => json_of(&app.payloads(job, slice::from_ref(&name)).await?, &name),
        None => Value::Null,
    };
    Ok(MemberBegun {
        program: program.to_string(),
        group: key.to_string(),
        content,
        version,
        surplus: admitted == Admission::Surplus,
    })
}

/// How a member ended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MemberEnd {
    /// completed, truncated, aborted, environment_failed, engine_failed, reward_failed or
    /// client_failed.
    #[schema(value_type = String)]
    end: End,
    /// Its reward; absent if it comes later. A failure has none.
    reward: Option<f64>,
    /// Its tokens.
    sample: Option<SampleRequest>,
    /// Tokens that it sampled, if there is no `sample`.
    tokens: Option<u64>,
    /// Its steps, if there is no `sample`.
    turns: Option<u32>,
    /// Any JSON of at most 64 KiB, which comes back in the batch.
    #[schema(value_type = Object)]
    info: Option<Value>,
}

/// The report is on record.
#[derive(Serialize, ToSchema)]
struct EndedMember {
    /// The program.
    program: String,
    /// Its group.
    group: String,
    /// Digest of its sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<String>,
    /// Tokens to train.
    tokens: u64,
}

async fn end(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
    Body(request): Body<MemberEnd>,
) -> Answer<EndedMember> {
    let job = JobName::of(&caller, job);
    let reward = request.reward.map(finite).transpose()?;
    let is_trained = request.end.is_trained();
    if request.end == End::Cut || (!is_trained && (reward.is_some() || request.sample.is_some())) {
        let message = "a member that failed has no reward and no sample, and only treadle cuts; \
                       leave both out";
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let located = app.locate(&caller, &job, &program).await?;
    let checked = request
        .sample
        .map(|sample| sample.check(located.member.version));
    let checked = checked
        .transpose()
        .map_err(|error| error_response(&error))?;
    check_versions(&located, checked.as_ref())?;
    let sample = checked.as_ref().map(|c| digest_text(&digest(&c.sequences)));
    let missing = located.missing(request.end, reward, sample.as_deref())?;
    let tokens = checked.as_ref().map(|checked| checked.tokens);
    let tokens = tokens.or(request.tokens).unwrap_or_default();
    let turns = checked.as_ref().map(|checked| checked.turns);
    let turns = turns.or(request.turns).unwrap_or_default();
    let version = checked.as_ref().and_then(|checked| checked.versions);
    let stored = checked.filter(|_| missing.sample);
    keep(
        &app,
        &caller,
        &job,
        &located,
        stored,
        sample.as_deref(),
        request.info,
    )
    .await?;
    let member = located.at;
    let mut events = Vec::new();
    if let Some(digest) = sample.as_deref().filter(|_| missing.sample) {
        events.push(TrainingEvent::SampleStored {
            member: member.clone(),
            sample: digest.into(),
            tokens,
            version: version.map(|(oldest, _)| oldest),
        });
    }
    if let Some(reward) = reward.filter(|_| missing.reward) {
        let member = member.clone();
        events.push(TrainingEvent::RewardGiven { member, reward });
    }
    if missing.end {
        events.push(TrainingEvent::MemberEnded {
            member: member.clone(),
            end: request.end,
            tokens,
            turns,
        });
    }
    app.train_all(events).await?;
    Ok(Json(EndedMember {
        program: program.to_string(),
        group: member.group.to_string(),
        sample,
        tokens,
    }))
}

/// No token can be of a version that engines did not have yet.
fn check_versions(located: &Located, checked: Option<&Checked>) -> Result<(), Response> {
    let newest = checked
        .and_then(|checked| checked.versions)
        .map(|(_, newest)| newest);
    let Some((newest, current)) = newest.zip(located.version) else {
        return Ok(());
    };
    if newest <= current {
        return Ok(());
    }
    let message = format!(
        "the sample has tokens of version {newest}, but engines have {current}; report versions \
         with POST versions before they sample"
    );
    Err(refuse(ErrorCode::VersionConflict, message))
}

/// Stores what a report has that events do not.
async fn keep(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
    located: &Located,
    checked: Option<Checked>,
    digest: Option<&str>,
    info: Option<Value>,
) -> Result<(), Response> {
    let program = &located.at.program;
    let mut payloads = Vec::new();
    if let (Some(checked), Some(digest)) = (checked, digest) {
        let body = store(checked.sequences).map_err(|error| {
            let message = format!("the sample can't be stored: {error}");
            refuse(ErrorCode::SampleInvalid, message)
        })?;
        payloads.push(payload(job, of_sample(program, digest), body));
    }
    if let Some(info) = info.filter(|_| located.member.end.is_none()) {
        let body = info.to_string().into_bytes();
        if body.len() > INFO_BYTES_MAX {
            let message = format!("`info` is longer than {INFO_BYTES_MAX} bytes; send less");
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        payloads.push(payload(job, of_info(program), body));
    }
    if payloads.is_empty() {
        return Ok(());
    }
    let bytes = payloads.iter().map(|payload| payload.size_bytes).sum();
    app.reserve(caller, bytes).await?;
    let stored = app.store.put_payloads(&payloads).await;
    stored.map_err(|error| store_failed(&error))
}

fn finite(reward: f64) -> Result<Reward, Response> {
    Reward::new(reward).ok_or_else(|| {
        let message = "`reward` is not a finite number; report `failed` without one";
        refuse(ErrorCode::InvalidField, message)
    })
}

/// A reward, or why it could not be computed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MemberReward {
    /// A finite number.
    reward: Option<f64>,
    /// Why no reward could be computed; the member is replaced.
    failed: Option<String>,
}

async fn reward(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
    Body(request): Body<MemberReward>,
) -> Answer<EndedMember> {
    let job = JobName::of(&caller, job);
    let located = app.locate(&caller, &job, &program).await?;
    let member = located.at;
    let group = member.group.to_string();
    let (sample, tokens) = (located.member.sample, located.member.tokens);
    let event = match (request.reward, request.failed) {
        (Some(reward), None) => {
            let reward = finite(reward)?;
            if located.served && located.member.reward != Some(reward) {
                return Err(served());
            }
            TrainingEvent::RewardGiven { member, reward }
        }
        (None, Some(_)) if located.served => return Err(served()),
        (None, Some(cause)) => {
            let cause = cause.chars().take(256).collect::<String>().into();
            TrainingEvent::RewardFailed { member, cause }
        }
        _ => {
            let message = "send either `reward` or `failed`";
            return Err(refuse(ErrorCode::InvalidField, message));
        }
    };
    if !located.served {
        app.train(event).await?;
    }
    Ok(Json(EndedMember {
        program: program.to_string(),
        group,
        sample: sample.map(Into::into),
        tokens,
    }))
}

fn served() -> Response {
    let message = "the member is in a batch; its reward can't change any more";
    refuse(ErrorCode::MemberConflict, message)
}
