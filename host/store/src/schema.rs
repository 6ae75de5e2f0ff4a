//! Which migrations a store has, and what it is.

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
    /// What it brings.
    pub name: String,
}

/// Which migrations a store has and lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Those that are applied.
    pub applied: Vec<MigrationRow>,
    /// Those that this build brings and the store lacks.
    pub pending: Vec<MigrationRow>,
    /// Those that the store has and this build does not know: a newer build wrote it.
    pub unknown: Vec<i64>,
    /// One that began and did not end.
    pub half_done: Option<i64>,
    /// Those that are applied in another form than this build brings.
    pub changed: Vec<i64>,
}

impl SchemaStatus {
    /// Whether this build can use the store as it is.
    pub fn fits(&self) -> bool {
        self.pending.is_empty() && self.usable()
    }

    /// Whether this build can use the store, once the pending migrations are applied.
    pub(crate) fn usable(&self) -> bool {
        self.unknown.is_empty() && self.changed.is_empty() && self.half_done.is_none()
    }

    /// Compares what a store has with what this build brings.
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

/// A migration as the store has it on record: its number, whether it ended, its checksum.
pub(crate) type Applied = (i64, bool, Vec<u8>);

/// What a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// `sqlite` or `postgres`.
    pub database: &'static str,
    /// Version of the database.
    pub version: String,
    /// Where it is, without secrets.
    pub location: String,
    /// How large it is; of PostgreSQL the schema.
    pub size_bytes: u64,
    /// Last migration that is applied.
    pub schema_version: i64,
}

impl SchemaStatus {
    /// Refuses a store that this build can't use as it is.
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

    /// Refuses a store that migrations alone don't make usable.
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
