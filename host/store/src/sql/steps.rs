//! Steps of programs.

use super::table::table;
use super::{Cells, Engine, Statement, TENANT, TableRow as _, direction, names};
use crate::{ListedPage, ListedStep, Names, PAGE_ROWS_MAX, StepColumn, StepPage, StoreError};

table! {
    /// One call of a program to an engine.
    #[derive(Default)]
    pub struct StepRow in "steps" with tenant = TENANT, upsert (program, step) {
        /// Program that it belongs to.
        program: String,
        /// Its number; together with the program its key.
        step: u64,
        /// Worker that served it.
        worker: Option<String>,
        /// When the request arrived.
        arrived_at_us: u64,
        /// When it was sent to the worker.
        dispatched_at_us: Option<u64>,
        /// When the first token arrived.
        first_token_at_us: Option<u64>,
        /// When the last token arrived or the step failed.
        finished_at_us: Option<u64>,
        /// Tokens of the prompt.
        prompt_tokens: u64,
        /// Tokens that were generated.
        output_tokens: u64,
        /// Tokens of the prompt that were in the engine's cache, if the engine reports them.
        cached_tokens: Option<u64>,
        /// Its outcome, such as `failed` or `cancelled`.
        outcome: String,
        /// How long it waited before it was sent to the worker.
        waited_us: u64,
        /// Why it waited or failed.
        cause: Option<String>,
        /// Tokens that its program had generated up to the end of this step.
        output_tokens_total: Option<u64>,
        /// Mean prediction, at the end of this step, of the tokens that its program would still
        /// generate.
        predicted_tokens: Option<u64>,
        /// 90th percentile of that prediction.
        predicted_tokens_p90: Option<u64>,
        /// Version of the weights at its end, as reported by the engine.
        weight_version: Option<String>,
    }
}

/// What follows the columns of a step. SQLite takes the order of a `CROSS JOIN` literally: it would
/// otherwise begin with the programs of a job, and sort all their steps.
const LISTED: &str = "p.job, p.output_tokens AS program_output_tokens \
     FROM steps s CROSS JOIN programs p \
     WHERE p.tenant = s.tenant AND p.program = s.program AND s.finished_at_us IS NOT NULL";

/// Served by an index only, without reading rows.
const REACH: &str = "SELECT s.finished_at_us FROM steps s WHERE s.finished_at_us IS NOT NULL";

/// Outcomes covered by a partial index.
const AMISS: [&str; 3] = ["failed", "cancelled", "interrupted"];

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
    let of_program = "WHERE tenant = $1 AND program = $2 AND step > $3 ORDER BY step LIMIT $4";
    let query = StepRow::select(of_program)
        .text(TENANT)
        .text(program)
        .signed(after)
        .number(page.limit.min(PAGE_ROWS_MAX).into());
    engine.read_rows(query).await
}

/// Ended steps that match.
pub(super) async fn listed(
    engine: &impl Engine,
    page: &ListedPage,
) -> Result<Vec<ListedStep>, StoreError> {
    let rows = engine.read(statement(page)).await?;
    let listed = |row| {
        let cells = Cells {
            table: StepRow::TABLE,
            key: StepRow::KEY,
            row,
        };
        Ok(ListedStep {
            step: StepRow::read(&cells)?,
            job: cells.text("job")?,
            program_output_tokens: cells.maybe_number("program_output_tokens")?,
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
            table: StepRow::TABLE,
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
    let columns = StepRow::list("s.");
    let mut query = Statement::made(format!("SELECT {columns}, {LISTED}"));
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
