//! SQLite: one file, or memory.
//!
//! One connection writes and a few read. The file is in WAL mode, so that readers see the last
//! committed state and never wait, and every commit is synced to the disk.

mod examine;
mod files;
mod lock;
mod schema;
mod work;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection};

use crate::condition::{Conditions, READING};
use crate::leadership::Term;
use crate::sql::{Dropped, Engine, Mark, Record, Statement, Work};
use crate::{Batch, Candidate, StoreError, StoreInfo};

pub(crate) use examine::examine;
use files::Files;
use lock::Lock;
pub(crate) use schema::{migrate_file, status_of_file};
use work::{SqliteWork, bound, failed};
pub(crate) use work::{refuses_rows, remedy};

/// Number of connections that read.
const READERS: u32 = 4;
/// How long to wait for another process that has locked the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const BEGIN_TERM: &str = "UPDATE leader SET epoch = epoch + 1, name = $1, url = $2, since_us = $3, \
     backend_pid = $4 RETURNING epoch";

const SEEN: &str = "UPDATE leader_seen SET seen_us = $1";

const LEAVE: &str = "UPDATE leader SET name = '', url = '' WHERE epoch = $1";

const SIZE: &str = "SELECT sqlite_version() AS version, \
     (SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size()) \
     AS size_bytes, (SELECT max(version) FROM _sqlx_migrations) AS schema_version";

const EVENT: &str = "SELECT at_us, kind, body FROM events WHERE seq = $1";

/// A database in one file, or in memory.
#[derive(Debug)]
pub(crate) struct SqliteEngine {
    location: String,
    writer: SqlitePool,
    readers: SqlitePool,
    /// The database's files; `None` in memory.
    files: Option<Arc<Files>>,
    /// Never used: SQLite removes its files beside the database with the last connection, and the
    /// others may be replaced.
    anchor: tokio::sync::Mutex<Option<SqliteConnection>>,
    conditions: Arc<Conditions>,
    lock: Lock,
}

impl SqliteEngine {
    /// Opens a file, and migrates it if that is allowed.
    pub(crate) async fn open_file(path: &Path, how: How) -> Result<Self, StoreError> {
        let location = path.display().to_string();
        let anchor = schema::open(path, &location, how).await?;
        let unopened = |source| StoreError::Open {
            location: location.clone(),
            source,
        };
        let pool = |connections_max| {
            let options = SqlitePoolOptions::new().max_connections(connections_max);
            options.test_before_acquire(false).idle_timeout(None)
        };
        let writer = pool(1).max_lifetime(None).connect_with(options(path)).await;
        let writer = writer.map_err(unopened)?;
        let reading = options(path).pragma("query_only", "ON");
        let readers = pool(READERS).connect_with(reading.clone()).await;
        let readers = readers.map_err(unopened)?;
        let conditions = Arc::<Conditions>::default();
        let files = Files::of(path, reading, readers.clone(), conditions.clone());
        let files = Arc::new(files.await?);
        tokio::spawn(files::watch(Arc::downgrade(&files)));
        Ok(Self {
            location,
            writer,
            readers,
            files: Some(files),
            anchor: tokio::sync::Mutex::new(Some(anchor)),
            conditions,
            lock: Lock::beside(path, "leader"),
        })
    }

    /// A database in memory has only one connection: a second one would see an empty database.
    pub(crate) async fn open_memory() -> Result<Self, StoreError> {
        let location = "memory".to_owned();
        let unopened = |source| StoreError::Open {
            location: location.clone(),
            source,
        };
        let options = SqliteConnectOptions::from_str("sqlite::memory:")
            .map_err(unopened)?
            .foreign_keys(true)
            .disable_statement_logging();
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(options)
            .await
            .map_err(unopened)?;
        let mut connection = writer.acquire().await?;
        schema::bring(&mut connection, &location, true).await?;
        drop(connection);
        let readers = writer.clone();
        Ok(Self {
            location,
            writer,
            readers,
            files: None,
            anchor: tokio::sync::Mutex::default(),
            conditions: Arc::default(),
            lock: Lock::default(),
        })
    }

    /// Runs a statement outside of a transaction. A connection that failed is replaced, unless it
    /// holds the database.
    async fn ask(&self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        self.conditions.demand()?;
        let (sql, arguments) = bound(statement)?;
        let mut connection = self.readers.acquire().await.map_err(failed)?;
        let query = sqlx::query_with(sql, arguments);
        let rows = query.fetch_all(&mut *connection).await;
        if rows.is_err() && self.files.is_some() {
            connection.close_on_drop();
        }
        rows.map_err(failed)
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

/// Options for opening a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether pending migrations are applied.
    pub migrate: bool,
    /// Whether a missing file is created.
    pub create: bool,
}

/// Options of connections to an existing file. It is never created: a missing file is a lost one.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .disable_statement_logging()
}

/// Opens a separate connection.
async fn connect(
    options: &SqliteConnectOptions,
    location: &str,
) -> Result<SqliteConnection, StoreError> {
    let connected = options.connect().await;
    connected.map_err(|source| StoreError::Open {
        location: location.to_owned(),
        source,
    })
}

impl Engine for SqliteEngine {
    type Row = SqliteRow;
    type Work = SqliteWork;

    // A writer locks the whole file.
    const HEAD: &'static str = "SELECT h.id, h.last_seq, l.epoch, 'a transaction' AS mark \
         FROM journal_head h CROSS JOIN leader l";
    const EPOCH: &'static str = "SELECT epoch FROM leader";

    async fn begin(&self) -> Result<SqliteWork, StoreError> {
        if let Some(files) = &self.files {
            files.demand()?;
        }
        let connection: PoolConnection<Sqlite> = self.writer.acquire().await.map_err(failed)?;
        SqliteWork::begin(connection, self.files.clone()).await
    }

    async fn read(&self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = self.ask(statement).await;
        self.conditions.note(READING, rows.as_ref().err());
        rows
    }

    /// After a disk failure during a commit, the written data may be found when the files are
    /// opened again. The batch is recognised by its last event.
    async fn committed(
        &self,
        work: &mut SqliteWork,
        _: &Mark,
        batch: &Batch,
    ) -> Result<bool, StoreError> {
        let Some(last) = batch.events.last() else {
            return Ok(false);
        };
        let stored = work.fetch(Statement::new(EVENT).number(last.seq)).await?;
        let Some(stored) = stored.first() else {
            return Ok(false);
        };
        let at_us = stored
            .signed("at_us")?
            .and_then(|at| u64::try_from(at).ok());
        Ok(at_us == Some(last.at_us)
            && stored.text("kind")?.as_ref() == Some(&last.kind)
            && stored.text("body")?.as_ref() == Some(&last.body))
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

    fn whole_cut(&self, cut: u64, _: u64) -> u64 {
        cut
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

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        let rows = self.read(Statement::new(SIZE)).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let size = row.signed("size_bytes")?.unwrap_or(0);
        Ok(StoreInfo {
            database: "sqlite",
            version: row.text("version")?.unwrap_or_default(),
            location: self.location.clone(),
            size_bytes: u64::try_from(size).unwrap_or(0),
            schema_version: row.signed("schema_version")?.unwrap_or(0),
        })
    }

    fn conditions(&self) -> &Arc<Conditions> {
        &self.conditions
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        if let Some(anchor) = self.anchor.lock().await.take() {
            let _ = anchor.close().await;
        }
    }
}
