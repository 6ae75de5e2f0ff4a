//! Detects that a database's files are no longer those that were opened.
//!
//! SQLite continues to use deleted or replaced files without an error, and what it writes then is
//! lost. So the files are compared with those that were opened before each transaction, after each
//! commit and every second.
//!
//! This module never opens them: closing a file, however it was opened, releases all POSIX locks
//! that the process holds on it, including SQLite's.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::StoreError;
use crate::condition::Conditions;

/// Interval of checks while nothing is written.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum size of a database: its header.
const HEADER_BYTES: u64 = 100;

/// A value unique to each database: when its migrations were applied, and how long they took.
const MARK: &str = "SELECT coalesce(group_concat(version || ' ' || installed_on || ' ' || \
     execution_time, ','), '') FROM (SELECT version, installed_on, execution_time \
     FROM _sqlx_migrations ORDER BY version)";

const LAST: &str = "SELECT last_seq FROM journal_head";

/// Identity of a file, independent of its name: device and inode.
type Identity = (u64, u64);

/// A file as it was opened.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    identity: Identity,
}

/// The state of the files at the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FilesState {
    /// When the database file last changed.
    changed: (i64, i64),
    database_bytes: u64,
    wal_bytes: u64,
}

/// The files of a database.
#[derive(Debug)]
pub(super) struct Files {
    /// The database file and SQLite's files beside it.
    opened: [Opened; 3],
    mark: String,
    options: SqliteConnectOptions,
    readers: SqlitePool,
    conditions: Arc<Conditions>,
    seen: Mutex<FilesState>,
    /// The last event read from the journal: a reader without a cache notices if the file was
    /// overwritten.
    reached: AtomicI64,
}

impl Files {
    /// The current files. A connection must be open, or they may not exist.
    pub(super) async fn of(
        path: &Path,
        options: SqliteConnectOptions,
        readers: SqlitePool,
        conditions: Arc<Conditions>,
    ) -> Result<Self, StoreError> {
        let mark = sqlx::query_scalar(MARK).fetch_one(&readers).await?;
        let failed = |source| StoreError::Folder {
            location: path.display().to_string(),
            source,
        };
        let of = |ending: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            let path = PathBuf::from(name);
            let found = std::fs::metadata(&path).map_err(failed)?;
            let identity = (found.dev(), found.ino());
            Ok::<_, StoreError>((Opened { path, identity }, found))
        };
        let (database, wal, index) = (of("")?, of("-wal")?, of("-shm")?);
        let seen = FilesState::of(&database.1, &wal.1);
        Ok(Self {
            opened: [database.0, wal.0, index.0],
            mark,
            options,
            readers,
            conditions,
            seen: Mutex::new(seen),
            reached: AtomicI64::new(0),
        })
    }

    /// Returns an error if a file was replaced or is missing, now or at an earlier check.
    pub(super) fn demand(&self) -> Result<(), StoreError> {
        self.conditions.demand()?;
        match self.look() {
            Ok(_) => Ok(()),
            Err(Difference::Lost(why) | Difference::Damaged(why)) => Err(self.lose(&why)),
            Err(Difference::Unclear(error)) => Err(StoreError::Database(error)),
        }
    }

    fn lose(&self, why: &str) -> StoreError {
        let place = self.opened[0].path.display();
        let why = self
            .conditions
            .lose(&format!("the store {place} is lost: {why}"));
        StoreError::Lost { why }
    }

    /// Checks the files; returns the difference from those that were opened.
    fn look(&self) -> Result<FilesState, Difference> {
        let [database, wal, index] = &self.opened;
        let (database, wal) = (database.found()?, wal.found()?);
        index.found()?;
        if database.len() < HEADER_BYTES {
            let why = format!("the file was cut to {} bytes", database.len());
            return Err(Difference::Lost(why));
        }
        Ok(FilesState::of(&database, &wal))
    }

    /// If the files changed, checks their contents on a separate connection, which has no cached
    /// pages.
    async fn look_closely(&self) -> Result<(), Difference> {
        let now = self.look()?;
        let before = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shorter =
            now.database_bytes < before.database_bytes || now.wal_bytes < before.wal_bytes;
        if now.changed != before.changed || is_shorter {
            self.compare(is_shorter).await?;
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    async fn compare(&self, whole: bool) -> Result<(), Difference> {
        let read: i64 = sqlx::query_scalar(LAST).fetch_one(&self.readers).await?;
        let known = self.reached.fetch_max(read, Ordering::Relaxed).max(read);
        let mut fresh = self.options.connect().await?;
        let compared = self.compare_with(&mut fresh, known, whole).await;
        let _ = fresh.close().await;
        compared
    }

    async fn compare_with(
        &self,
        fresh: &mut SqliteConnection,
        known: i64,
        whole: bool,
    ) -> Result<(), Difference> {
        let mark: String = sqlx::query_scalar(MARK).fetch_one(&mut *fresh).await?;
        if mark != self.mark {
            let why = "it was overwritten with another database".to_owned();
            return Err(Difference::Lost(why));
        }
        let last: i64 = sqlx::query_scalar(LAST).fetch_one(&mut *fresh).await?;
        if last < known {
            let why = format!("its journal ends at event {last}, but had reached event {known}");
            return Err(Difference::Lost(why));
        }
        if whole {
            let check = sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)");
            let said = check.fetch_one(&mut *fresh).await?;
            if said != "ok" {
                return Err(Difference::Damaged(format!("it was truncated: {said}")));
            }
        }
        Ok(())
    }
}

/// A difference from the files that were opened.
#[derive(Debug)]
enum Difference {
    /// A file was replaced or is missing.
    Lost(String),
    /// The contents are invalid; if they still are at the next check, the file was overwritten.
    Damaged(String),
    /// The check failed; the next one decides.
    Unclear(sqlx::Error),
}

/// SQLite's result codes for a damaged file: `SQLITE_CORRUPT`, `SQLITE_NOTADB`, and a missing page
/// (`SQLITE_IOERR_SHORT_READ`).
const DAMAGED: [u32; 3] = [11, 26, 522];

impl From<sqlx::Error> for Difference {
    fn from(error: sqlx::Error) -> Self {
        let code = super::work::code(&error).unwrap_or_default();
        if DAMAGED.contains(&code) || DAMAGED.contains(&(code & 0xff)) {
            return Self::Damaged(format!("it was damaged from outside: {error}"));
        }
        Self::Unclear(error)
    }
}

impl FilesState {
    fn of(database: &Metadata, wal: &Metadata) -> Self {
        Self {
            changed: (database.ctime(), database.ctime_nsec()),
            database_bytes: database.len(),
            wal_bytes: wal.len(),
        }
    }
}

impl Opened {
    /// The metadata of the file with this name, if it is still the one that was opened.
    fn found(&self) -> Result<Metadata, Difference> {
        let name = self.path.display();
        let why = match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => return Ok(found),
            Ok(_) => format!("{name} was replaced by another file"),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    format!("{name} was deleted or moved")
                }
                _ => return Err(Difference::Unclear(sqlx::Error::Io(error))),
            },
        };
        Err(Difference::Lost(why))
    }
}

/// Checks the files until they are dropped or lost.
pub(super) async fn watch(files: Weak<Files>) {
    let mut was_damaged = false;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(files) = files.upgrade() else {
            return;
        };
        let looked = files.look_closely().await;
        // Files that a closed store has removed are not lost.
        if files.readers.is_closed() || files.conditions.demand().is_err() {
            return;
        }
        let is_damaged = matches!(looked, Err(Difference::Damaged(_)));
        match looked {
            Err(Difference::Lost(why)) => {
                files.lose(&why);
            }
            Err(Difference::Damaged(why)) if was_damaged => {
                files.lose(&why);
            }
            Ok(()) | Err(Difference::Damaged(_) | Difference::Unclear(_)) => {}
        }
        was_damaged = is_damaged;
    }
}

#[cfg(test)]
mod tests;
