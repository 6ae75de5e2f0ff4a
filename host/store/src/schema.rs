//! Applied and pending migrations, and general data of a store.

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

/// Number, name and statements of each migration, by database.
pub(crate) mod embedded {
    include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
}

/// Makes a list of [`embedded`] ready to run, each in a transaction.
pub(crate) fn migrator(list: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migration = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        let kind = MigrationType::Simple;
        Migration::new(version, name.into(), kind, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(list.iter().map(migration).collect())
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRow {
    /// Its number.
    pub version: i64,
    /// Its description.
    pub name: String,
}

/// The state of a store's migrations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Applied migrations.
    pub applied: Vec<MigrationRow>,
    /// Migrations of this build that are not applied.
    pub pending: Vec<MigrationRow>,
    /// Applied migrations that this build does not have, because a newer build wrote the store.
    pub unknown: Vec<i64>,
    /// A migration that began but did not complete.
    pub half_done: Option<i64>,
    /// Migrations that were applied in a different version than this build's.
    pub changed: Vec<i64>,
}

impl SchemaStatus {
    /// Whether this build can use the store as it is.
    pub fn fits(&self) -> bool {
        self.pending.is_empty() && self.usable()
    }

    /// Whether this build can use the store after applying the pending migrations.
    pub(crate) fn usable(&self) -> bool {
        self.unknown.is_empty() && self.changed.is_empty() && self.half_done.is_none()
    }

    /// Compares the stored migrations with those of this build.
    pub(crate) fn compare(migrator: &Migrator, stored: &[Applied]) -> Self {
        let mut status = Self::default();
        for migration in migrator.iter() {
            let row = MigrationRow {
                version: migration.version,
                name: migration.description.to_string(),
            };
            match stored.iter().find(|(version, ..)| *version == row.version) {
                None => status.pending.push(row),
                Some((_, false, _)) => status.half_done = Some(row.version),
                Some((.., checksum)) if *checksum != *migration.checksum => {
                    status.changed.push(row.version);
                }
                Some(_) => status.applied.push(row),
            }
        }
        let versions = stored.iter().map(|(version, ..)| *version);
        status.unknown = versions
            .filter(|version| !migrator.version_exists(*version))
            .collect();
        status
    }
}

/// A stored migration: its number, whether it completed, its checksum.
pub(crate) type Applied = (i64, bool, Vec<u8>);

/// Database, version, location and size of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// `sqlite` or `postgres`.
    pub database: &'static str,
    /// Version of the database.
    pub version: String,
    /// Its location, without secrets.
    pub location: String,
    /// Its size; for PostgreSQL, that of the schema.
    pub size_bytes: u64,
    /// The last applied migration.
    pub schema_version: i64,
}

impl SchemaStatus {
    /// Returns an error unless this build can use the store as it is.
    pub(crate) fn demand(&self, location: &str) -> Result<(), crate::StoreError> {
        self.demand_usable(location)?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let missing: Vec<String> = self
            .pending
            .iter()
            .map(|row| format!("{:04} {}", row.version, row.name))
            .collect();
        Err(crate::StoreError::Pending {
            location: location.to_owned(),
            missing: missing.join(", "),
        })
    }

    /// Returns an error if the store is unusable even after applying migrations.
    pub(crate) fn demand_usable(&self, location: &str) -> Result<(), crate::StoreError> {
        let source = if let Some(version) = self.half_done {
            MigrateError::Dirty(version)
        } else if let Some(version) = self.unknown.first() {
            MigrateError::VersionMissing(*version)
        } else if let Some(version) = self.changed.first() {
            MigrateError::VersionMismatch(*version)
        } else {
            return Ok(());
        };
        Err(crate::StoreError::schema(location, source))
    }
}
