//! Steps of programs.

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::TENANT;
use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{PAGE_ROWS_MAX, StepPage, StepRow, StoreError};

const STEPS: Table = Table {
    name: "steps",
    columns: &[
        "tenant",
        "program",
        "step",
        "worker",
        "arrived_at_us",
        "dispatched_at_us",
        "first_token_at_us",
        "finished_at_us",
        "prompt_tokens",
        "output_tokens",
        "cached_tokens",
        "outcome",
        "waited_us",
        "cause",
    ],
    key: &["tenant", "program", "step"],
};

const PAGE: &str = "SELECT program, step, worker, arrived_at_us, dispatched_at_us, \
     first_token_at_us, finished_at_us, prompt_tokens, output_tokens, cached_tokens, outcome, \
     waited_us, cause FROM steps WHERE tenant = ? AND program = ? AND step > ? \
     ORDER BY step LIMIT ?";

/// Adds or replaces steps.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    steps: &[StepRow],
) -> Result<(), StoreError> {
    insert::rows(connection, &STEPS, steps, bind).await
}

fn bind(step: &StepRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(TENANT)?;
    values.value(step.program.as_str())?;
    values.number("step", step.step)?;
    values.value(step.worker.as_deref())?;
    values.number("arrived_at_us", step.arrived_at_us)?;
    values.maybe_number("dispatched_at_us", step.dispatched_at_us)?;
    values.maybe_number("first_token_at_us", step.first_token_at_us)?;
    values.maybe_number("finished_at_us", step.finished_at_us)?;
    values.number("prompt_tokens", step.prompt_tokens)?;
    values.number("output_tokens", step.output_tokens)?;
    values.maybe_number("cached_tokens", step.cached_tokens)?;
    values.value(step.outcome.as_str())?;
    values.number("waited_us", step.waited_us)?;
    values.value(step.cause.as_deref())
}

/// Steps of a program, by rising number.
pub(super) async fn page(
    pool: &SqlitePool,
    program: &str,
    page: &StepPage,
) -> Result<Vec<StepRow>, StoreError> {
    // Steps may count from 0, so "after nothing" is before it.
    let after = page
        .after
        .map_or(-1, |step| i64::try_from(step).unwrap_or(i64::MAX));
    let rows = sqlx::query(PAGE)
        .bind(TENANT)
        .bind(program)
        .bind(after)
        .bind(page.limit.min(PAGE_ROWS_MAX))
        .fetch_all(pool)
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<StepRow, StoreError> {
    let cells = Cells {
        table: "steps",
        key: &["program", "step"],
        row,
    };
    Ok(StepRow {
        step: cells.number("step")?,
        program: cells.value("program")?,
        worker: cells.value("worker")?,
        arrived_at_us: cells.number("arrived_at_us")?,
        dispatched_at_us: cells.maybe_number("dispatched_at_us")?,
        first_token_at_us: cells.maybe_number("first_token_at_us")?,
        finished_at_us: cells.maybe_number("finished_at_us")?,
        prompt_tokens: cells.number("prompt_tokens")?,
        output_tokens: cells.number("output_tokens")?,
        cached_tokens: cells.maybe_number("cached_tokens")?,
        outcome: cells.value("outcome")?,
        waited_us: cells.number("waited_us")?,
        cause: cells.value("cause")?,
    })
}
