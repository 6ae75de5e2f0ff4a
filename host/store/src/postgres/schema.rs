//! The schema of a PostgreSQL database: creation, inspection, migration.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use super::connect::Target;
use super::failure::failed;
use crate::StoreError;
use crate::schema::{Applied, SchemaStatus, embedded, migrator};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| migrator(embedded::POSTGRES));

const SCHEMAS: &str = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";

const TABLES: &str = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = $1 AND c.relname = '_sqlx_migrations'";

const APPLIED: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

/// The state of the migrations; changes nothing.
pub(super) async fn status(
    target: &Target,
    connection: &mut PgConnection,
) -> Result<SchemaStatus, StoreError> {
    let stored = async {
        let tables: i64 = sqlx::query_scalar(TABLES)
            .bind(&*target.schema)
            .fetch_one(&mut *connection)
            .await?;
        if tables == 0 {
            return Ok(Vec::new());
        }
        sqlx::query_as::<_, Applied>(APPLIED)
            .fetch_all(&mut *connection)
            .await
    };
    let stored = target.call("reading the migrations", stored).await?;
    Ok(SchemaStatus::compare(&MIGRATIONS, &stored))
}

/// Checks the schema, and migrates it if that is allowed.
pub(super) async fn bring(target: &Target, migrate: bool) -> Result<SchemaStatus, StoreError> {
    let mut connection = target.connect().await?;
    let status = status(target, &mut connection).await?;
    status.demand_usable(&target.location)?;
    if status.pending.is_empty() {
        close(connection).await;
        return Ok(status);
    }
    if !migrate {
        status.demand(&target.location)?;
    }
    create(target, &mut connection).await?;
    // Waiting for another process's migration, or a large migration, may take long.
    let with_timeout = "SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";
    let set = sqlx::raw_sql(with_timeout).execute(&mut connection).await;
    set.map_err(|error| failed(&target.location, error))?;
    let run = MIGRATIONS.run_direct(None, &mut connection, false);
    run.await.map_err(|source| {
        let location = target.location.to_string();
        match source {
            sqlx::migrate::MigrateError::Execute(error)
            | sqlx::migrate::MigrateError::ExecuteMigration(error, _) => failed(&location, error),
            source => StoreError::schema(&location, source),
        }
    })?;
    let status = self::status(target, &mut connection).await?;
    close(connection).await;
    Ok(status)
}

/// Creates the schema if it is absent.
async fn create(target: &Target, connection: &mut PgConnection) -> Result<(), StoreError> {
    let there = sqlx::query_scalar(SCHEMAS)
        .bind(&*target.schema)
        .fetch_one(&mut *connection);
    let there: i64 = target.call("looking for the schema", there).await?;
    if there > 0 {
        // `IF NOT EXISTS` requires the right to create the schema even if it exists.
        return Ok(());
    }
    // The name was checked; see `Target`.
    let sql = format!("CREATE SCHEMA IF NOT EXISTS {}", target.schema);
    let created = sqlx::query(AssertSqlSafe(sql))
        .execute(&mut *connection)
        .await;
    match created {
        // Another process created it first.
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(()),
        Err(error) => Err(failed(&target.location, error)),
        Ok(_) => Ok(()),
    }
}

/// Closes the connection; errors do not matter.
async fn close(connection: PgConnection) {
    let _ = connection.close().await;
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_databases_have_the_same_migrations() {
        let names = |folder: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
            let path = path.join("../../migrations").join(folder);
            let mut names: Vec<_> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("sqlite"), names("postgres"));
        assert_eq!(names("sqlite").len(), super::MIGRATIONS.iter().count());
    }
}
