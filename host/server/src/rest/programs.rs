//! Programs and jobs: listing and ending them.

use super::Endpoint;
use super::{not_recorded, recorded_first, refuse, stopped, store_failed};
use crate::app::App;
use crate::commands::{forget_run, reward_of, rewarded};
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::permissions::{RUN, VIEW};
use treadle_auth::{Caller, Change, now_us};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_endpoints::arguments::{Body, InPath, Query, name, optional, page_limit, sorted_by};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{delete, get, put};
use treadle_http::error_response;
use treadle_model::{ClientName, Tenant};
use treadle_store::{ProgramColumn, ProgramCursor, ProgramPage, ProgramRow};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Longest text that names are searched for.
const SEARCH_BYTES_MAX: usize = 256;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let program = "/api/v1/programs/{program}";
    vec![
        get("/api/v1/programs", VIEW, history)
            .around(recorded_first)
            .summary("Live and ended programs, sorted and filtered"),
        get(program, VIEW, show)
            .around(recorded_first)
            .summary("One program")
            .fails(&[ErrorCode::ProgramUnknown]),
        delete(program, RUN, release)
            .summary("Ends a program")
            .fails(&[ErrorCode::Overloaded]),
        put("/api/v1/programs/{program}/reward", RUN, reward)
            .around(recorded_first)
            .summary("Reports a program's reward")
            .details(
                "Accepted before and after its end, while the program is on record; a later \
                      report replaces an earlier one.",
            )
            .fails(&[ErrorCode::ProgramUnknown, ErrorCode::Overloaded]),
        delete("/api/v1/jobs/{job}", RUN, release_job)
            .summary("Ends all live programs of a job; with `forget` its training run goes too")
            .fails(&[ErrorCode::Overloaded]),
    ]
}

/// The refusal if no live program has this name.
pub(crate) fn unknown(program: &str) -> Response {
    let message = format!("no live program `{program}`; GET /programs lists live programs");
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

/// What a client may report when it ends a program.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReleaseQuery {
    /// Its reward.
    reward: Option<f64>,
}

async fn release(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<ReleaseQuery>,
) -> Answer<Released> {
    release_one(&app, &caller, program, query.reward).await
}

/// Ends a program, with a reward if given, and waits until its end is on record.
pub(crate) async fn release_one(
    app: &App,
    caller: &Caller,
    program: ClientName,
    reward: Option<f64>,
) -> Answer<Released> {
    let key = caller.principal.inside(&program);
    let rewarded = reward.map(|reward| rewarded(&key, reward)).transpose();
    let rewarded = rewarded.map_err(|error| error_response(&error))?;
    let live = app.driver.program(&key).await.map_err(|_| stopped())?;
    if let Some(event) = rewarded {
        app.driver.event(event);
    }
    let event = Event::Program(ProgramEvent::ProgramReleased {
        program: key.as_str().into(),
        aborted: false,
    });
    app.driver
        .event_committed(event)
        .await
        .map_err(not_recorded)?;
    if let Some(sandboxes) = &app.sandboxes {
        sandboxes.program_ended(&caller.principal.tenant.tenant, &program);
    }
    if let Some(nodes) = &app.nodes {
        nodes.program_ended(caller.principal.tenant.tenant.name(), &program);
    }
    if let Some(steps) = live.as_ref().map(|program| program.steps_finished) {
        let change = Change {
            action: "program.released",
            target: &program,
            before: json!({"steps": steps}),
            after: reward.map_or(Value::Null, |reward| json!({"reward": reward})),
        };
        app.auth.audit.note(caller, change).await;
    }
    Ok(Json(Released {
        program_id: program.to_string(),
        released: live.is_some(),
    }))
}

/// The reward of a program.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RewardRequest {
    /// A number from -1,000,000,000 to 1,000,000,000, stored to the millionth.
    reward: f64,
}

/// The reward of a program is on record.
#[derive(Serialize, ToSchema)]
struct Rewarded {
    /// Its name.
    program_id: String,
    /// Its reward.
    reward: f64,
}

async fn reward(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Body(request): Body<RewardRequest>,
) -> Answer<Rewarded> {
    let key = caller.principal.inside(&program);
    let event = rewarded(&key, request.reward).map_err(|error| error_response(&error))?;
    let live = app.driver.program(&key).await.map_err(|_| stopped())?;
    let row = app.store.program(&key).await;
    let row = row.map_err(|error| store_failed(&error))?;
    if live.is_none() && row.is_none() {
        let message = format!("no program `{program}` on record; GET /api/v1/programs lists all");
        return Err(refuse(ErrorCode::ProgramUnknown, message));
    }
    app.driver
        .event_committed(event)
        .await
        .map_err(not_recorded)?;
    let before = row.and_then(|row| row.reward_millionths);
    let change = Change {
        action: "program.rewarded",
        target: &program,
        before: json!({"reward": before.map(reward_of)}),
        after: json!({"reward": request.reward}),
    };
    app.auth.audit.note(&caller, change).await;
    Ok(Json(Rewarded {
        program_id: program.to_string(),
        reward: request.reward,
    }))
}

/// A job has ended.
#[derive(Serialize, ToSchema)]
struct ReleasedJob {
    /// Its name.
    job: String,
    /// Number of its programs that were live.
    released: usize,
    /// Whether a training run of this name was removed.
    forgotten: bool,
}

/// What else ends with a job.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReleaseJobQuery {
    /// Also remove its training run, with its groups, batches and payloads.
    #[serde(default)]
    #[param(required = false)]
    forget: bool,
}

async fn release_job(
    State(app): State<App>,
    caller: Caller,
    InPath(job): InPath,
    Query(query): Query<ReleaseJobQuery>,
) -> Answer<ReleasedJob> {
    let wanted = caller.principal.inside(&job);
    let keys = app.driver.programs_of(&wanted).await;
    let keys = keys.map_err(|_| stopped())?;
    for program in &keys {
        app.driver
            .event(Event::Program(ProgramEvent::ProgramReleased {
                program: program.clone(),
                aborted: true,
            }));
    }
    app.driver.recorded().await.map_err(|_| stopped())?;
    let change = Change {
        action: "job.released",
        target: &job,
        before: json!({"live_programs": keys.len()}),
        after: Value::Null,
    };
    app.auth.audit.note(&caller, change).await;
    let forgotten = query.forget && forget_run(&app, &caller, &job).await?;
    Ok(Json(ReleasedJob {
        job: job.to_string(),
        released: keys.len(),
        forgotten,
    }))
}

/// Filters and paging of programs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ProgramQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those that this program started.
    parent: Option<String>,
    /// Only those of this status: queued, active, paused, finished or aborted.
    status: Option<String>,
    /// Only those on the worker of this URL.
    worker: Option<String>,
    /// Only those whose names contain this text of at most 256 bytes; ASCII letters match
    /// case-insensitively.
    search: Option<String>,
    /// Only those that changed at this time or later, in milliseconds since 1970.
    since_ms: Option<u64>,
    /// created_at_us, updated_at_us, context_tokens, steps, tokens_total, reward, or lasted: the
    /// time from `created_at_us` to the end, or for a live program to the request for the first
    /// page. A leading dash sorts in descending order; programs without a reward come last. Default
    /// `-created_at_us`.
    sort: Option<String>,
    /// Only those after this position: `next` of the previous page, with the same `sort`.
    after: Option<String>,
    /// Maximum number of programs; default 100.
    limit: Option<u32>,
}

/// A page of programs.
#[derive(Serialize, ToSchema)]
struct Programs {
    /// In the requested order.
    programs: Vec<ProgramView>,
    /// The `after` of the next page; absent on the last one.
    next: Option<String>,
}

/// The latest state of a program. Times are microseconds since 1970.
#[derive(Serialize, ToSchema)]
struct ProgramView {
    /// Its name.
    program_id: String,
    /// Job that it belongs to.
    job: Option<String>,
    /// The program that started it.
    parent: Option<String>,
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
    /// Tokens that it has generated; null for programs that ended before this was recorded.
    output_tokens: Option<u64>,
    /// When it was first seen.
    created_at_us: u64,
    /// When it last changed.
    updated_at_us: u64,
    /// How it ended, if it has: released, expired (idle for too long) or aborted.
    ended: Option<String>,
    /// Its reward, if reported.
    reward: Option<f64>,
    /// Time that it has waited for programs that it started, as of its last change; null for
    /// programs that ended before this was recorded.
    blocked_us: Option<u64>,
}

impl ProgramView {
    /// A program as its tenant sees it; `None` for another tenant's.
    fn of(tenant: &Tenant, row: &ProgramRow) -> Option<Self> {
        Some(Self {
            program_id: tenant.outside(&row.program)?.to_owned(),
            job: tenant.outside(&row.job).map(str::to_owned),
            parent: row
                .parent
                .as_deref()
                .and_then(|p| tenant.outside(p))
                .map(str::to_owned),
            status: row.status.clone(),
            phase: row.phase.clone(),
            worker: row.worker.clone(),
            context_tokens: row.context_tokens,
            steps: row.steps,
            tokens_total: row.tokens_total,
            output_tokens: row.output_tokens,
            created_at_us: row.created_at_us,
            updated_at_us: row.updated_at_us,
            ended: row.ended.clone(),
            reward: row.reward_millionths.map(reward_of),
            blocked_us: row.blocked_us,
        })
    }
}

async fn history(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ProgramQuery>,
) -> Answer<Programs> {
    let tenant = &caller.principal.tenant.tenant;
    let columns = ProgramColumn::ALL.map(|column| (column.as_str(), column));
    let sort = query.sort.as_deref().unwrap_or("-created_at_us");
    let (column, ascending) = sorted_by(sort, &columns)?;
    let job = optional("job", query.job)?;
    let parent = optional("parent", query.parent)?;
    let limit = page_limit(query.limit);
    let after = query.after.as_deref();
    let after = after.map(|text| cursor(tenant, column, text)).transpose()?;
    let (after, now_us) = after.map_or_else(|| (None, now_us()), |(after, at)| (Some(after), at));
    if query
        .search
        .as_ref()
        .is_some_and(|text| text.len() > SEARCH_BYTES_MAX)
    {
        let message = format!("`search` is longer than {SEARCH_BYTES_MAX} bytes; shorten it");
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let page = ProgramPage {
        search: query.search.filter(|text| !text.is_empty()),
        job: job.map(|job| tenant.inside(&job).into_owned()),
        parent: parent.map(|parent| tenant.inside(&parent).into_owned()),
        status: query.status,
        worker: query.worker,
        since_us: query.since_ms.map(|ms| ms.saturating_mul(1_000)),
        names: tenant.into(),
        column,
        now_us,
        ascending,
        after,
        limit,
    };
    let rows = app.store.programs(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let last = rows.last().filter(|_| rows.len() == limit as usize);
    let next = last.and_then(|row| {
        let program = tenant.outside(&row.program)?;
        let value = page.value_of(row);
        Some(match column {
            ProgramColumn::Lasted => format!("{value}@{now_us}:{program}"),
            _ => format!("{value}:{program}"),
        })
    });
    let shown = |row| ProgramView::of(tenant, row);
    Ok(Json(Programs {
        programs: rows.iter().filter_map(shown).collect(),
        next,
    }))
}

/// Parses `next`: the row that the page ended with, and the time up to which `lasted` of live
/// programs was measured.
fn cursor(
    tenant: &Tenant,
    column: ProgramColumn,
    text: &str,
) -> Result<(ProgramCursor, u64), Response> {
    let parts = text.split_once(':').and_then(|(place, program)| {
        let (value, at) = match column {
            ProgramColumn::Lasted => place.split_once('@')?,
            _ => (place, "0"),
        };
        Some((value.parse().ok()?, at.parse().ok()?, program))
    });
    let (value, at, program) = parts.ok_or_else(|| {
        let message =
            format!("`after` is `{text}`; send `next` of the previous page, with the same `sort`");
        refuse(ErrorCode::InvalidField, message)
    })?;
    let program = name("after", program)?;
    let cursor = ProgramCursor {
        value,
        program: tenant.inside(&program).into_owned(),
    };
    Ok((cursor, at))
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
