//! Location and options of a store.

use std::path::PathBuf;

use crate::PayloadLocation;

/// Location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file; it and its folder are created if absent.
    File(PathBuf),
    /// In memory until the process ends.
    Memory,
    /// A schema of a PostgreSQL database.
    Postgres(PostgresLocation),
}

/// A schema of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresLocation {
    /// `postgres://user:password@host:port/database`; `?sslmode=verify-full` and others are
    /// PostgreSQL's own.
    pub url: String,
    /// The schema; it is created if absent. Each scheduler on a database needs its own.
    pub schema: String,
    /// Most connections of one handle; at least [`crate::CONNECTIONS_MIN`].
    pub connections_max: u32,
}

impl PostgresLocation {
    /// The default schema of a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: crate::DEFAULT_SCHEMA.to_owned(),
            connections_max: crate::DEFAULT_CONNECTIONS_MAX,
        }
    }
}

/// Omits the password.
impl std::fmt::Debug for PostgresLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLocation")
            .field("schema", &self.schema)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// Options for opening a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Apply pending migrations. If false, pending migrations are an error.
    pub migrate: bool,
    /// Create a SQLite file that does not exist. If false, that is an error.
    pub create: bool,
    /// Location of large bodies.
    pub bodies: PayloadLocation,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            migrate: true,
            create: true,
            bodies: PayloadLocation::Table,
        }
    }
}
