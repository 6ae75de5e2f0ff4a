//! Snapshots of the core's state.

use super::table::{bytes, number};
use super::{Cells, Engine, Record, Statement, Table, Values, Work, within};
use crate::{SNAPSHOT_BYTES_MAX, SNAPSHOTS_KEPT, Snapshot, StoreError};

const SNAPSHOTS: Table<Snapshot> = Table {
    name: "snapshots",
    columns: &[number("seq"), number("saved_at_us"), bytes("state")],
    key: &["seq"],
    bind,
};

const REST: &str = "DELETE FROM snapshots WHERE seq NOT IN \
     (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT $1)";

const LATEST: &str = "SELECT seq, saved_at_us, state FROM snapshots ORDER BY seq DESC LIMIT 1";

/// Saves a snapshot and drops those that are too old.
pub(super) async fn save(
    work: &mut impl Work,
    last_seq: u64,
    snapshot: &Snapshot,
) -> Result<(), StoreError> {
    if snapshot.seq > last_seq {
        return Err(StoreError::Ahead {
            seq: snapshot.seq,
            last_seq,
        });
    }
    work.insert(&SNAPSHOTS, std::slice::from_ref(snapshot))
        .await?;
    let rest = Statement::new(REST).number(SNAPSHOTS_KEPT.into());
    work.execute(rest).await?;
    Ok(())
}

/// Checks the size of a snapshot.
pub(super) fn check(snapshot: &Snapshot) -> Result<(), StoreError> {
    within(
        "the snapshot, in bytes,",
        snapshot.state.len(),
        SNAPSHOT_BYTES_MAX,
    )
}

fn bind<'r>(snapshot: &'r Snapshot, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.number("seq", snapshot.seq)?;
    values.number("saved_at_us", snapshot.saved_at_us)?;
    values.bytes(&snapshot.state)
}

/// The newest snapshot.
pub(super) async fn latest(engine: &impl Engine) -> Result<Option<Snapshot>, StoreError> {
    let rows = engine.read(Statement::new(LATEST)).await?;
    rows.first().map(read).transpose()
}

fn read(row: &impl Record) -> Result<Snapshot, StoreError> {
    let cells = Cells {
        table: "snapshots",
        key: &["seq"],
        row,
    };
    Ok(Snapshot {
        seq: cells.number("seq")?,
        saved_at_us: cells.number("saved_at_us")?,
        state: cells.bytes("state")?,
    })
}
