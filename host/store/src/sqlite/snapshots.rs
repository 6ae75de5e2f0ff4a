//! Snapshots of the core's state.

use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use super::{journal, within};
use crate::{SNAPSHOT_BYTES_MAX, SNAPSHOTS_KEPT, Snapshot, StoreError};

const SNAPSHOTS: Table = Table {
    name: "snapshots",
    columns: &["seq", "saved_at_us", "state"],
    key: &["seq"],
};

/// Saves a snapshot and drops those that are too old.
pub(super) async fn save(writer: &SqlitePool, snapshot: &Snapshot) -> Result<(), StoreError> {
    within(
        "the snapshot, in bytes,",
        snapshot.state.len(),
        SNAPSHOT_BYTES_MAX,
    )?;
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    let last_seq = journal::last_seq_within(&mut transaction).await?;
    if snapshot.seq > last_seq {
        return Err(StoreError::Ahead {
            seq: snapshot.seq,
            last_seq,
        });
    }
    insert::rows(
        &mut transaction,
        &SNAPSHOTS,
        std::slice::from_ref(snapshot),
        bind,
    )
    .await?;
    sqlx::query(
        "DELETE FROM snapshots WHERE seq NOT IN \
         (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
    )
    .bind(SNAPSHOTS_KEPT)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

fn bind(snapshot: &Snapshot, values: &mut Values) -> Result<(), StoreError> {
    values.number("seq", snapshot.seq)?;
    values.number("saved_at_us", snapshot.saved_at_us)?;
    values.value(snapshot.state.as_slice())
}

/// The newest snapshot.
pub(super) async fn latest(pool: &SqlitePool) -> Result<Option<Snapshot>, StoreError> {
    let row =
        sqlx::query("SELECT seq, saved_at_us, state FROM snapshots ORDER BY seq DESC LIMIT 1")
            .fetch_optional(pool)
            .await?;
    row.as_ref().map(read).transpose()
}

fn read(row: &SqliteRow) -> Result<Snapshot, StoreError> {
    let cells = Cells {
        table: "snapshots",
        key: &["seq"],
        row,
    };
    Ok(Snapshot {
        seq: cells.number("seq")?,
        saved_at_us: cells.number("saved_at_us")?,
        state: cells.value("state")?,
    })
}
