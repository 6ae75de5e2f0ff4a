//! Bindings: per job and world one row for each role, replaced together; and what their policies
//! have stored.

use sqlx::Connection;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use super::{TENANT, within};
use crate::{BindingRow, PAGE_ROWS_MAX, POLICY_STATE_BYTES_MAX, PolicyStateRow, StoreError};

const BINDINGS: Table = Table {
    name: "bindings",
    columns: &[
        "tenant",
        "job",
        "world",
        "role",
        "digest",
        "config",
        "share_ppm",
        "since_us",
    ],
    key: &["tenant", "job", "world", "role"],
};

const STATES: Table = Table {
    name: "policy_states",
    columns: &[
        "tenant",
        "job",
        "world",
        "entries",
        "snapshot",
        "saved_at_us",
    ],
    key: &["tenant", "job", "world"],
};

const ALL: &str = "SELECT job, world, role, digest, config, share_ppm, since_us FROM bindings \
     WHERE tenant = ? ORDER BY job, world, role LIMIT ?";

/// Replaces all roles of a job in a world.
pub(super) async fn put(
    writer: &SqlitePool,
    job: &str,
    world: &str,
    roles: &[BindingRow],
) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("DELETE FROM bindings WHERE tenant = ? AND job = ? AND world = ?")
        .bind(TENANT)
        .bind(job)
        .bind(world)
        .execute(&mut *transaction)
        .await?;
    insert::rows(&mut transaction, &BINDINGS, roles, bind).await?;
    if roles.is_empty() {
        sqlx::query("DELETE FROM policy_states WHERE tenant = ? AND job = ? AND world = ?")
            .bind(TENANT)
            .bind(job)
            .bind(world)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(())
}

fn bind(binding: &BindingRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(TENANT)?;
    values.value(binding.job.as_str())?;
    values.value(binding.world.as_str())?;
    values.value(binding.role.as_str())?;
    values.value(binding.digest.as_str())?;
    values.value(binding.config.as_str())?;
    values.number("share_ppm", u64::from(binding.share_ppm))?;
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
        key: &["job", "world", "role"],
        row,
    };
    Ok(BindingRow {
        job: cells.value("job")?,
        world: cells.value("world")?,
        role: cells.value("role")?,
        digest: cells.value("digest")?,
        config: cells.value("config")?,
        share_ppm: cells.number("share_ppm")?.min(1_000_000) as u32,
        since_us: cells.number("since_us")?,
    })
}

/// Adds or replaces what the policy of a binding has stored.
pub(super) async fn put_state(
    writer: &SqlitePool,
    state: &PolicyStateRow,
) -> Result<(), StoreError> {
    let size = state.entries.len() + state.snapshot.len();
    within(
        "what a policy has stored, in bytes,",
        size,
        POLICY_STATE_BYTES_MAX,
    )?;
    let mut connection = writer.acquire().await?;
    let rows = std::slice::from_ref(state);
    insert::rows(&mut connection, &STATES, rows, |state, values| {
        values.value(TENANT)?;
        values.value(state.job.as_str())?;
        values.value(state.world.as_str())?;
        values.value(state.entries.as_slice())?;
        values.value(state.snapshot.as_slice())?;
        values.number("saved_at_us", state.saved_at_us)
    })
    .await
}

/// What the policies of all bindings have stored.
pub(super) async fn states(pool: &SqlitePool) -> Result<Vec<PolicyStateRow>, StoreError> {
    let sql = "SELECT job, world, entries, snapshot, saved_at_us FROM policy_states \
         WHERE tenant = ? ORDER BY job, world LIMIT ?";
    let rows = sqlx::query(sql)
        .bind(TENANT)
        .bind(PAGE_ROWS_MAX)
        .fetch_all(pool)
        .await?;
    let read = |row: &SqliteRow| {
        let cells = Cells {
            table: "policy_states",
            key: &["job", "world"],
            row,
        };
        Ok(PolicyStateRow {
            job: cells.value("job")?,
            world: cells.value("world")?,
            entries: cells.value("entries")?,
            snapshot: cells.value("snapshot")?,
            saved_at_us: cells.number("saved_at_us")?,
        })
    };
    rows.iter().map(read).collect()
}
