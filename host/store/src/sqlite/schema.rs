//! The schema of a SQLite file.

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::{options, single};
use crate::StoreError;
use crate::schema::{Applied, SchemaStatus};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";

const APPLIED: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

/// Applies what is pending, or refuses if that is not allowed.
pub(super) async fn bring(
    writer: &SqlitePool,
    location: &str,
    migrate: bool,
) -> Result<(), StoreError> {
    let mut before = status(writer)
        .await
        .map_err(|error| open(location, error))?;
    if !migrate {
        return before.demand(location);
    }
    loop {
        before.demand_usable(location)?;
        if before.pending.is_empty() {
            return Ok(());
        }
        let mut connection = writer.acquire().await?;
        // `run` makes a future that no task can be spawned with; this is what it calls.
        let run = MIGRATIONS.run_direct(None, &mut *connection, false).await;
        drop(connection);
        let Err(source) = run else { return Ok(()) };
        let after = status(writer).await?;
        // Another process that opens the file may have been faster by a migration.
        if after.applied.len() <= before.applied.len() {
            return Err(StoreError::schema(location, source));
        }
        before = after;
    }
}

fn open(location: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Database(source) => StoreError::Open {
            location: location.to_owned(),
            source,
        },
        other => other,
    }
}

pub(super) async fn status(pool: &SqlitePool) -> Result<SchemaStatus, StoreError> {
    let tables: i64 = sqlx::query_scalar(TABLES).fetch_one(pool).await?;
    let stored: Vec<Applied> = if tables == 0 {
        Vec::new()
    } else {
        sqlx::query_as(APPLIED).fetch_all(pool).await?
    };
    Ok(SchemaStatus::compare(&MIGRATIONS, &stored))
}

/// Which migrations a file has. A file that is not there has none, and is not created.
pub(crate) async fn status_of_file(path: &Path) -> Result<SchemaStatus, StoreError> {
    if !path.exists() {
        return Ok(SchemaStatus::compare(&MIGRATIONS, &[]));
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let pool = single(options, &path.display().to_string()).await?;
    let status = status(&pool).await;
    pool.close().await;
    status
}

/// Applies the migrations that a file lacks.
pub(crate) async fn migrate_file(path: &Path) -> Result<SchemaStatus, StoreError> {
    let location = path.display().to_string();
    let pool = single(options(path), &location).await?;
    let brought = bring(&pool, &location, true).await;
    let status = status(&pool).await;
    pool.close().await;
    brought?;
    status
}
