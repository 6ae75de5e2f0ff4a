//! Steps: calls of programs to engines.

use super::Endpoint;
use super::{recorded_first, refuse, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{InPath, Query, name, optional, page_limit, sorted_by};
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_model::{ClientName, Tenant};
use treadle_scheduler::OpenStep;
use treadle_store::{ListedPage, ListedStep, SCANNED_ROWS_MAX, StepColumn, StepCursor, StepPage};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// Default time range of the slowest steps, in microseconds: this order must be sorted in memory,
/// others are read in order.
const SLOWEST_BACK_US: u64 = 3_600 * 1_000_000;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/programs/{program}/steps", VIEW, steps)
            .around(recorded_first)
            .summary("A program's steps, in order of arrival")
            .details(
                "Step numbers ascend if one daemon takes all requests; with several daemons, each \
                 has its own numbers. Steps that wait or run are included with a null `outcome`; \
                 `worker` is null while they wait.",
            ),
        get("/api/v1/steps", VIEW, listed)
            .around(recorded_first)
            .summary("Ended steps of all programs, sorted and filtered")
            .details(
                "Sorted by duration, the steps are those of the last hour or since `since_ms`, out \
                 of the newest 50,000. In other orders, reading stops once a page is full or \
                 50,000 steps were examined: then the page has fewer than `limit` rows, possibly \
                 none, and `next` continues from there.",
            ),
    ]
}

/// Paging of a program's steps.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StepQuery {
    /// Only those that arrived after the step with this number, or after the place where it would
    /// be.
    after: Option<u64>,
    /// Maximum number of steps; default 1000.
    limit: Option<u32>,
}

/// Filters and paging of the steps of all programs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListedQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those that the worker of this URL served.
    worker: Option<String>,
    /// Only those with this outcome: stop, length, failed, cancelled, interrupted, refused and so
    /// on.
    outcome: Option<String>,
    /// Only those that waited at least this long before dispatch, in milliseconds.
    min_wait_ms: Option<u64>,
    /// Only those that ended at this time or later, in milliseconds since 1970.
    since_ms: Option<u64>,
    /// Only those that ended before this time.
    until_ms: Option<u64>,
    /// finished_at_us, or took_us, the time from arrival to end; a leading dash sorts in descending
    /// order. Default `-finished_at_us`.
    sort: Option<String>,
    /// Only those after this position: `next` of the previous page, with the same `sort`.
    after: Option<String>,
    /// Maximum number of steps; default 100.
    limit: Option<u32>,
}

/// A page of a program's steps.
#[derive(Serialize, ToSchema)]
struct Steps {
    /// In order of arrival.
    steps: Vec<StepView>,
}

/// A page of steps of all programs.
#[derive(Serialize, ToSchema)]
struct ListedSteps {
    /// In the requested order.
    steps: Vec<StepView>,
    /// The `after` of the next page; absent on the last one.
    next: Option<String>,
}

/// One call of a program to an engine. Times are microseconds since 1970.
#[derive(Serialize, ToSchema)]
struct StepView {
    /// Its number.
    step: u64,
    /// Its program.
    program_id: String,
    /// Job of its program.
    job: Option<String>,
    /// Worker that served it or is running it.
    worker: Option<String>,
    /// When the request came in.
    arrived_at_us: u64,
    /// When it was sent to the worker.
    dispatched_at_us: Option<u64>,
    /// When the first token came back.
    first_token_at_us: Option<u64>,
    /// When the last token came back, or the failure.
    finished_at_us: Option<u64>,
    /// Tokens of the prompt.
    prompt_tokens: u64,
    /// Tokens that were generated.
    output_tokens: u64,
    /// Prompt tokens found in the engine's cache, if the engine reports them.
    cached_tokens: Option<u64>,
    /// Its outcome; null while it waits or runs.
    outcome: Option<String>,
    /// How long it waited before it was sent to the worker.
    waited_us: u64,
    /// Why it waited or failed.
    cause: Option<String>,
    /// Tokens that the program had generated in all its steps up to the end of this one.
    output_tokens_total: Option<u64>,
    /// Predicted mean of the tokens that the program would still generate after this step; null
    /// without a prediction.
    predicted_tokens: Option<u64>,
    /// 90th percentile of that prediction.
    predicted_tokens_p90: Option<u64>,
    /// Tokens that later steps of the program have generated; final once the program has ended.
    followed_tokens: Option<u64>,
    /// Version of the weights when it ended, if the engine reports it.
    weight_version: Option<String>,
}

impl StepView {
    /// A step as its tenant sees it; `None` for another tenant's.
    fn of(tenant: &Tenant, listed: ListedStep) -> Option<Self> {
        let ListedStep { step: row, job, .. } = listed;
        let total = listed.program_output_tokens.zip(row.output_tokens_total);
        Some(Self {
            step: row.step,
            program_id: tenant.outside(&row.program)?.to_owned(),
            job: tenant.outside(&job).map(str::to_owned),
            worker: row.worker,
            arrived_at_us: row.arrived_at_us,
            dispatched_at_us: row.dispatched_at_us,
            first_token_at_us: row.first_token_at_us,
            finished_at_us: row.finished_at_us,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            cached_tokens: row.cached_tokens,
            outcome: Some(row.outcome),
            waited_us: row.waited_us,
            cause: row.cause,
            output_tokens_total: row.output_tokens_total,
            predicted_tokens: row.predicted_tokens,
            predicted_tokens_p90: row.predicted_tokens_p90,
            followed_tokens: total.map(|(all, then)| all.saturating_sub(then)),
            weight_version: row.weight_version,
        })
    }

    /// A step that waits or runs.
    fn open(tenant: &Tenant, program: &ClientName, open: OpenStep) -> Self {
        let OpenStep { id, step, .. } = open;
        Self {
            step: id.0,
            program_id: program.to_string(),
            job: tenant.outside(&open.job).map(str::to_owned),
            worker: open.worker.map(String::from),
            arrived_at_us: step.arrived_at.0,
            dispatched_at_us: step.dispatched_at.map(|at| at.0),
            first_token_at_us: step.first_token_at.map(|at| at.0),
            finished_at_us: None,
            prompt_tokens: step.prompt_tokens,
            output_tokens: step.output_tokens,
            cached_tokens: None,
            outcome: None,
            waited_us: open.waited.micros(),
            cause: None,
            output_tokens_total: None,
            predicted_tokens: None,
            predicted_tokens_p90: None,
            followed_tokens: None,
            weight_version: None,
        }
    }
}

async fn steps(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<StepQuery>,
) -> Answer<Steps> {
    let tenant = &caller.principal.tenant.tenant;
    let limit = page_limit(Some(query.limit.unwrap_or(1_000)));
    let key = caller.principal.inside(&program);
    // Open steps are read first, so that one that ends meanwhile is not missed; none are open once
    // the driver has stopped.
    let open = app.driver.open_steps(&key).await.unwrap_or_default();
    // No step has the number 0.
    let place = match query.after.filter(|after| *after > 0) {
        Some(after) => Some(place_of(&app, &key, after, &open).await?),
        None => None,
    };
    let page = ListedPage {
        after: place.map(|(value, step)| StepCursor {
            value,
            program: key.clone(),
            step,
        }),
        program: Some(key),
        column: StepColumn::ArrivedAtUs,
        ascending: true,
        limit,
        ..ListedPage::default()
    };
    let rows = app.store.listed_steps(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let shown = |row| StepView::of(tenant, row);
    let mut steps: Vec<_> = rows.into_iter().filter_map(shown).collect();
    for open in open {
        let is_after = place.is_none_or(|place| (open.step.arrived_at.0, open.id.0) > place);
        if is_after && steps.iter().all(|step| step.step != open.id.0) {
            steps.push(StepView::open(tenant, &program, open));
        }
    }
    steps.sort_by_key(|step| (step.arrived_at_us, step.step));
    steps.truncate(limit as usize);
    Ok(Json(Steps { steps }))
}

/// The time and the number after which the steps that follow a given number are listed: those of
/// the step itself, or just before the program's next one.
async fn place_of(
    app: &App,
    key: &str,
    after: u64,
    open: &[OpenStep],
) -> Result<(u64, u64), Response> {
    let page = StepPage {
        after: Some(after - 1),
        limit: 1,
    };
    let rows = app.store.steps(key, &page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let stored = rows.iter().map(|row| (row.step, row.arrived_at_us));
    let open = open.iter().map(|open| (open.id.0, open.step.arrived_at.0));
    let next = stored.chain(open).filter(|(step, _)| *step >= after).min();
    Ok(match next {
        Some((step, at_us)) if step == after => (at_us, step),
        Some((step, at_us)) => (at_us, step - 1),
        None => (u64::MAX, u64::MAX),
    })
}

async fn listed(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListedQuery>,
) -> Answer<ListedSteps> {
    let tenant = &caller.principal.tenant.tenant;
    let columns = StepColumn::ALL.map(|column| (column.as_str(), column));
    let sort = query.sort.as_deref().unwrap_or("-finished_at_us");
    let (column, ascending) = sorted_by(sort, &columns)?;
    let job = optional("job", query.job)?;
    let limit = page_limit(query.limit);
    let after = query.after.map(|text| cursor(tenant, &text)).transpose()?;
    let micros = |ms: Option<u64>| ms.map(|ms| ms.saturating_mul(1_000));
    let mut since_us = micros(query.since_ms);
    if column == StepColumn::TookUs && since_us.is_none() {
        let now_us = app.driver.overview().await.map_or(0, |o| o.at.0);
        since_us = Some(now_us.saturating_sub(SLOWEST_BACK_US));
    }
    let mut page = ListedPage {
        job: job.map(|job| tenant.inside(&job).into_owned()),
        worker: query.worker,
        outcome: query.outcome,
        waited_us_min: micros(query.min_wait_ms),
        since_us,
        until_us: micros(query.until_ms),
        names: tenant.into(),
        column,
        ascending,
        after,
        limit,
        ..ListedPage::default()
    };
    let reach = app.store.steps_reach(&page, SCANNED_ROWS_MAX).await;
    let reach = reach.map_err(|error| store_failed(&error))?;
    let beyond = reach.and_then(|end_us| narrow(&mut page, end_us));
    let rows = app.store.listed_steps(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let last = rows.last().filter(|_| rows.len() == limit as usize);
    let next = last.map_or(beyond, |listed| {
        let program = tenant.outside(&listed.step.program)?;
        let value = column.of(&listed.step)?;
        Some(format!("{value}:{}:{program}", listed.step.step))
    });
    let shown = |row| StepView::of(tenant, row);
    Ok(Json(ListedSteps {
        steps: rows.into_iter().filter_map(shown).collect(),
        next,
    }))
}

/// Limits the page to steps up to this end. Returns the `after` of the page that continues from
/// there; `None` when sorting by duration.
fn narrow(page: &mut ListedPage, end_us: u64) -> Option<String> {
    let goes_back = page.column == StepColumn::TookUs || !page.ascending;
    let next_us = if goes_back {
        page.since_us = Some(end_us);
        end_us
    } else {
        page.until_us = Some(end_us.saturating_add(1));
        end_us.saturating_add(1)
    };
    (page.column != StepColumn::TookUs).then(|| format!("{next_us}:0:"))
}

/// Parses `next`: the row that the page ended with. Without a program the cursor is before all
/// steps that ended at that time.
fn cursor(tenant: &Tenant, text: &str) -> Result<StepCursor, Response> {
    let read = || {
        let (value, rest) = text.split_once(':')?;
        let (step, program) = rest.split_once(':')?;
        Some((value.parse().ok()?, step.parse().ok()?, program))
    };
    let (value, step, program) = read().ok_or_else(|| {
        let message = format!("`after` is `{text}`; send `next` of the previous page");
        refuse(ErrorCode::InvalidField, message)
    })?;
    let program = match program {
        "" => String::new(),
        program => tenant.inside(&name("after", program)?).into_owned(),
    };
    Ok(StepCursor {
        value,
        program,
        step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_looked_at_enough_goes_on_from_there() {
        let tenant = Tenant::new("acme");
        for (ascending, since_us, until_us, next) in [
            (false, Some(70), None, "70:0:"),
            (true, None, Some(71), "71:0:"),
        ] {
            let mut page = ListedPage {
                ascending,
                ..ListedPage::default()
            };
            let after = narrow(&mut page, 70).expect("it goes on");
            assert_eq!((page.since_us, page.until_us), (since_us, until_us));
            assert_eq!(after, next);
            let cursor = cursor(&tenant, &after).expect("it is read back");
            assert_eq!((cursor.program.as_str(), cursor.step), ("", 0));
        }
        let mut slowest = ListedPage {
            column: StepColumn::TookUs,
            ascending: true,
            ..ListedPage::default()
        };
        assert_eq!(narrow(&mut slowest, 70), None);
        assert_eq!(slowest.since_us, Some(70));
    }
}
