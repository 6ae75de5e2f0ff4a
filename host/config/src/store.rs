//! `[store]`: location and retention of the state.

use treadle_store::{Location, PostgresLocation};

use super::section::section;
use super::{ConfigError, Secret, conflict};

section! {
    /// Location and retention of the state.
    StoreConfig in "store" {
        /// The database file; its folder is created if absent. `memory` keeps everything in memory until the process ends.
        path: String = ".treadle/treadle.db".to_owned(), "";
        /// A PostgreSQL database instead of the file, such as
        /// `postgres://user:password@host:5432/treadle`.
        url: Secret = Secret::default(), "";
        /// The schema in that database; it is created if absent. Daemons with different schemas are
        /// independent of each other.
        schema: String = "treadle".to_owned(), "";
        /// Maximum number of connections to that database.
        connections_max: u32 = 10, "connections", 4 ..= 1000;
        /// Whether pending schema migrations are applied at startup. If false, the daemon refuses
        /// to start until `treadle store migrate` has applied them.
        migrate: bool = true, "";
        /// Events between two snapshots; a restart replays at most about this many. Rows past their
        /// retention are removed when the daemon starts and every minute; events after the latest
        /// snapshot are kept.
        snapshot_events: u64 = 100_000, "events", 100 ..= 100_000_000;
        /// Number of newest events kept in the journal, with the decisions that they led to; fewer
        /// if they have more than 16 KiB each on average.
        keep_events: u64 = 1_000_000, "events", 0 ..= 1_000_000_000_000_u64;
        /// How long ended programs are kept, with their steps.
        keep_ended_s: u64 = 604_800, "seconds", 0 ..= 3_153_600_000_u64;
    }
}

impl StoreConfig {
    /// The location of the store.
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

    /// The location of one shard's state, beside that of the others. The first shard's is that of a
    /// daemon without shards.
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
                "is not the URL of a PostgreSQL database".to_owned(),
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
                "use at most 40 lowercase letters, digits and underscores, starting with a letter",
            ));
        }
        Ok(())
    }
}
