//! `[store]`: where state lives and how long it stays.

use treadle_store::Location;

use super::section::section;

section! {
    /// Where state lives and how long it stays.
    StoreConfig in "store" {
        /// The database file; its folder is created if absent. `memory` keeps everything in memory, gone with the process.
        path: String = ".treadle/treadle.db".to_owned(), "";
        /// Events between two snapshots; a restart replays at most about as many. What no longer stays is removed after each.
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
        if self.path == "memory" {
            Location::Memory
        } else {
            Location::File(self.path.clone().into())
        }
    }
}
