//! Steps of programs.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work, direction, names};
use crate::{
    ListedPage, ListedStep, Names, PAGE_ROWS_MAX, StepColumn, StepPage, StepRow, StoreError,
};

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
        number("output_tokens_total"),
        number("predicted_tokens"),
        number("predicted_tokens_p90"),
        text("weight_version"),
    ],
    key: &["tenant", "program", "step"],
    bind,
};

const PAGE: &str = "SELECT program, step, worker, arrived_at_us, dispatched_at_us, \
     first_token_at_us, finished_at_us, prompt_tokens, output_tokens, cached_tokens, outcome, \
     waited_us, cause, output_tokens_total, predicted_tokens, predicted_tokens_p90, weight_version \
     FROM steps WHERE tenant = $1 AND program = $2 AND step > $3 ORDER BY step LIMIT $4";

/// SQLite takes the order of a `CROSS JOIN` literally: it would otherwise begin with the programs
/// of a job, and sort all their steps.
const LISTED: &str = "SELECT s.program, s.step, s.worker, s.arrived_at_us, s.dispatched_at_us, \
     s.first_token_at_us, s.finished_at_us, s.prompt_tokens, s.output_tokens, s.cached_tokens, \
     s.outcome, s.waited_us, s.cause, s.output_tokens_total, s.predicted_tokens, \
     s.predicted_tokens_p90, s.weight_version, p.job, p.output_tokens AS program_output_tokens, \
     (SELECT MAX(number) FROM weight_versions w WHERE w.job = p.job) - \
     (SELECT number FROM weight_versions w WHERE w.job = p.job AND w.version = s.weight_version) \
     AS staleness FROM steps s CROSS JOIN programs p \
     WHERE p.tenant = s.tenant AND p.program = s.program AND s.finished_at_us IS NOT NULL";

/// Served by an index only, without reading rows.
const REACH: &str = "SELECT s.finished_at_us FROM steps s WHERE s.finished_at_us IS NOT NULL";

/// Outcomes covered by a partial index.
const AMISS: [&str; 3] = ["failed", "cancelled", "interrupted"];

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
    values.maybe_text(step.cause.as_deref())?;
    values.maybe_number("output_tokens_total", step.output_tokens_total)?;
    values.maybe_number("predicted_tokens", step.predicted_tokens)?;
    values.maybe_number("predicted_tokens_p90", step.predicted_tokens_p90)?;
    values.maybe_text(step.weight_version.as_deref())
}

/// Steps of a program, by rising number.
pub(super) async fn page(
    engine: &impl Engine,
    program: &str,
    page: &StepPage,
) -> Result<Vec<StepRow>, StoreError> {
    // Step numbers may start at 0, so the default is a number below it.
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

/// Ended steps that match.
pub(super) async fn listed(
    engine: &impl Engine,
    page: &ListedPage,
) -> Result<Vec<ListedStep>, StoreError> {
    let rows = engine.read(statement(page)).await?;
    let listed = |row| {
        let cells = cells(row);
        Ok(ListedStep {
            step: read(row)?,
            job: cells.text("job")?,
            program_output_tokens: cells.maybe_number("program_output_tokens")?,
            staleness: cells.maybe_number("staleness")?,
        })
    };
    rows.iter().map(listed).collect()
}

/// When the last of the first `rows` steps that a query for this page scans ended.
pub(super) async fn reach(
    engine: &impl Engine,
    page: &ListedPage,
    rows: u32,
) -> Result<Option<u64>, StoreError> {
    let is_filtered = page.job.is_some()
        || page.worker.is_some()
        || page.outcome.is_some()
        || page.waited_us_min.is_some()
        || page.names != Names::Any
        || page.column == StepColumn::TookUs;
    if !is_filtered || is_amiss(page) || page.program.is_some() {
        return Ok(None);
    }
    let read = engine.read(reach_statement(page, rows)).await?;
    let last = read.first().map(|row| {
        let cells = Cells {
            table: "steps",
            key: &["finished_at_us"],
            row,
        };
        cells.number("finished_at_us")
    });
    last.transpose()
}

pub(super) fn reach_statement(page: &ListedPage, rows: u32) -> Statement {
    let mut query = Statement::new(REACH);
    if let Some(job) = &page.job {
        within_job(&mut query, job);
    }
    query.push_compared("s.finished_at_us >= ", page.since_us);
    query.push_compared("s.finished_at_us < ", page.until_us);
    let by_end = page.column == StepColumn::FinishedAtUs;
    if by_end {
        after(&mut query, page, "s.finished_at_us");
    }
    let direction = direction(by_end && page.ascending);
    query.push(&format!(
        " ORDER BY s.finished_at_us {direction}, s.program {direction}, s.step {direction} \
         LIMIT 1 OFFSET "
    ));
    query.push_number(u64::from(rows.saturating_sub(1)));
    query
}

/// Whether the partial index covers the page's outcome.
fn is_amiss(page: &ListedPage) -> bool {
    let outcome = page.outcome.as_deref();
    outcome.is_some_and(|outcome| AMISS.contains(&outcome))
}

pub(super) fn statement(page: &ListedPage) -> Statement {
    let mut query = Statement::new(LISTED);
    if let Some(program) = &page.program {
        query.push_equal("s.tenant", Some(TENANT));
        query.push_equal("s.program", Some(program));
    }
    if let Some(job) = &page.job {
        query.push_equal("p.job", Some(job));
        within_job(&mut query, job);
    }
    if is_amiss(page) {
        // The same condition as in the index, so that it is used.
        query.push(&format!(" AND s.outcome IN ('{}')", AMISS.join("', '")));
    }
    for (column, value) in [("s.worker", &page.worker), ("s.outcome", &page.outcome)] {
        query.push_equal(column, value.as_deref());
    }
    query.push_compared("s.waited_us >= ", page.waited_us_min);
    query.push_compared("s.finished_at_us >= ", page.since_us);
    query.push_compared("s.finished_at_us < ", page.until_us);
    names::push(&mut query, "s.program", &page.names);
    let column = match page.column {
        StepColumn::FinishedAtUs => "s.finished_at_us",
        StepColumn::TookUs => "(s.finished_at_us - s.arrived_at_us)",
        StepColumn::ArrivedAtUs => "s.arrived_at_us",
        StepColumn::Step => "s.step",
    };
    after(&mut query, page, column);
    let direction = direction(page.ascending);
    query.push(&format!(
        " ORDER BY {column} {direction}, s.program {direction}, s.step {direction} LIMIT "
    ));
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
    query
}

/// Restricts a query to rows after the previous page, which is sorted by a column.
fn after(query: &mut Statement, page: &ListedPage, column: &str) {
    if let Some(cursor) = &page.after {
        let relation = if page.ascending { ">" } else { "<" };
        query.push(&format!(" AND ({column}, s.program, s.step) {relation} ("));
        query.push_number(cursor.value);
        query.push(", ");
        query.push_text(&cursor.program);
        query.push(", ");
        query.push_number(cursor.step);
        query.push(")");
    }
}

/// Restricts a query to the time between the first program's start and the last change of the job,
/// so that steps of other jobs before and after are not read.
fn within_job(query: &mut Statement, job: &str) {
    for bound in [
        ">= (SELECT MIN(created_at_us)",
        "<= (SELECT MAX(updated_at_us)",
    ] {
        query.push(&format!(
            " AND s.finished_at_us {bound} FROM programs WHERE job = "
        ));
        query.push_text(job);
        query.push(")");
    }
}

fn cells<R: Record>(row: &R) -> Cells<'_, R> {
    Cells {
        table: "steps",
        key: &["program", "step"],
        row,
    }
}

fn read(row: &impl Record) -> Result<StepRow, StoreError> {
    let cells = cells(row);
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
        output_tokens_total: cells.maybe_number("output_tokens_total")?,
        predicted_tokens: cells.maybe_number("predicted_tokens")?,
        predicted_tokens_p90: cells.maybe_number("predicted_tokens_p90")?,
        weight_version: cells.maybe_text("weight_version")?,
    })
}
