//! Steps of a program: its calls to engines.

use super::arguments::{InPath, Query};
use super::endpoint::{Endpoint, get};
use super::signature::Answer;
use super::{recorded_first, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_store::{StepPage, StepRow};
use utoipa::{IntoParams, ToSchema};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/programs/{program}/steps", VIEW, steps)
            .around(recorded_first)
            .summary("A program's steps, by rising number"),
    ]
}

/// Which part of a listing.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StepQuery {
    /// Only those after this number.
    after: Option<u64>,
    /// Most steps; 1000 without it.
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
