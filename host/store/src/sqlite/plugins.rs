//! Plugins: added once, never changed.

use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::cells::Cells;
use super::insert::Values;
use super::{TENANT, within};
use crate::{COMPONENT_BYTES_MAX, PAGE_ROWS_MAX, PluginHead, PluginRow, StoreError};

const PUT: &str = "INSERT INTO plugins (tenant, digest, world, name, version, summary, \
     size_bytes, uploaded_at_us, signed_by, component) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
     ON CONFLICT (tenant, digest) DO NOTHING";

const GET: &str = "SELECT digest, world, name, version, summary, size_bytes, uploaded_at_us, \
     signed_by, component FROM plugins WHERE tenant = ? AND digest = ?";

const ALL: &str = "SELECT digest, world, name, version, summary, size_bytes, uploaded_at_us, \
     signed_by FROM plugins WHERE tenant = ? ORDER BY uploaded_at_us DESC, digest LIMIT ?";

/// Adds a plugin unless its digest is there; whether it was added.
pub(super) async fn put(writer: &SqlitePool, plugin: &PluginRow) -> Result<bool, StoreError> {
    within(
        "the component, in bytes,",
        plugin.component.len(),
        COMPONENT_BYTES_MAX,
    )?;
    let head = &plugin.head;
    let mut values = Values::of("plugins");
    values.value(TENANT)?;
    values.value(head.digest.as_str())?;
    values.value(head.world.as_str())?;
    values.value(head.name.as_str())?;
    values.value(head.version.as_str())?;
    values.value(head.summary.as_str())?;
    values.number("size_bytes", head.size_bytes)?;
    values.number("uploaded_at_us", head.uploaded_at_us)?;
    values.value(head.signed_by.as_deref())?;
    values.value(plugin.component.as_slice())?;
    let done = sqlx::query_with(PUT, values.done()).execute(writer).await?;
    if done.rows_affected() == 1 {
        return Ok(true);
    }
    let same: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM plugins WHERE tenant = ? AND digest = ? AND component = ?",
    )
    .bind(TENANT)
    .bind(&head.digest)
    .bind(&plugin.component)
    .fetch_optional(writer)
    .await?;
    same.map(|_| false).ok_or_else(|| StoreError::Immutable {
        digest: head.digest.clone(),
    })
}

/// One plugin with its component.
pub(super) async fn get(pool: &SqlitePool, digest: &str) -> Result<Option<PluginRow>, StoreError> {
    let row = sqlx::query(GET)
        .bind(TENANT)
        .bind(digest)
        .fetch_optional(pool)
        .await?;
    row.as_ref()
        .map(|row| {
            Ok(PluginRow {
                head: read(row)?,
                component: cells(row).value("component")?,
            })
        })
        .transpose()
}

/// All plugins without their components, newest first.
pub(super) async fn all(pool: &SqlitePool) -> Result<Vec<PluginHead>, StoreError> {
    let rows = sqlx::query(ALL)
        .bind(TENANT)
        .bind(PAGE_ROWS_MAX)
        .fetch_all(pool)
        .await?;
    rows.iter().map(read).collect()
}

fn cells(row: &SqliteRow) -> Cells<'_> {
    Cells {
        table: "plugins",
        key: &["digest"],
        row,
    }
}

fn read(row: &SqliteRow) -> Result<PluginHead, StoreError> {
    let cells = cells(row);
    Ok(PluginHead {
        digest: cells.value("digest")?,
        world: cells.value("world")?,
        name: cells.value("name")?,
        version: cells.value("version")?,
        summary: cells.value("summary")?,
        size_bytes: cells.number("size_bytes")?,
        uploaded_at_us: cells.number("uploaded_at_us")?,
        signed_by: cells.value("signed_by")?,
    })
}
