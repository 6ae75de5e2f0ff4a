//! The schema of a SQLite file.

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::Connection;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode};

use super::lock::Lock;
use super::{How, connect, options};
use crate::StoreError;
use crate::schema::{Applied, SchemaStatus, embedded, migrator};
use treadle_trust::{make_private, private_file, private_folder};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| migrator(embedded::SQLITE));

const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";

const APPLIED: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

/// How a SQLite file begins.
const HEADER: &[u8] = b"SQLite format 3\0";

/// How long another process may take to create or migrate the same file.
const OPENING_MAX: Duration = Duration::from_mins(2);

/// Opens a file for writing, creates it and its folder if they are missing, and migrates it if that
/// is allowed.
///
/// One opener at a time: SQLite refuses a second one that changes the journal mode, and sqlx's
/// migrations read before they write; both fail at once, regardless of the busy timeout.
pub(super) async fn open(
    path: &Path,
    location: &str,
    how: How,
) -> Result<SqliteConnection, StoreError> {
    let unmade = |source| StoreError::Folder {
        location: location.to_owned(),
        source,
    };
    if !how.create && !path.exists() {
        return Err(unmade(std::io::ErrorKind::NotFound.into()));
    }
    let opening = Lock::beside(path, "opening");
    if !opening.exists() {
        check_contents(path, location)?;
    }
    // An existing folder may contain other files, with other readers. A bare file name is in the
    // current folder, which exists.
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.is_dir();
    if let Some(folder) = path.parent().filter(is_missing) {
        private_folder(folder).map_err(unmade)?;
    }
    if !opening.wait(OPENING_MAX).await? {
        return Err(StoreError::Opening {
            location: location.to_owned(),
            after_s: OPENING_MAX.as_secs(),
        });
    }
    // SQLite refuses a file with other contents, whose permissions are not changed then.
    let is_new = |found: std::fs::Metadata| found.is_file() && found.len() == 0;
    if std::fs::metadata(path).map_or(true, is_new) {
        private_file(path).map_err(unmade)?;
    }
    let first = options(path).journal_mode(SqliteJournalMode::Wal);
    let mut connection = connect(&first, location).await?;
    make_files_private(path).map_err(unmade)?;
    match bring(&mut connection, location, how.migrate).await {
        Ok(()) => Ok(connection),
        Err(error) => {
            let _ = connection.close().await;
            Err(error)
        }
    }
}

/// Refuses what is not a database, before anything is changed or created.
///
/// Only for a file that treadle has not opened yet: closing it releases this process's POSIX locks
/// on it. SQLite refuses the others.
fn check_contents(path: &Path, location: &str) -> Result<(), StoreError> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    if found.len() == 0 && found.is_file() {
        return Ok(());
    }
    let mut begins = Vec::with_capacity(HEADER.len());
    if found.is_file() {
        let file = std::fs::File::open(path);
        let read = file.and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut begins));
        read.map_err(|source| StoreError::Open {
            location: location.to_owned(),
            source: sqlx::Error::Io(source),
        })?;
    }
    if begins == HEADER {
        return Ok(());
    }
    Err(StoreError::NotADatabase {
        location: location.to_owned(),
    })
}

/// Makes the file private; SQLite gives its files beside it the same permissions.
fn make_files_private(path: &Path) -> std::io::Result<()> {
    private_file(path)?;
    for ending in ["-wal", "-shm"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(ending);
        match make_private(Path::new(&beside)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Applies pending migrations, or returns an error if that is not allowed.
pub(super) async fn bring(
    connection: &mut SqliteConnection,
    location: &str,
    migrate: bool,
) -> Result<(), StoreError> {
    let before = status(connection)
        .await
        .map_err(|error| unopened(location, error))?;
    if !migrate {
        return before.demand(location);
    }
    before.demand_usable(location)?;
    if before.pending.is_empty() {
        return Ok(());
    }
    // Not `run`: its future is not `Send`. This is what it calls.
    let run = MIGRATIONS.run_direct(None, connection, false).await;
    run.map_err(|source| StoreError::schema(location, source))
}

fn unopened(location: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Database(source) => StoreError::Open {
            location: location.to_owned(),
            source,
        },
        other => other,
    }
}

pub(super) async fn status(connection: &mut SqliteConnection) -> Result<SchemaStatus, StoreError> {
    let tables: i64 = sqlx::query_scalar(TABLES)
        .fetch_one(&mut *connection)
        .await?;
    let stored: Vec<Applied> = if tables == 0 {
        Vec::new()
    } else {
        sqlx::query_as(APPLIED).fetch_all(&mut *connection).await?
    };
    Ok(SchemaStatus::compare(&MIGRATIONS, &stored))
}

/// The state of a file's migrations. A missing file has none, and is not created.
pub(crate) async fn status_of_file(path: &Path) -> Result<SchemaStatus, StoreError> {
    if !path.exists() {
        return Ok(SchemaStatus::compare(&MIGRATIONS, &[]));
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = connect(&options, &path.display().to_string()).await?;
    let status = status(&mut connection).await;
    let _ = connection.close().await;
    status
}

/// Applies the pending migrations of a file.
pub(crate) async fn migrate_file(path: &Path) -> Result<SchemaStatus, StoreError> {
    let location = path.display().to_string();
    let how = How {
        migrate: true,
        create: true,
    };
    let mut connection = open(path, &location, how).await?;
    let status = status(&mut connection).await;
    let _ = connection.close().await;
    status
}
