//! SQLite: one file, or memory.
//!
//! One connection writes and a few read. The file is in WAL mode, so that readers see the last
//! committed state and never wait, and every commit is synced to the disk.

mod examine;
mod lock;
mod schema;
mod work;

use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};

use crate::leadership::Term;
use crate::sql::{Dropped, Engine, Mark, Record, Statement, Work};
use crate::{About, Candidate, StoreError};

pub(crate) use examine::examine;
use lock::Lock;
pub(crate) use schema::{migrate_file, status_of_file};
pub(crate) use work::refuses_rows;
use work::{SqliteWork, bound, failed};

/// Connections that read.
const READERS: u32 = 4;
/// How long to wait for another process that holds the file, before it is an error.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const BEGIN_TERM: &str = "UPDATE leader SET epoch = epoch + 1, name = $1, url = $2, since_us = $3, \
     backend_pid = $4 RETURNING epoch";

const SEEN: &str = "UPDATE leader_seen SET seen_us = $1";

const LEAVE: &str = "UPDATE leader SET name = '', url = '' WHERE epoch = $1";

const SIZE: &str = "SELECT sqlite_version() AS version, \
     (SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size()) \
     AS size_bytes, (SELECT max(version) FROM _sqlx_migrations) AS schema_version";

/// A database in one file, or in memory.
#[derive(Debug)]
pub(crate) struct SqliteEngine {
    location: String,
    writer: SqlitePool,
    readers: SqlitePool,
    lock: Lock,
}

impl SqliteEngine {
    /// Opens a file, and brings its schema up to date where that is allowed.
    pub(crate) async fn open_file(path: &Path, migrate: bool) -> Result<Self, StoreError> {
        let location = path.display().to_string();
        let writer = schema::open(path, &location, migrate).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .connect_with(options(path).pragma("query_only", "ON"))
            .await
            .map_err(|source| StoreError::Open {
                location: location.clone(),
                source,
            })?;
        Ok(Self {
            location,
            writer,
            readers,
            lock: Lock::beside(path, "leader"),
        })
    }

    /// One connection for all: a second one would see another, empty database.
    pub(crate) async fn open_memory() -> Result<Self, StoreError> {
        let location = "memory".to_owned();
        let options = SqliteConnectOptions::from_str("sqlite::memory:")
            .map_err(|source| StoreError::Open {
                location: location.clone(),
                source,
            })?
            .foreign_keys(true)
            .disable_statement_logging();
        let writer = single(options, &location).await?;
        schema::bring(&writer, &location, true).await?;
        let readers = writer.clone();
        Ok(Self {
            location,
            writer,
            readers,
            lock: Lock::default(),
        })
    }

    async fn term(&self, candidate: &Candidate) -> Result<u64, StoreError> {
        let now_us = self.now_us().await?;
        let mut work = self.begin().await?;
        let term = Statement::new(BEGIN_TERM)
            .text(&candidate.name)
            .text(&candidate.url)
            .number(now_us)
            .number(std::process::id().into());
        let rows = work.fetch(term).await?;
        let epoch = rows.first().map(|row| row.signed("epoch")).transpose()?;
        work.execute(Statement::new(SEEN).number(now_us)).await?;
        work.commit().await?;
        let epoch = epoch.flatten().and_then(|epoch| u64::try_from(epoch).ok());
        Ok(epoch.ok_or(sqlx::Error::RowNotFound)?)
    }
}

/// How a file is opened once it is made.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .disable_statement_logging()
}

async fn single(options: SqliteConnectOptions, location: &str) -> Result<SqlitePool, StoreError> {
    SqlitePoolOptions::new()
        .max_connections(1)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .map_err(|source| StoreError::Open {
            location: location.to_owned(),
            source,
        })
}

impl Engine for SqliteEngine {
    type Row = SqliteRow;
    type Work = SqliteWork;

    // A writer holds the whole file.
    const HEAD: &'static str = "SELECT h.id, h.last_seq, l.epoch, NULL AS mark \
         FROM journal_head h CROSS JOIN leader l";
    const EPOCH: &'static str = "SELECT epoch FROM leader";

    async fn begin(&self) -> Result<SqliteWork, StoreError> {
        // Immediate: what is read first is read under the lock that the write needs anyway.
        let begun = self.writer.begin_with("BEGIN IMMEDIATE").await;
        Ok(SqliteWork(begun.map_err(failed)?))
    }

    async fn read(&self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let query = sqlx::query_with(sql, arguments);
        query.fetch_all(&self.readers).await.map_err(failed)
    }

    /// Marks are never given: a commit is a call within the process and always answers.
    async fn committed(&self, _: &mut SqliteWork, _: &Mark) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn make_room(&self, _: &mut SqliteWork, _: u64, _: u64) -> Result<u64, StoreError> {
        Ok(u64::MAX)
    }

    fn keep_room(&self, _: u64) {}

    async fn drop_whole(
        &self,
        _: &mut SqliteWork,
        cut: u64,
        _: u64,
    ) -> Result<Dropped, StoreError> {
        Ok(Dropped {
            rest: cut,
            ..Dropped::default()
        })
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        term: &Term,
    ) -> Result<Option<u64>, StoreError> {
        if let Some(epoch) = term.leading() {
            return Ok(Some(epoch));
        }
        if !self.lock.take()? {
            return Ok(None);
        }
        match self.term(candidate).await {
            Ok(epoch) => {
                term.begin(epoch);
                Ok(Some(epoch))
            }
            Err(error) => {
                self.lock.release();
                Err(error)
            }
        }
    }

    async fn resign(&self, term: &Term) -> Result<(), StoreError> {
        let Some(epoch) = term.leading() else {
            return Ok(());
        };
        let mut work = self.begin().await?;
        work.execute(Statement::new(LEAVE).number(epoch)).await?;
        work.commit().await?;
        term.end();
        self.lock.release();
        Ok(())
    }

    async fn now_us(&self) -> Result<u64, StoreError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(since.map_or(0, |since| since.as_micros() as u64))
    }

    async fn about(&self) -> Result<About, StoreError> {
        let rows = self.read(Statement::new(SIZE)).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let size = row.signed("size_bytes")?.unwrap_or(0);
        Ok(About {
            database: "sqlite",
            version: row.text("version")?.unwrap_or_default(),
            location: self.location.clone(),
            size_bytes: u64::try_from(size).unwrap_or(0),
            schema_version: row.signed("schema_version")?.unwrap_or(0),
        })
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
