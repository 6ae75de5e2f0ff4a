//! Whether a database's files are still those that were opened.
//!
//! SQLite goes on with files that were deleted or replaced, as if nothing were: what it writes then
//! is in no folder any more. So the files are compared with those that were opened, before each
//! transaction, after each commit and every second.
//!
//! They are never opened here: closing a file, however it was opened, ends all locks that the
//! process holds on it (POSIX), and SQLite's among them.

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

/// Time between two looks while nothing is written.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A database is at least so large: its header.
const HEADER_BYTES: u64 = 100;

/// What no two databases have in common: when each migration was applied, and how long it took.
const MARK: &str = "SELECT coalesce(group_concat(version || ' ' || installed_on || ' ' || \
     execution_time, ','), '') FROM (SELECT version, installed_on, execution_time \
     FROM _sqlx_migrations ORDER BY version)";

const LAST: &str = "SELECT last_seq FROM journal_head";

/// Which file it is, whatever its name.
type Identity = (u64, u64);

/// A file as it was opened.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    identity: Identity,
}

/// What was last seen of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// When the database file was last changed.
    changed: (i64, i64),
    database_bytes: u64,
    wal_bytes: u64,
}

/// The files of a database.
#[derive(Debug)]
pub(super) struct Files {
    /// The database and what SQLite keeps beside it.
    opened: [Opened; 3],
    mark: String,
    options: SqliteConnectOptions,
    readers: SqlitePool,
    conditions: Arc<Conditions>,
    seen: Mutex<Seen>,
    /// The last event of the journal that was seen there: a reader without a cache reads what was
    /// written over it.
    reached: AtomicI64,
}

impl Files {
    /// Those that are there now. A connection has to be open, or there may be none.
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
        let seen = Seen::of(&database.1, &wal.1);
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

    /// Refuses if a file is another one than the one that was opened, or was found to be so before.
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

    /// Looks at the files; why they are not those that were opened.
    fn look(&self) -> Result<Seen, Difference> {
        let [database, wal, index] = &self.opened;
        let (database, wal) = (database.found()?, wal.found()?);
        index.found()?;
        if database.len() < HEADER_BYTES {
            let why = format!("the file was cut to {} bytes", database.len());
            return Err(Difference::Lost(why));
        }
        Ok(Seen::of(&database, &wal))
    }

    /// Looks more closely where the files changed: by a connection of its own, which knows nothing
    /// of what was read before.
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
            let why = "another database was written over it".to_owned();
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
                return Err(Difference::Damaged(format!("a part was cut off: {said}")));
            }
        }
        Ok(())
    }
}

/// Why the files may not be those that were opened.
#[derive(Debug)]
enum Difference {
    /// They are others, or not all of them.
    Lost(String),
    /// What is read makes no sense; if it is so again, they were written over.
    Damaged(String),
    /// They can't be looked at; the next look finds out.
    Unclear(sqlx::Error),
}

/// Results of SQLite for a file that is not what it was: `SQLITE_CORRUPT`, `SQLITE_NOTADB`, and a
/// page that is not there (`SQLITE_IOERR_SHORT_READ`).
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

impl Seen {
    fn of(database: &Metadata, wal: &Metadata) -> Self {
        Self {
            changed: (database.ctime(), database.ctime_nsec()),
            database_bytes: database.len(),
            wal_bytes: wal.len(),
        }
    }
}

impl Opened {
    /// The file of this name, if it is still the one that was opened.
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

/// Looks at the files until they are let go of, or lost.
pub(super) async fn watch(files: Weak<Files>) {
    let mut was_damaged = false;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(files) = files.upgrade() else {
            return;
        };
        let looked = files.look_closely().await;
        // What a store that was closed meanwhile takes along is not lost.
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
