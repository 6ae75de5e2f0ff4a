//! Steps of programs.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, StepPage, StepRow, StoreError};

/// Steps.
pub(super) const STEPS: Table<StepRow> = Table {
    name: "steps",
    columns: &[
        text("tenant"),
        text("program"),
        number("step"),
        text("worker"),
        number("arrived_at_us"),
        number("dispatched_at_us"),
        number("first_token_at_us"),
        number("finished_at_us"),
        number("prompt_tokens"),
        number("output_tokens"),
        number("cached_tokens"),
        text("outcome"),
        number("waited_us"),
        text("cause"),
    ],
    key: &["tenant", "program", "step"],
    bind,
};

const PAGE: &str = "SELECT program, step, worker, arrived_at_us, dispatched_at_us, \
     first_token_at_us, finished_at_us, prompt_tokens, output_tokens, cached_tokens, outcome, \
     waited_us, cause FROM steps WHERE tenant = $1 AND program = $2 AND step > $3 \
     ORDER BY step LIMIT $4";

/// Adds or replaces steps.
pub(super) async fn put(work: &mut impl Work, steps: &[StepRow]) -> Result<(), StoreError> {
    work.insert(&STEPS, steps).await
}

fn bind<'r>(step: &'r StepRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(TENANT)?;
    values.text(&step.program)?;
    values.number("step", step.step)?;
    values.maybe_text(step.worker.as_deref())?;
    values.number("arrived_at_us", step.arrived_at_us)?;
    values.maybe_number("dispatched_at_us", step.dispatched_at_us)?;
    values.maybe_number("first_token_at_us", step.first_token_at_us)?;
    values.maybe_number("finished_at_us", step.finished_at_us)?;
    values.number("prompt_tokens", step.prompt_tokens)?;
    values.number("output_tokens", step.output_tokens)?;
    values.maybe_number("cached_tokens", step.cached_tokens)?;
    values.text(&step.outcome)?;
    values.number("waited_us", step.waited_us)?;
    values.maybe_text(step.cause.as_deref())
}

/// Steps of a program, by rising number.
pub(super) async fn page(
    engine: &impl Engine,
    program: &str,
    page: &StepPage,
) -> Result<Vec<StepRow>, StoreError> {
    // Steps may count from 0, so "after nothing" is before it.
    let after = page
        .after
        .map_or(-1, |step| i64::try_from(step).unwrap_or(i64::MAX));
    let query = Statement::new(PAGE)
        .text(TENANT)
        .text(program)
        .signed(after)
        .number(page.limit.min(PAGE_ROWS_MAX).into());
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<StepRow, StoreError> {
    let cells = Cells {
        table: "steps",
        key: &["program", "step"],
        row,
    };
    Ok(StepRow {
        step: cells.number("step")?,
        program: cells.text("program")?,
        worker: cells.maybe_text("worker")?,
        arrived_at_us: cells.number("arrived_at_us")?,
        dispatched_at_us: cells.maybe_number("dispatched_at_us")?,
        first_token_at_us: cells.maybe_number("first_token_at_us")?,
        finished_at_us: cells.maybe_number("finished_at_us")?,
        prompt_tokens: cells.number("prompt_tokens")?,
        output_tokens: cells.number("output_tokens")?,
        cached_tokens: cells.maybe_number("cached_tokens")?,
        outcome: cells.text("outcome")?,
        waited_us: cells.number("waited_us")?,
        cause: cells.maybe_text("cause")?,
    })
}
