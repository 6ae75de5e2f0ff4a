//! Bindings: one per job and world.

use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::TENANT;
use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{BindingRow, PAGE_ROWS_MAX, StoreError};

const BINDINGS: Table = Table {
    name: "bindings",
    columns: &["tenant", "job", "world", "digest", "config", "since_us"],
    key: &["tenant", "job", "world"],
};

const ALL: &str = "SELECT job, world, digest, config, since_us FROM bindings \
     WHERE tenant = ? ORDER BY job, world LIMIT ?";

/// Adds or replaces a binding.
pub(super) async fn put(writer: &SqlitePool, binding: &BindingRow) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    insert::rows(
        &mut connection,
        &BINDINGS,
        std::slice::from_ref(binding),
        bind,
    )
    .await
}

fn bind(binding: &BindingRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(TENANT)?;
    values.value(binding.job.as_str())?;
    values.value(binding.world.as_str())?;
    values.value(binding.digest.as_str())?;
    values.value(binding.config.as_str())?;
    values.number("since_us", binding.since_us)
}

/// All bindings.
pub(super) async fn all(pool: &SqlitePool) -> Result<Vec<BindingRow>, StoreError> {
    let rows = sqlx::query(ALL)
        .bind(TENANT)
        .bind(PAGE_ROWS_MAX)
        .fetch_all(pool)
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<BindingRow, StoreError> {
    let cells = Cells {
        table: "bindings",
        key: &["job", "world"],
        row,
    };
    Ok(BindingRow {
        job: cells.value("job")?,
        world: cells.value("world")?,
        digest: cells.value("digest")?,
        config: cells.value("config")?,
        since_us: cells.number("since_us")?,
    })
}
