//! The API of `ThunderAgent`: live programs, their profiles, their end. Sessions of SkyRL's clients
//! end here too.

use crate::app::App;
use crate::rest::Endpoint;
use crate::rest::caches::CachePlace;
use crate::rest::programs::{Released, release_one, unknown};
use crate::rest::stopped;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_auth::{Caller, Principal};
use treadle_endpoints::arguments::{InPath, Query, Raw, name, parse};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{get, post};
use treadle_http::{error_response, refuse};
use treadle_model::{Phase, Status, WorkerId};
use treadle_scheduler::{LiveProgram as Live, Profile};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/programs", VIEW, list)
            .summary("Live programs by name")
            .fails(&[ErrorCode::Overloaded]),
        post("/programs/release", RUN, release)
            .summary("Ends a program")
            .takes::<Release>()
            .fails(&[
                ErrorCode::MissingField,
                ErrorCode::InvalidField,
                ErrorCode::Overloaded,
            ]),
        post("/finish_session", RUN, finish_session)
            .summary("Ends a program by its session id")
            .fails(&[ErrorCode::MissingField, ErrorCode::Overloaded]),
        get("/profiles", VIEW, profiles)
            .summary("Mean times of live programs' steps and tool calls")
            .fails(&[ErrorCode::Overloaded]),
        get("/profiles/{program}", VIEW, profile)
            .summary("Mean times of one program's steps and tool calls")
            .fails(&[ErrorCode::ProgramUnknown, ErrorCode::Overloaded]),
    ]
}

/// A live program.
#[derive(Serialize, ToSchema)]
struct LiveProgram {
    /// URL of the engine that it is placed on.
    backend: Option<Box<str>>,
    /// Its job.
    job: Option<String>,
    /// Length of its context.
    context_len: u64,
    /// Length of its context, under another name.
    total_tokens: u64,
    /// Tokens that it will need with its next step.
    demand_tokens: u64,
    /// Steps that have ended.
    step_count: u32,
    /// reasoning or acting.
    #[schema(value_type = String)]
    status: Phase,
    /// queued, active, paused, finished or aborted.
    #[schema(value_type = String)]
    state: Status,
    /// How often it was paused.
    pauses: u32,
    /// The program that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// Live programs that it started and waits for.
    waits_for: usize,
    /// Its steps in the queue.
    waiting_steps: usize,
    /// Its steps at engines.
    running_steps: usize,
    /// Prompt tokens so far.
    prompt_tokens_total: u64,
    /// Output tokens so far.
    output_tokens_total: u64,
    /// Prompt tokens found in engines' caches so far.
    cached_tokens_total: u64,
    /// Location of its KV cache; absent if it must be recomputed.
    cache: Option<CachePlace>,
    /// Mean times of its steps and tool calls.
    profile: Option<ProfileView>,
}

/// Mean times of a program's steps and tool calls, in seconds of the scheduler's clock, and mean
/// tokens.
#[derive(Serialize, ToSchema)]
#[schema(value_type = Object)]
struct ProfileView(Value);

impl From<Profile> for ProfileView {
    fn from(profile: Profile) -> Self {
        Self(profile.to_json())
    }
}

impl LiveProgram {
    /// Names are shown as `principal` uses them.
    fn of(live: &Live, urls: &BTreeMap<WorkerId, Box<str>>, principal: &Principal) -> Self {
        let p = &live.program;
        let outside = |name: &str| principal.outside(name).map(str::to_owned);
        let url = p.placement.and_then(|place| urls.get(&place.worker));
        Self {
            backend: url.cloned(),
            job: outside(&p.job),
            parent: p.parent.as_deref().and_then(outside),
            waits_for: p
                .awaited
                .as_ref()
                .map_or(0, |awaited| awaited.programs.len()),
            context_len: p.context_tokens,
            total_tokens: p.context_tokens,
            demand_tokens: p.demand_tokens,
            step_count: p.steps_finished,
            status: p.phase,
            state: p.status,
            pauses: p.pauses,
            waiting_steps: p.waiting.len(),
            running_steps: p.running.len(),
            prompt_tokens_total: p.prompt_tokens_total,
            output_tokens_total: p.output_tokens_total,
            cached_tokens_total: p.cached_tokens_total,
            cache: live.cache.map(|cache| CachePlace::of(cache, urls)),
            profile: live.profile.map(ProfileView::from),
        }
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Answer<BTreeMap<String, LiveProgram>> {
    let principal = caller.principal;
    let live = app
        .driver
        .live_programs(principal.tenant.tenant.clone())
        .await;
    let live = live.map_err(|_| stopped())?;
    let own = |p: &Live| {
        let key = principal.outside(&p.program.key)?.to_owned();
        Some((key, LiveProgram::of(p, &live.urls, &principal)))
    };
    Ok(Json(live.programs.iter().filter_map(own).collect()))
}

async fn profiles(State(app): State<App>, caller: Caller) -> Answer<BTreeMap<String, ProfileView>> {
    let principal = caller.principal;
    let live = app
        .driver
        .live_programs(principal.tenant.tenant.clone())
        .await;
    let live = live.map_err(|_| stopped())?;
    let own = |p: &Live| {
        let key = principal.outside(&p.program.key)?.to_owned();
        Some((key, p.profile?.into()))
    };
    Ok(Json(live.programs.iter().filter_map(own).collect()))
}

async fn profile(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Answer<ProfileView> {
    let wanted = caller.principal.inside(&program);
    let profile = app.driver.profile(&wanted).await.map_err(|_| stopped())?;
    let profile = profile.ok_or_else(|| unknown(&program))?;
    Ok(Json(profile.into()))
}

/// The program to end. Other fields are for other routers.
#[derive(Deserialize, ToSchema)]
struct Release {
    /// Its name; numbers are accepted.
    #[serde(default)]
    #[schema(value_type = String)]
    program_id: Value,
    /// Its reward.
    #[serde(default)]
    reward: Option<f64>,
}

async fn release(State(app): State<App>, caller: Caller, Raw(body): Raw) -> Answer<Released> {
    let request: Release = parse(&body).map_err(|error| error_response(&error))?;
    let program = match request.program_id {
        Value::String(program) if !program.is_empty() => program,
        Value::Number(program) => program.to_string(),
        _ => {
            let message = "`program_id` is missing; send {\"program_id\": \"...\"}";
            return Err(refuse(ErrorCode::MissingField, message));
        }
    };
    release_one(&app, &caller, name("program_id", program)?, request.reward).await
}

/// The session to end.
#[derive(Deserialize, IntoParams)]
struct SessionQuery {
    /// The program's name.
    session_id: Option<String>,
    /// Its reward.
    reward: Option<f64>,
}

async fn finish_session(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<SessionQuery>,
) -> Answer<Released> {
    let session = query.session_id.filter(|session| !session.is_empty());
    let session = session.ok_or_else(|| {
        let message = "`session_id` is missing from the query";
        refuse(ErrorCode::MissingField, message)
    })?;
    release_one(&app, &caller, name("session_id", session)?, query.reward).await
}
