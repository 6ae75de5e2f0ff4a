//! Members: beginning them, and what their clients report of them.

use crate::app::{JobName, TrainingApp, stopped, store_failed, wait_of};
use crate::jobs::declare_by_name;
use crate::payloads::{
    Json, digest_of, digest_text, json_of, of_group, of_info, of_sample, payload,
};
use crate::refusal::{REFUSALS, not_recorded, refused};
use crate::report::{Located, Membership, served};
use crate::sample::{Checked, SampleRequest};
use crate::waits::Waiting;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_core::training::{
    Begun as Admission, End, Member, MemberRef, Report, Reward, TrainingEvent,
};
use treadle_endpoints::arguments::{Body, InPath, LastInPath, Verbatim, name, optional};
use treadle_endpoints::signature::{Accepted, Answer};
use treadle_endpoints::{Endpoint, post, put};
use treadle_http::{error_response, refuse};
use treadle_model::ClientName;
use treadle_samples::{Sample, digest, store};
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
            .details(
                "Repeating the request with the same program has the same result. A job that is \
                 not declared comes into being, with defaults.",
            )
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
pub(crate) struct MemberRequest {
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
    content: Json,
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

pub(crate) async fn begin(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Body(request): Body<MemberRequest>,
) -> Result<Response, Response> {
    let job = JobName::of(&caller, job);
    let program = name("program", request.program)?;
    let inside: Box<str> = caller.principal.inside(&program).into();
    let group = optional("group", request.group)?;
    let at = group.map(|group| MemberRef {
        job: job.inside.clone(),
        group: group.as_str().into(),
        program: inside.clone(),
    });
    declare_by_name(&app, &caller, &job).await?;
    let deadline = Instant::now() + wait_of(request.wait_s);
    loop {
        let waits = match arrive(&app, &job, inside.clone(), at.clone(), deadline).await? {
            Arrived::Began(member, admission) => {
                let begun = begun(&app, &job, program, member, admission).await?;
                return Ok(axum::Json(begun).into_response());
            }
            Arrived::Nowhere if Instant::now() < deadline => {
                sleep(LOOK_EVERY.min(deadline - Instant::now())).await;
                continue;
            }
            Arrived::Nowhere => {
                let mut waits = app.waits(&job).await?;
                waits.push(no_group());
                waits
            }
            Arrived::Waits(waits) => waits,
        };
        let program = None;
        return Ok(Accepted(MemberWaits { program, waits }).into_response());
    }
}

fn no_group() -> Waiting {
    Waiting {
        who: "rollouts",
        waits_for: "groups",
        message: "no group needs a member; submit more groups".to_owned(),
    }
}

/// What became of a program that wanted to begin.
enum Arrived {
    Began(MemberRef, Admission),
    /// It may not begin yet.
    Waits(Vec<Waiting>),
    /// No group needs it.
    Nowhere,
}

/// Waits until a program may begin, in this group or in any, until the deadline.
async fn arrive(
    app: &TrainingApp,
    job: &JobName,
    program: Box<str>,
    at: Option<MemberRef>,
    deadline: Instant,
) -> Result<Arrived, Response> {
    let mut arriving = pin!(async {
        let Some(at) = at else {
            let job = job.inside.clone();
            return app.driver.arrive_anywhere(job, program).await;
        };
        let begun = app.driver.arrive(at.clone(), true).await;
        begun.map(|begun| begun.map(|begun| Some((at, begun))))
    });
    // A program that need not wait is answered in any case.
    let deadline = deadline.max(Instant::now() + ADMISSION);
    let Ok(arrived) = timeout_at(deadline, arriving.as_mut()).await else {
        return app.waits(job).await.map(Arrived::Waits);
    };
    let arrived = arrived.map_err(not_recorded)?;
    let arrived = arrived.map_err(|error| refused(&error))?;
    Ok(arrived.map_or(Arrived::Nowhere, |(member, admission)| {
        Arrived::Began(member, admission)
    }))
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
    let payloads = app.payloads(job, content.as_slice()).await?;
    let content = json_of(&payloads, content.as_deref())?;
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
pub(crate) struct MemberEnd {
    /// completed, truncated, aborted, environment_failed, engine_failed, reward_failed or
    /// client_failed.
    #[schema(value_type = String)]
    end: End,
    /// Its reward; absent if it comes later. A failure has none.
    reward: Option<f64>,
    /// Its tokens.
    sample: Option<SampleRequest>,
    /// Digest of `sample` as its client computed it; another one is refused.
    digest: Option<String>,
    /// Tokens that it sampled, if there is no `sample`.
    tokens: Option<u64>,
    /// Its steps, if there is no `sample`.
    turns: Option<u32>,
    /// Any JSON of at most 64 KiB, which comes back in the batch.
    #[schema(value_type = Object)]
    info: Option<Json>,
}

/// The report is on record.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndedMember {
    /// The program.
    program: String,
    /// Its group; absent if it is no member any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Digest of its sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<String>,
    /// Tokens to train.
    tokens: u64,
}

impl EndedMember {
    fn dropped(program: &ClientName) -> Self {
        Self {
            program: program.to_string(),
            group: None,
            sample: None,
            tokens: 0,
        }
    }
}

pub(crate) async fn end(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
    Verbatim(request): Verbatim<MemberEnd>,
) -> Answer<EndedMember> {
    let job = JobName::of(&caller, job);
    let reward = request.reward.map(finite).transpose()?;
    let is_trained = request.end.is_trained();
    let is_own = request.end.is_by_core() || request.end == End::CaptureFailed;
    if is_own || (!is_trained && (reward.is_some() || request.sample.is_some())) {
        let message = "a member that failed has no reward and no sample, and only treadle cuts \
                       or captures; leave both out";
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let found = app.locate(&caller, &job, &program, None).await?;
    if matches!(found, Membership::Dropped) && !is_trained {
        // The same report may have dropped it.
        return Ok(axum::Json(EndedMember::dropped(&program)));
    }
    let located = found.member(&job, &program)?;
    let checked = checked(request.sample, located.member.version).await?;
    check_versions(&located, checked.as_ref())?;
    let sample = digest_of_sample(checked.as_ref(), request.digest.as_deref())?;
    let counted = checked.as_ref().map(|c| (c.tokens, c.turns));
    let (tokens, turns) = counted.unwrap_or_else(|| {
        let (tokens, turns) = (request.tokens, request.turns);
        (tokens.unwrap_or_default(), turns.unwrap_or_default())
    });
    let info = request
        .info
        .as_ref()
        .map(|info| digest_of(info.get().as_bytes()));
    let breaks = checked.as_ref().map(|c| c.breaks.clone());
    let report = Report {
        end: request.end,
        tokens,
        turns,
        reward,
        version: checked
            .as_ref()
            .and_then(|c| c.versions)
            .map(|(oldest, _)| oldest),
        breaks: breaks.unwrap_or_default(),
        sample: sample.map(Into::into),
        info: info.map(Into::into),
    };
    let ended = EndedMember {
        program: program.to_string(),
        group: Some(located.at.group.to_string()),
        sample: report.sample.as_deref().map(str::to_owned),
        tokens,
    };
    if located.member.has(&report) {
        return Ok(axum::Json(ended));
    }
    if located.served {
        return Err(served());
    }
    keep(
        &app,
        &caller,
        &job,
        &located.at,
        &report,
        checked,
        request.info,
    )
    .await?;
    let told = report.clone();
    let member = located.at;
    let event = TrainingEvent::MemberEnded { member, report };
    app.train_member(&caller, &job, &program, event, |found| found.has(&told))
        .await?;
    Ok(axum::Json(ended))
}

/// Checks and merges a sample; a long one takes time.
async fn checked(sample: Option<SampleRequest>, begun: u64) -> Result<Option<Checked>, Response> {
    let Some(sample) = sample else {
        return Ok(None);
    };
    let checking = tokio::task::spawn_blocking(move || sample.check(begun));
    let checked = checking.await.map_err(|_| stopped())?;
    checked.map(Some).map_err(|error| error_response(&error))
}

/// The digest of a sample, if it is the one that its client named.
fn digest_of_sample(
    checked: Option<&Checked>,
    named: Option<&str>,
) -> Result<Option<String>, Response> {
    let found = checked.map(|checked| digest_text(&digest(&checked.sequences)));
    let Some(named) = named.filter(|named| found.as_deref() != Some(*named)) else {
        return Ok(found);
    };
    let message = match found {
        Some(found) => format!(
            "`digest` is {named}, and that of `sample` is {found}: tokens changed on their way, or \
             were counted in another way; send both again, or leave `digest` out"
        ),
        None => "`digest` is that of `sample`; send both, or neither".to_owned(),
    };
    Err(refuse(ErrorCode::SampleInvalid, message))
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

/// Stores what a report names.
async fn keep(
    app: &TrainingApp,
    caller: &Caller,
    job: &JobName,
    at: &MemberRef,
    report: &Report,
    checked: Option<Checked>,
    info: Option<Json>,
) -> Result<(), Response> {
    let mut payloads = Vec::new();
    if let (Some(checked), Some(digest)) = (checked, &report.sample) {
        let sample = Sample {
            sequences: checked.sequences,
            logprobs: None,
            excluded: checked.excluded,
        };
        let body = store(sample).map_err(|error| {
            let message = format!("the sample can't be stored: {error}");
            refuse(ErrorCode::SampleInvalid, message)
        })?;
        payloads.push(payload(job, of_sample(&at.program, digest), body));
    }
    if let (Some(info), Some(digest)) = (info, &report.info) {
        let body = info.get().as_bytes().to_vec();
        if body.len() > INFO_BYTES_MAX {
            let message = format!("`info` is longer than {INFO_BYTES_MAX} bytes; send less");
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        payloads.push(payload(job, of_info(&at.program, digest), body));
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
pub(crate) struct MemberReward {
    /// A finite number.
    reward: Option<f64>,
    /// Why no reward could be computed; the member is replaced.
    failed: Option<String>,
}

pub(crate) async fn reward(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    LastInPath(program): LastInPath<ClientName>,
    Body(request): Body<MemberReward>,
) -> Answer<EndedMember> {
    let job = JobName::of(&caller, job);
    let found = app.locate(&caller, &job, &program, None).await?;
    if matches!(found, Membership::Dropped) && request.failed.is_some() {
        // The same report may have dropped it.
        return Ok(axum::Json(EndedMember::dropped(&program)));
    }
    let located = found.member(&job, &program)?;
    let member = located.at;
    let group = Some(member.group.to_string());
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
        let given = request.reward.map(finite).transpose()?;
        let has_it = |found: &Member| given.is_some() && found.reward == given;
        app.train_member(&caller, &job, &program, event, has_it)
            .await?;
    }
    Ok(axum::Json(EndedMember {
        program: program.to_string(),
        group,
        sample: sample.map(Into::into),
        tokens,
    }))
}
