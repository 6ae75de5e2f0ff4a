//! Programs.

use sqlx::QueryBuilder;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::TENANT;
use super::cells::Cells;
use super::insert::{self, Table, Values};
use super::names;
use crate::{PAGE_ROWS_MAX, ProgramPage, ProgramRow, StoreError};

const PROGRAMS: Table = Table {
    name: "programs",
    columns: &[
        "tenant",
        "program",
        "job",
        "status",
        "phase",
        "worker",
        "context_tokens",
        "steps",
        "tokens_total",
        "created_at_us",
        "updated_at_us",
        "ended",
    ],
    key: &["tenant", "program"],
};

const SELECT: &str = "SELECT program, job, status, phase, worker, context_tokens, steps, \
     tokens_total, created_at_us, updated_at_us, ended FROM programs WHERE tenant = ";

/// Adds or replaces programs.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    programs: &[ProgramRow],
) -> Result<(), StoreError> {
    insert::rows(connection, &PROGRAMS, programs, bind).await
}

fn bind(program: &ProgramRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(TENANT)?;
    values.value(program.program.as_str())?;
    values.value(program.job.as_str())?;
    values.value(program.status.as_str())?;
    values.value(program.phase.as_str())?;
    values.value(program.worker.as_deref())?;
    values.number("context_tokens", program.context_tokens)?;
    values.number("steps", program.steps)?;
    values.number("tokens_total", program.tokens_total)?;
    values.number("created_at_us", program.created_at_us)?;
    values.number("updated_at_us", program.updated_at_us)?;
    values.value(program.ended.as_deref())
}

/// One program.
pub(super) async fn get(
    pool: &SqlitePool,
    program: &str,
) -> Result<Option<ProgramRow>, StoreError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push_bind(TENANT);
    query.push(" AND program = ");
    query.push_bind(program);
    let row = query.build().fetch_optional(pool).await?;
    row.as_ref().map(read).transpose()
}

/// Programs that match, newest first.
pub(super) async fn page(
    pool: &SqlitePool,
    page: &ProgramPage,
) -> Result<Vec<ProgramRow>, StoreError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push_bind(TENANT);
    if let Some(job) = &page.job {
        query.push(" AND job = ");
        query.push_bind(job.as_str());
    }
    if let Some(status) = &page.status {
        query.push(" AND status = ");
        query.push_bind(status.as_str());
    }
    names::push(&mut query, "program", &page.names);
    if let Some(cursor) = &page.after {
        query.push(" AND (created_at_us, program) < (");
        query.push_bind(i64::try_from(cursor.created_at_us).unwrap_or(i64::MAX));
        query.push(", ");
        query.push_bind(cursor.program.as_str());
        query.push(")");
    }
    query.push(" ORDER BY created_at_us DESC, program DESC LIMIT ");
    query.push_bind(page.limit.min(PAGE_ROWS_MAX));
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<ProgramRow, StoreError> {
    let cells = Cells {
        table: "programs",
        key: &["program"],
        row,
    };
    Ok(ProgramRow {
        program: cells.value("program")?,
        job: cells.value("job")?,
        status: cells.value("status")?,
        phase: cells.value("phase")?,
        worker: cells.value("worker")?,
        context_tokens: cells.number("context_tokens")?,
        steps: cells.number("steps")?,
        tokens_total: cells.number("tokens_total")?,
        created_at_us: cells.number("created_at_us")?,
        updated_at_us: cells.number("updated_at_us")?,
        ended: cells.value("ended")?,
    })
}
