//! The journal's head and the epoch that may write, which every writing transaction checks first.

use super::{Cells, Engine, Record, Statement, Work};
use crate::{LeaderRow, StoreError};

/// The identifier of a transaction, to query its outcome later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub String);

/// The journal's head as read by a transaction.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Last sequence number of the journal.
    pub last_seq: u64,
    /// Epoch of the last leader.
    pub epoch: u64,
    /// The transaction's identifier, if the database provides one.
    pub mark: Option<Mark>,
}

/// Reads the head and locks it until the transaction ends.
pub(super) async fn hold<E: Engine>(work: &mut E::Work) -> Result<Head, StoreError> {
    let rows = work.fetch(Statement::new(E::HEAD)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "journal_head",
        key: &["id"],
        row,
    };
    Ok(Head {
        last_seq: cells.number("last_seq")?,
        epoch: cells.number("epoch")?,
        mark: cells.maybe_text("mark")?.map(Mark),
    })
}

/// Reads the epoch and locks it until the transaction ends.
pub(super) async fn epoch<E: Engine>(work: &mut E::Work) -> Result<u64, StoreError> {
    let rows = work.fetch(Statement::new(E::EPOCH)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "leader",
        key: &[],
        row,
    };
    cells.number("epoch")
}

const LEADER: &str = "SELECT l.id, l.name, l.url, l.epoch, l.since_us, s.seen_us \
     FROM leader l JOIN leader_seen s ON s.id = l.id";

/// The last leader and its last heartbeat.
pub(super) async fn leader(engine: &impl Engine) -> Result<Option<LeaderRow>, StoreError> {
    let rows = engine.read(Statement::new(LEADER)).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let now_us = engine.now_us().await?;
    let row = leader_row(row, now_us)?;
    Ok((!row.name.is_empty()).then_some(row))
}

/// Reads the row of the leader.
fn leader_row(row: &impl Record, now_us: u64) -> Result<LeaderRow, StoreError> {
    let cells = Cells {
        table: "leader",
        key: &["id"],
        row,
    };
    Ok(LeaderRow {
        name: cells.text("name")?,
        url: cells.text("url")?,
        epoch: cells.number("epoch")?,
        since_us: cells.number("since_us")?,
        seen_us: cells.number("seen_us")?,
        now_us,
    })
}
