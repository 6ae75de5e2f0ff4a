//! Programs and jobs: what the store knows of them, and their end.

use super::arguments::{InPath, Query, optional};
use super::endpoint::{Endpoint, delete, get};
use super::signature::Answer;
use super::{not_recorded, recorded_first, refuse, stopped, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::permissions::{RUN, VIEW};
use treadle_auth::{Caller, Change};
use treadle_core::Event;
use treadle_model::{ClientName, Tenant};
use treadle_store::{DecisionRow, ProgramPage, ProgramRow, SeqPage, StepPage, StepRow};
use treadle_wire::{ErrorCode, without_tenant};
use utoipa::{IntoParams, ToSchema};

pub(super) fn endpoints() -> Vec<Endpoint> {
    let program = "/api/v1/programs/{program}";
    let of_program = |part: &str| format!("{program}/{part}");
    vec![
        get("/api/v1/programs", VIEW, history)
            .around(recorded_first)
            .summary("All programs on record, newest first"),
        get(program, VIEW, show)
            .around(recorded_first)
            .summary("One program")
            .fails(&[ErrorCode::ProgramUnknown]),
        delete(program, RUN, release)
            .summary("Ends a program")
            .fails(&[ErrorCode::Overloaded]),
        get(&of_program("steps"), VIEW, steps)
            .around(recorded_first)
            .summary("A program's steps, by rising number"),
        get(&of_program("decisions"), VIEW, decisions)
            .around(recorded_first)
            .summary("Why a program was placed, paused and restored"),
        delete("/api/v1/jobs/{job}", RUN, release_job)
            .summary("Ends all live programs of a job")
            .fails(&[ErrorCode::Overloaded]),
    ]
}

/// No live program has this name.
pub(crate) fn unknown(program: &str) -> Response {
    let message = format!("no program `{program}` is live; GET /programs lists those that are");
    refuse(ErrorCode::ProgramUnknown, message)
}

/// A program has ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct Released {
    /// Its name.
    program_id: String,
    /// Whether it was live.
    released: bool,
}

async fn release(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Answer<Released> {
    release_one(&app, &caller, program).await
}

/// Ends a program and waits until that is on record.
pub(crate) async fn release_one(
    app: &App,
    caller: &Caller,
    program: ClientName,
) -> Answer<Released> {
    let key = caller.principal.inside(&program);
    let wanted = key.clone();
    let live = app
        .driver
        .read(move |view| view.core.program(&wanted).map(|p| p.steps_finished))
        .await
        .map_err(|_| stopped())?;
    let event = Event::ProgramReleased {
        program: key.as_str().into(),
    };
    app.driver.event_committed(event).await.map_err(not_recorded)?;
    if let Some(steps) = live {
        let change = Change {
            action: "program.released",
            target: &program,
            before: json!({"steps": steps}),
            after: Value::Null,
        };
        app.auth.audit.note(caller, change).await;
    }
    Ok(Json(Released {
        program_id: program.to_string(),
        released: live.is_some(),
    }))
}

/// A job has ended.
#[derive(Serialize, ToSchema)]
struct ReleasedJob {
    /// Its name.
    job: String,
    /// How many of its programs were live.
    released: usize,
}

async fn release_job(
    State(app): State<App>,
    caller: Caller,
    InPath(job): InPath,
) -> Answer<ReleasedJob> {
    let wanted = caller.principal.inside(&job);
    let keys = app.driver.read(move |view| {
        let programs = view.core.state().programs.values();
        programs
            .filter(|p| *p.job == *wanted)
            .map(|p| p.key.clone())
            .collect::<Vec<_>>()
    });
    let keys = keys.await.map_err(|_| stopped())?;
    for program in &keys {
        app.driver.event(Event::ProgramReleased {
            program: program.clone(),
        });
    }
    app.driver.recorded().await.map_err(|_| stopped())?;
    let change = Change {
        action: "job.released",
        target: &job,
        before: json!({"live_programs": keys.len()}),
        after: Value::Null,
    };
    app.auth.audit.note(&caller, change).await;
    Ok(Json(ReleasedJob {
        job: job.to_string(),
        released: keys.len(),
    }))
}

/// Which programs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ProgramQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those of this status: queued, active, paused, finished or aborted.
    status: Option<String>,
    /// Most programs.
    limit: Option<u32>,
}

/// A page of programs.
#[derive(Serialize, ToSchema)]
struct Programs {
    /// Newest first.
    programs: Vec<ProgramView>,
}

/// A program as it was last seen. Times are microseconds since 1970.
#[derive(Serialize, ToSchema)]
struct ProgramView {
    /// Its name.
    program_id: String,
    /// Job that it belongs to.
    job: Option<String>,
    /// queued, active, paused, finished or aborted.
    status: String,
    /// reasoning or acting.
    phase: String,
    /// Worker that it is placed on.
    worker: Option<String>,
    /// Length of its context.
    context_tokens: u64,
    /// Steps so far.
    steps: u64,
    /// Tokens of prompt and output of all its steps.
    tokens_total: u64,
    /// When it was first seen.
    created_at_us: u64,
    /// When it last changed.
    updated_at_us: u64,
    /// How it ended, if it did.
    ended: Option<String>,
}

impl ProgramView {
    /// A program as its tenant sees it; `None` for another's.
    fn of(tenant: &Tenant, row: &ProgramRow) -> Option<Self> {
        Some(Self {
            program_id: tenant.outside(&row.program)?.to_owned(),
            job: tenant.outside(&row.job).map(str::to_owned),
            status: row.status.clone(),
            phase: row.phase.clone(),
            worker: row.worker.clone(),
            context_tokens: row.context_tokens,
            steps: row.steps,
            tokens_total: row.tokens_total,
            created_at_us: row.created_at_us,
            updated_at_us: row.updated_at_us,
            ended: row.ended.clone(),
        })
    }
}

async fn history(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ProgramQuery>,
) -> Answer<Programs> {
    let tenant = &caller.principal.tenant.tenant;
    let job = optional("job", query.job)?;
    let page = ProgramPage {
        job: job.map(|job| tenant.inside(&job).into_owned()),
        status: query.status,
        names: tenant.into(),
        after: None,
        limit: query.limit.unwrap_or(100),
    };
    let rows = app.store.programs(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let shown = |row| ProgramView::of(tenant, row);
    Ok(Json(Programs {
        programs: rows.iter().filter_map(shown).collect(),
    }))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
) -> Answer<ProgramView> {
    let tenant = &caller.principal.tenant.tenant;
    let row = app.store.program(&tenant.inside(&program)).await;
    let row = row.map_err(|error| store_failed(&error))?;
    let shown = row.and_then(|row| ProgramView::of(tenant, &row));
    shown.map(Json).ok_or_else(|| unknown(&program))
}

/// Which part of a listing.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StepQuery {
    /// Only those after this number.
    after: Option<u64>,
    /// Most of them.
    limit: Option<u32>,
}

/// A page of steps.
#[derive(Serialize, ToSchema)]
struct Steps {
    /// By rising number.
    steps: Vec<StepView>,
}

/// One call of a program to an engine. Times are microseconds since 1970.
#[derive(Serialize, ToSchema)]
struct StepView {
    /// Its number.
    step: u64,
    /// Worker that served it.
    worker: Option<String>,
    /// When the request came in.
    arrived_at_us: u64,
    /// When it went to the worker.
    dispatched_at_us: Option<u64>,
    /// When the first token came back.
    first_token_at_us: Option<u64>,
    /// When the last token came back, or the failure.
    finished_at_us: Option<u64>,
    /// Tokens of the prompt.
    prompt_tokens: u64,
    /// Tokens that were generated.
    output_tokens: u64,
    /// Tokens of the prompt that the engine had in its cache, where it reports them.
    cached_tokens: Option<u64>,
    /// How it went.
    outcome: String,
    /// How long it was held back before it went to the worker.
    waited_us: u64,
    /// Why it was held back or failed.
    cause: Option<String>,
}

impl From<StepRow> for StepView {
    fn from(row: StepRow) -> Self {
        Self {
            step: row.step,
            worker: row.worker,
            arrived_at_us: row.arrived_at_us,
            dispatched_at_us: row.dispatched_at_us,
            first_token_at_us: row.first_token_at_us,
            finished_at_us: row.finished_at_us,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            cached_tokens: row.cached_tokens,
            outcome: row.outcome,
            waited_us: row.waited_us,
            cause: row.cause,
        }
    }
}

async fn steps(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<StepQuery>,
) -> Answer<Steps> {
    let page = StepPage {
        after: query.after,
        limit: query.limit.unwrap_or(1_000),
    };
    let key = caller.principal.inside(&program);
    let rows = app.store.steps(&key, &page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    Ok(Json(Steps {
        steps: rows.into_iter().map(StepView::from).collect(),
    }))
}

/// A page of decisions.
#[derive(Serialize, ToSchema)]
struct Decisions {
    /// In the order in which they were made.
    decisions: Vec<DecisionView>,
}

/// A decision and its reasons.
#[derive(Serialize, ToSchema)]
struct DecisionView {
    /// Event that led to it.
    seq: u64,
    /// When it was taken, in microseconds on the journal's clock.
    at_us: u64,
    /// Kind of decision.
    kind: String,
    /// Worker that it is about, if any.
    worker: Option<String>,
    /// Policy that took it, with its version.
    policy: String,
    /// Inputs, scores and alternatives.
    #[schema(value_type = Object)]
    why: Value,
}

impl DecisionView {
    /// A decision as a tenant sees it; `alone` if there are no others to hide.
    fn of(tenant: &Tenant, alone: bool, row: DecisionRow) -> Self {
        let mut why: Value = serde_json::from_str(&row.why).unwrap_or(Value::Null);
        // What else could have been chosen may be programs of others.
        if let Some(others) = why.pointer_mut("/alternatives").filter(|_| !alone) {
            *others = json!([]);
        }
        Self {
            seq: row.seq,
            at_us: row.at_us,
            kind: row.kind,
            worker: row.worker,
            policy: row.policy,
            why: without_tenant(tenant, why),
        }
    }
}

async fn decisions(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<StepQuery>,
) -> Answer<Decisions> {
    let page = SeqPage {
        after: query.after,
        limit: query.limit.unwrap_or(1_000),
        ..SeqPage::default()
    };
    let principal = &caller.principal;
    let alone = principal.root || app.auth.has_one_tenant();
    let program = principal.inside(&program);
    let rows = app.store.decisions(Some(&program), &page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let shown = |row| DecisionView::of(&principal.tenant.tenant, alone, row);
    Ok(Json(Decisions {
        decisions: rows.into_iter().map(shown).collect(),
    }))
}
