//! Programs: the live ones as `ThunderAgent`'s clients see them, and the
//! history of all from the store.

use super::names::{InPath, name, optional};
use super::{not_recorded, object, ok, refuse, stopped, store_failed};
use crate::app::App;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use treadle_auth::{Caller, Change};
use treadle_core::Event;
use treadle_core::program::Program;
use treadle_model::ClientName;
use treadle_model::Tenant;
use treadle_scheduler::View;
use treadle_store::{DecisionRow, ProgramPage, ProgramRow, SeqPage, StepPage, StepRow};
use treadle_wire::{ErrorCode, without_tenant};

/// `GET /programs`: live programs by key.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let principal = caller.principal;
    let all = app.driver.read(move |view| {
        let programs = view.core.state().programs.values();
        let own = |p: &Program| {
            let key = principal.outside(&p.key)?.to_owned();
            let mut shown = live(view, p);
            shown["job"] = principal.outside(&p.job).into();
            Some((key, shown))
        };
        programs.filter_map(own).collect::<Map<_, _>>()
    });
    all.await
        .map_or_else(|_| stopped(), |all| ok(Value::Object(all)))
}

fn live(view: &View<'_>, p: &Program) -> Value {
    let worker = p
        .place
        .and_then(|place| view.core.state().workers.get(&place.worker));
    json!({
        "backend": worker.map(|w| &w.url),
        "job": p.job,
        "context_len": p.context_tokens,
        "total_tokens": p.context_tokens,
        "demand_tokens": p.demand_tokens,
        "step_count": p.steps_finished,
        "status": p.phase,
        "state": p.status,
        "pauses": p.pauses,
        "waiting_steps": p.waiting.len(),
        "running_steps": p.running.len(),
        "prompt_tokens_total": p.prompt_tokens_total,
        "output_tokens_total": p.output_tokens_total,
        "cached_tokens_total": p.cached_tokens_total,
        "cache": super::caches::of_program(view.core.state(), p),
        "profile": view.profiles.get(&p.key).map(treadle_scheduler::Profile::to_json),
    })
}

/// `GET /profiles`.
pub(super) async fn profiles(State(app): State<App>, caller: Caller) -> Response {
    let principal = caller.principal;
    let all = app.driver.read(move |view| {
        let keys = view.core.state().keys.keys();
        let own = |key: &str| {
            let profile = view.profiles.get(key)?.to_json();
            Some((principal.outside(key)?.to_owned(), profile))
        };
        keys.filter_map(|key| own(key)).collect::<Map<_, _>>()
    });
    all.await
        .map_or_else(|_| stopped(), |all| ok(Value::Object(all)))
}

/// `GET /profiles/{program}`.
pub(super) async fn profile(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Response {
    let wanted = caller.principal.inside(&program);
    match app
        .driver
        .read(move |view| view.profiles.get(&wanted))
        .await
    {
        Ok(Some(profile)) => ok(profile.to_json()),
        Ok(None) => unknown(&program),
        Err(_) => stopped(),
    }
}

fn unknown(program: &str) -> Response {
    let message = format!("no program `{program}` is live; GET /programs lists those that are");
    refuse(ErrorCode::ProgramUnknown, message)
}

/// `POST /programs/release {"program_id"}`.
pub(super) async fn release(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let program = match request.get("program_id") {
        Some(Value::String(program)) if !program.is_empty() => program.clone(),
        Some(Value::Number(program)) => program.to_string(),
        _ => {
            let message = "`program_id` is missing; send {\"program_id\": \"...\"}";
            return refuse(ErrorCode::MissingField, message);
        }
    };
    match name("program_id", program) {
        Ok(program) => release_one(&app, &caller, program).await,
        Err(response) => response,
    }
}

/// Which session is over.
#[derive(Deserialize)]
pub(super) struct SessionQuery {
    session_id: Option<String>,
}

/// `POST /finish_session?session_id=`.
pub(super) async fn finish_session(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<SessionQuery>,
) -> Response {
    match query.session_id {
        Some(session) if !session.is_empty() => match name("session_id", session) {
            Ok(program) => release_one(&app, &caller, program).await,
            Err(response) => response,
        },
        _ => refuse(
            ErrorCode::MissingField,
            "`session_id` is missing from the query",
        ),
    }
}

/// `DELETE /v1/programs/{program}`.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Response {
    release_one(&app, &caller, program).await
}

async fn release_one(app: &App, caller: &Caller, program: ClientName) -> Response {
    let key = caller.principal.inside(&program);
    let wanted = key.clone();
    let live = app
        .driver
        .read(move |view| view.core.program(&wanted).map(|p| p.steps_finished))
        .await;
    let event = Event::ProgramReleased {
        program: key.as_str().into(),
    };
    let Ok(live) = live else {
        return stopped();
    };
    if let Err(error) = app.driver.event_committed(event).await {
        return not_recorded(error);
    }
    if let Some(steps) = live {
        note_release(app, caller, &program, json!({"steps": steps})).await;
    }
    ok(json!({"program_id": program, "released": live.is_some()}))
}

async fn note_release(app: &App, caller: &Caller, target: &str, before: Value) {
    let change = Change {
        action: "program.released",
        target,
        before,
        after: Value::Null,
    };
    app.auth.audit.note(caller, change).await;
}

/// `DELETE /v1/jobs/{job}`: releases all live programs of an RL run.
pub(super) async fn delete_job(
    State(app): State<App>,
    caller: Caller,
    InPath(job): InPath,
) -> Response {
    let wanted = caller.principal.inside(&job);
    let keys = app.driver.read(move |view| {
        let programs = view.core.state().programs.values();
        programs
            .filter(|p| *p.job == *wanted)
            .map(|p| p.key.clone())
            .collect::<Vec<_>>()
    });
    let Ok(keys) = keys.await else {
        return stopped();
    };
    for program in &keys {
        app.driver.event(Event::ProgramReleased {
            program: program.clone(),
        });
    }
    if app.driver.recorded().await.is_err() {
        return stopped();
    }
    let change = Change {
        action: "job.released",
        target: &job,
        before: json!({"live_programs": keys.len()}),
        after: Value::Null,
    };
    app.auth.audit.note(&caller, change).await;
    ok(json!({"job": job, "released": keys.len()}))
}

/// Which part of a listing.
#[derive(Deserialize)]
pub(super) struct PageQuery {
    job: Option<String>,
    status: Option<String>,
    after: Option<u64>,
    limit: Option<u32>,
}

/// `GET /v1/programs`: all that the store knows, newest first.
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Response {
    let tenant = &caller.principal.tenant.tenant;
    let job = match optional("job", query.job) {
        Ok(job) => job,
        Err(response) => return response,
    };
    let page = ProgramPage {
        job: job.map(|job| tenant.inside(&job).into_owned()),
        status: query.status,
        names: tenant.into(),
        after: None,
        limit: query.limit.unwrap_or(100),
    };
    let shown = |row| program_json(tenant, row);
    match app.store.programs(&page).await {
        Ok(rows) => ok(json!({"programs": rows.iter().filter_map(shown).collect::<Vec<_>>()})),
        Err(error) => store_failed(&error),
    }
}

/// `GET /v1/programs/{program}`.
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Response {
    let tenant = &caller.principal.tenant.tenant;
    match app.store.program(&tenant.inside(&program)).await {
        Ok(row) => row
            .and_then(|row| program_json(tenant, &row))
            .map_or_else(|| unknown(&program), ok),
        Err(error) => store_failed(&error),
    }
}

/// `GET /v1/programs/{program}/steps`.
pub(super) async fn steps(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<PageQuery>,
) -> Response {
    let page = StepPage {
        after: query.after,
        limit: query.limit.unwrap_or(1_000),
    };
    let key = caller.principal.inside(&program);
    match app.store.steps(&key, &page).await {
        Ok(rows) => ok(json!({"steps": rows.iter().map(step_json).collect::<Vec<_>>()})),
        Err(error) => store_failed(&error),
    }
}

/// `GET /v1/programs/{program}/decisions`: why it was placed, paused, restored.
pub(super) async fn decisions(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<PageQuery>,
) -> Response {
    let page = SeqPage {
        after: query.after,
        limit: query.limit.unwrap_or(1_000),
        ..SeqPage::default()
    };
    let principal = &caller.principal;
    // What else could have been chosen may be programs of others.
    let alone = principal.root || app.auth.has_one_tenant();
    let shown = |row| {
        let mut decision = decision_json(row);
        if let Some(others) = decision.pointer_mut("/why/alternatives").filter(|_| !alone) {
            *others = json!([]);
        }
        without_tenant(&principal.tenant.tenant, decision)
    };
    match app
        .store
        .decisions(Some(&principal.inside(&program)), &page)
        .await
    {
        Ok(rows) => ok(json!({"decisions": rows.iter().map(shown).collect::<Vec<_>>()})),
        Err(error) => store_failed(&error),
    }
}

/// A program as its tenant sees it; `None` for another's.
fn program_json(tenant: &Tenant, row: &ProgramRow) -> Option<Value> {
    Some(json!({
        "program_id": tenant.outside(&row.program)?, "job": tenant.outside(&row.job),
        "status": row.status, "phase": row.phase,
        "worker": row.worker, "context_tokens": row.context_tokens, "steps": row.steps,
        "tokens_total": row.tokens_total, "created_at_us": row.created_at_us,
        "updated_at_us": row.updated_at_us, "ended": row.ended,
    }))
}

fn step_json(row: &StepRow) -> Value {
    json!({
        "step": row.step, "worker": row.worker, "arrived_at_us": row.arrived_at_us,
        "dispatched_at_us": row.dispatched_at_us, "first_token_at_us": row.first_token_at_us,
        "finished_at_us": row.finished_at_us, "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens, "cached_tokens": row.cached_tokens,
        "outcome": row.outcome, "waited_us": row.waited_us, "cause": row.cause,
    })
}

fn decision_json(row: &DecisionRow) -> Value {
    let why: Value = serde_json::from_str(&row.why).unwrap_or(Value::Null);
    json!({"seq": row.seq, "at_us": row.at_us, "kind": row.kind, "worker": row.worker,
        "policy": row.policy, "why": why})
}
