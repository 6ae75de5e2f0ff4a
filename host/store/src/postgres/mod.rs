//! PostgreSQL: one schema of a database.
//!
//! Two connections write, each commit is synced to the disk, and a few read. Everything has a
//! timeout; connections that broke are made again by the next call.

mod connect;
mod examine;
mod failure;
mod leader;
mod partitions;
mod schema;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::{PgPool, PgRow};

use crate::condition::{Conditions, READING};
use crate::leadership::Term;
use crate::sql::{Dropped, Engine, Mark, Record, Statement, Work};
use crate::{Batch, Candidate, PostgresLocation, SchemaStatus, StoreError, StoreInfo};

use connect::Target;
pub(crate) use examine::examine;
pub(crate) use failure::refuses_rows;
use leader::LeaderLock;
use work::{PostgresWork, bound};

const COMMITTED: &str = "SELECT pg_xact_status($1::text::xid8) AS status";

const ABOUT: &str = "SELECT current_setting('server_version') AS version, \
     (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
      JOIN pg_namespace n ON n.oid = c.relnamespace \
      WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'm', 'S')) AS size_bytes, \
     (SELECT max(version) FROM _sqlx_migrations) AS schema_version";

/// A schema of a database.
#[derive(Debug)]
pub(crate) struct PostgresEngine {
    target: Arc<Target>,
    writers: PgPool,
    readers: PgPool,
    leader_lock: LeaderLock,
    conditions: Arc<Conditions>,
    /// First known event without a partition.
    room: AtomicU64,
}

impl PostgresEngine {
    /// Opens a schema, and migrates it if that is allowed.
    pub(crate) async fn open(
        location: &PostgresLocation,
        migrate: bool,
    ) -> Result<Self, StoreError> {
        let target = Arc::new(Target::new(location)?);
        schema::bring(&target, migrate).await?;
        Ok(Self {
            writers: target.writers(),
            readers: target.readers(),
            leader_lock: LeaderLock::of(&target),
            conditions: Arc::default(),
            room: AtomicU64::new(0),
            target,
        })
    }
}

/// The state of a schema's migrations; changes nothing.
pub(crate) async fn status_of(location: &PostgresLocation) -> Result<SchemaStatus, StoreError> {
    let target = Target::new(location)?;
    let mut connection = target.connect().await?;
    schema::status(&target, &mut connection).await
}

/// Applies the pending migrations of a schema.
pub(crate) async fn migrate(location: &PostgresLocation) -> Result<SchemaStatus, StoreError> {
    schema::bring(&Target::new(location)?, true).await
}

impl Engine for PostgresEngine {
    type Row = PgRow;
    type Work = PostgresWork;

    const HEAD: &'static str = "SELECT h.id, h.last_seq, l.epoch, \
         pg_current_xact_id()::text AS mark FROM journal_head h CROSS JOIN leader l \
         FOR UPDATE OF h FOR SHARE OF l";
    const EPOCH: &'static str = "SELECT epoch FROM leader FOR SHARE";

    async fn begin(&self) -> Result<PostgresWork, StoreError> {
        // Connecting is most of this future, and seldom needed.
        let acquired = Box::pin(self.target.call("a connection", self.writers.acquire()));
        PostgresWork::begin(acquired.await?, Arc::clone(&self.target)).await
    }

    async fn read(&self, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let query = sqlx::query_with(sql, arguments);
        let asked = self
            .target
            .call("a question", query.fetch_all(&self.readers));
        let rows = asked.await;
        self.conditions.note(READING, rows.as_ref().err());
        rows
    }

    async fn committed(
        &self,
        work: &mut PostgresWork,
        mark: &Mark,
        _: &Batch,
    ) -> Result<bool, StoreError> {
        let rows = work.fetch(Statement::new(COMMITTED).text(&mark.0)).await?;
        let status = rows.first().map(|row| row.text("status")).transpose()?;
        Ok(status.flatten().as_deref() == Some("committed"))
    }

    async fn make_room(
        &self,
        work: &mut PostgresWork,
        from: u64,
        last_seq: u64,
    ) -> Result<u64, StoreError> {
        let room = self.room.load(Ordering::Relaxed);
        if partitions::suffices(room, last_seq) {
            return Ok(room);
        }
        partitions::make(work, from, last_seq).await
    }

    fn keep_room(&self, room: u64) {
        self.room.fetch_max(room, Ordering::Relaxed);
    }

    async fn drop_whole(
        &self,
        work: &mut PostgresWork,
        cut: u64,
        last_seq: u64,
    ) -> Result<Dropped, StoreError> {
        partitions::drop_whole(work, cut, last_seq).await
    }

    fn whole_cut(&self, cut: u64, last_seq: u64) -> u64 {
        partitions::whole_cut(cut, last_seq)
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        term: &Term,
    ) -> Result<Option<u64>, StoreError> {
        self.leader_lock.campaign(candidate, term).await
    }

    async fn resign(&self, term: &Term) -> Result<(), StoreError> {
        self.leader_lock.resign(term).await
    }

    async fn now_us(&self) -> Result<u64, StoreError> {
        let rows = self.read(Statement::new(leader::CLOCK)).await?;
        let now = rows.first().map(|row| row.signed("now_us")).transpose()?;
        Ok(now
            .flatten()
            .map_or(0, |now| u64::try_from(now).unwrap_or(0)))
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        let rows = self.read(Statement::new(ABOUT)).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let size = row.signed("size_bytes")?.unwrap_or(0);
        Ok(StoreInfo {
            database: "postgres",
            version: row.text("version")?.unwrap_or_default(),
            location: self.target.location.to_string(),
            size_bytes: u64::try_from(size).unwrap_or(0),
            schema_version: row.signed("schema_version")?.unwrap_or(0),
        })
    }

    fn conditions(&self) -> &Arc<Conditions> {
        &self.conditions
    }

    async fn close(&self) {
        // Does not wait for a server that does not answer.
        let closed = async {
            self.readers.close().await;
            self.writers.close().await;
        };
        let _ = tokio::time::timeout(connect::CONNECT_TIMEOUT, closed).await;
    }
}
