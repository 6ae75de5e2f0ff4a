//! `[store]`: where state lives and how long it stays.

use treadle_store::{Location, PostgresLocation};

use super::section::section;
use super::{ConfigError, Secret, conflict};

section! {
    /// Where state lives and how long it stays.
    StoreConfig in "store" {
        /// The database file; its folder is created if absent. `memory` keeps everything in memory, gone with the process.
        path: String = ".treadle/treadle.db".to_owned(), "";
        /// A PostgreSQL database instead of the file, such as
        /// `postgres://user:password@host:5432/treadle`.
        url: Secret = Secret::default(), "";
        /// The schema within that database; it is created if absent. Daemons with different schemas
        /// are independent of each other.
        schema: String = "treadle".to_owned(), "";
        /// Connections to that database at most.
        connections_max: u32 = 10, "connections", 4 ..= 1000;
        /// Whether pending migrations of the schema are applied at startup; without it the daemon
        /// refuses to start, and `treadle store migrate` applies them.
        migrate: bool = true, "";
        /// Events between two snapshots; a restart replays at most about as many. Rows past their
        /// retention are removed at a daemon's start and every minute; events after the latest
        /// snapshot stay.
        snapshot_events: u64 = 100_000, "events", 100 ..= 100_000_000;
        /// Newest events that stay in the journal, with the decisions that they led to.
        keep_events: u64 = 1_000_000, "events", 0 ..= 1_000_000_000_000_u64;
        /// How long programs that have ended stay, with their steps.
        keep_ended_s: u64 = 604_800, "seconds", 0 ..= 3_153_600_000_u64;
    }
}

impl StoreConfig {
    /// Where the store is.
    pub fn location(&self) -> Location {
        if !self.url.is_empty() {
            Location::Postgres(PostgresLocation {
                url: self.url.reveal().to_owned(),
                schema: self.schema.clone(),
                connections_max: self.connections_max,
            })
        } else if self.path == "memory" {
            Location::Memory
        } else {
            Location::File(self.path.clone().into())
        }
    }

    /// Where the state of one shard is, beside that of the others. The first
    /// shard's is where that of a daemon without shards is.
    pub fn of_shard(&self, shard: &str, is_first: bool) -> Self {
        let mut own = self.clone();
        if !is_first {
            own.schema = format!("{}_{shard}", self.schema);
            if self.path != "memory" {
                own.path = format!("{}.{shard}", self.path);
            }
        }
        own
    }

    /// Rules across several values.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let schemes = ["postgres://", "postgresql://"];
        if !self.url.is_empty()
            && !schemes
                .iter()
                .any(|scheme| self.url.reveal().starts_with(scheme))
        {
            return Err(conflict(
                "store.url",
                "is not the address of a PostgreSQL database".to_owned(),
                "write it as postgres://user:password@host:5432/database, or name a file with \
                 store.path",
            ));
        }
        let is_name = |name: &str| {
            name.len() <= 40
                && name.starts_with(|c: char| c.is_ascii_lowercase())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if !is_name(&self.schema) {
            return Err(conflict(
                "store.schema",
                format!("is `{}`", self.schema),
                "use at most 40 small letters, digits and underscores, a letter first",
            ));
        }
        Ok(())
    }
}
