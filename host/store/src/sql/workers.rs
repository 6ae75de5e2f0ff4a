//! Workers.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, StoreError, WorkerRow};

/// Workers.
pub(super) const WORKERS: Table<WorkerRow> = Table {
    name: "workers",
    columns: &[
        text("tenant"),
        text("worker"),
        text("url"),
        text("kind"),
        text("status"),
        number("capacity_tokens"),
        number("used_tokens"),
        number("added_at_us"),
        number("updated_at_us"),
    ],
    key: &["tenant", "worker"],
    bind,
};

const ALL: &str = "SELECT worker, url, kind, status, capacity_tokens, used_tokens, added_at_us, \
     updated_at_us FROM workers WHERE tenant = $1 ORDER BY worker LIMIT $2";

/// Adds or replaces workers.
pub(super) async fn put(work: &mut impl Work, workers: &[WorkerRow]) -> Result<(), StoreError> {
    work.insert(&WORKERS, workers).await
}

fn bind<'r>(worker: &'r WorkerRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(TENANT)?;
    values.text(&worker.worker)?;
    values.text(&worker.url)?;
    values.text(&worker.kind)?;
    values.text(&worker.status)?;
    values.maybe_number("capacity_tokens", worker.capacity_tokens)?;
    values.number("used_tokens", worker.used_tokens)?;
    values.number("added_at_us", worker.added_at_us)?;
    values.number("updated_at_us", worker.updated_at_us)
}

/// All workers, by name.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<WorkerRow>, StoreError> {
    let rows = engine
        .read(
            Statement::new(ALL)
                .text(TENANT)
                .number(PAGE_ROWS_MAX.into()),
        )
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<WorkerRow, StoreError> {
    let cells = Cells {
        table: "workers",
        key: &["worker"],
        row,
    };
    Ok(WorkerRow {
        worker: cells.text("worker")?,
        url: cells.text("url")?,
        kind: cells.text("kind")?,
        status: cells.text("status")?,
        capacity_tokens: cells.maybe_number("capacity_tokens")?,
        used_tokens: cells.number("used_tokens")?,
        added_at_us: cells.number("added_at_us")?,
        updated_at_us: cells.number("updated_at_us")?,
    })
}
