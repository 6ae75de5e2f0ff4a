//! Workers.

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::TENANT;
use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{PAGE_ROWS_MAX, StoreError, WorkerRow};

const WORKERS: Table = Table {
    name: "workers",
    columns: &[
        "tenant",
        "worker",
        "url",
        "kind",
        "status",
        "capacity_tokens",
        "used_tokens",
        "added_at_us",
        "updated_at_us",
    ],
    key: &["tenant", "worker"],
};

const ALL: &str = "SELECT worker, url, kind, status, capacity_tokens, used_tokens, added_at_us, \
     updated_at_us FROM workers WHERE tenant = ? ORDER BY worker LIMIT ?";

/// Adds or replaces workers.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    workers: &[WorkerRow],
) -> Result<(), StoreError> {
    insert::rows(connection, &WORKERS, workers, bind).await
}

fn bind(worker: &WorkerRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(TENANT)?;
    values.value(worker.worker.as_str())?;
    values.value(worker.url.as_str())?;
    values.value(worker.kind.as_str())?;
    values.value(worker.status.as_str())?;
    values.maybe_number("capacity_tokens", worker.capacity_tokens)?;
    values.number("used_tokens", worker.used_tokens)?;
    values.number("added_at_us", worker.added_at_us)?;
    values.number("updated_at_us", worker.updated_at_us)
}

/// All workers, by name.
pub(super) async fn all(pool: &SqlitePool) -> Result<Vec<WorkerRow>, StoreError> {
    let rows = sqlx::query(ALL)
        .bind(TENANT)
        .bind(PAGE_ROWS_MAX)
        .fetch_all(pool)
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<WorkerRow, StoreError> {
    let cells = Cells {
        table: "workers",
        key: &["worker"],
        row,
    };
    Ok(WorkerRow {
        worker: cells.value("worker")?,
        url: cells.value("url")?,
        kind: cells.value("kind")?,
        status: cells.value("status")?,
        capacity_tokens: cells.maybe_number("capacity_tokens")?,
        used_tokens: cells.number("used_tokens")?,
        added_at_us: cells.number("added_at_us")?,
        updated_at_us: cells.number("updated_at_us")?,
    })
}
