//! Positions of the consumers of the journal.

use super::{Cells, Engine, Record, Statement, Work, within};
use crate::{SINKS_MAX, SinkRow, StoreError};

const ALL: &str = "SELECT sink, seq FROM sinks ORDER BY sink LIMIT $1";

const ONE: &str = "SELECT sink, seq FROM sinks WHERE sink = $1";

const ADVANCE: &str = "INSERT INTO sinks (sink, seq) VALUES ($1, $2) \
     ON CONFLICT (sink) DO UPDATE SET seq = \
     CASE WHEN excluded.seq > sinks.seq THEN excluded.seq ELSE sinks.seq END";

const DROP: &str = "DELETE FROM sinks WHERE sink = $1";

/// The position of a sink; 0 if it is unknown.
pub(super) async fn cursor(engine: &impl Engine, sink: &str) -> Result<u64, StoreError> {
    let rows = engine.read(Statement::new(ONE).text(sink)).await?;
    let seq = rows.first().map(|row| read(row).map(|row| row.seq));
    seq.unwrap_or(Ok(0))
}

/// Advances a sink, never back.
pub(super) async fn advance(
    work: &mut impl Work,
    last_seq: u64,
    sink: &str,
    seq: u64,
) -> Result<(), StoreError> {
    if seq > last_seq {
        return Err(StoreError::Ahead { seq, last_seq });
    }
    if work.fetch(Statement::new(ONE).text(sink)).await?.is_empty() {
        let many = Statement::new(ALL).number(SINKS_MAX as u64);
        let known = work.fetch(many).await?.len();
        within("the number of sinks", known + 1, SINKS_MAX)?;
    }
    work.execute(Statement::new(ADVANCE).text(sink).number(seq))
        .await?;
    Ok(())
}

/// All sinks, by name.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<SinkRow>, StoreError> {
    let rows = engine
        .read(Statement::new(ALL).number(SINKS_MAX as u64))
        .await?;
    rows.iter().map(read).collect()
}

/// Removes a sink; returns whether it existed.
pub(super) async fn forget(work: &mut impl Work, sink: &str) -> Result<bool, StoreError> {
    Ok(work.execute(Statement::new(DROP).text(sink)).await? == 1)
}

fn read(row: &impl Record) -> Result<SinkRow, StoreError> {
    let cells = Cells {
        table: "sinks",
        key: &["sink"],
        row,
    };
    Ok(SinkRow {
        sink: cells.text("sink")?,
        seq: cells.number("seq")?,
    })
}
