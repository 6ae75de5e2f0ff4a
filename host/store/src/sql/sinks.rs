//! Positions of the consumers of the journal.

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work, events, within};
use crate::{SINKS_MAX, Sinks, StoreError};

table! {
    /// The position of a consumer of the journal.
    pub struct SinkRow in "sinks", upsert (sink) {
        /// Its name.
        sink: String,
        /// Sequence number of the last event that it has received.
        seq: u64,
    }
}

/// Never moves a sink back.
const ADVANCE: &str = "INSERT INTO sinks (sink, seq) VALUES ($1, $2) \
     ON CONFLICT (sink) DO UPDATE SET seq = \
     CASE WHEN excluded.seq > sinks.seq THEN excluded.seq ELSE sinks.seq END";

const DROP: &str = "DELETE FROM sinks WHERE sink = $1";

#[async_trait]
impl<E: Engine> Sinks for SqlStore<E> {
    async fn sink_cursor(&self, sink: &str) -> Result<u64, StoreError> {
        let row: Option<SinkRow> = self.engine.read_row(one(sink)).await?;
        Ok(row.map_or(0, |row| row.seq))
    }

    async fn advance_sink(&self, sink: &str, seq: u64) -> Result<(), StoreError> {
        self.watched("sinks", async {
            let last_seq = events::last_seq(&*self.engine).await?;
            let mut work = self.begin().await?;
            if seq > last_seq {
                return Err(StoreError::Ahead { seq, last_seq });
            }
            keep_few(&mut work, sink).await?;
            work.execute(Statement::new(ADVANCE).text(sink).number(seq))
                .await?;
            work.commit().await
        })
        .await
    }

    async fn sinks(&self) -> Result<Vec<SinkRow>, StoreError> {
        self.engine.read_rows(all()).await
    }

    async fn drop_sink(&self, sink: &str) -> Result<bool, StoreError> {
        let remove = Statement::new(DROP).text(sink);
        writing!(self, "sinks", |work| work.execute(remove).await? == 1)
    }
}

fn one(sink: &str) -> Statement {
    SinkRow::select("WHERE sink = $1").text(sink)
}

fn all() -> Statement {
    SinkRow::select("ORDER BY sink LIMIT $1").number(SINKS_MAX as u64)
}

/// Returns an error if a sink is new and one too many.
async fn keep_few(work: &mut impl Work, sink: &str) -> Result<(), StoreError> {
    if !work.fetch(one(sink)).await?.is_empty() {
        return Ok(());
    }
    let known = work.fetch(all()).await?.len();
    within("the number of sinks", known + 1, SINKS_MAX)
}
