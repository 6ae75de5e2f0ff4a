//! Migrations of KV caches between workers: wanted and running ones. No worker sends or receives
//! two at once (`Heddle` §5.3).

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// A migration that waits for its program's next tool call and for both its ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Where the program should be.
    pub to: WorkerId,
    /// The placement policy's score, usually the remaining length: the greatest goes first.
    pub rank: i64,
}

/// A running migration.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The source.
    pub from: WorkerId,
    /// The destination.
    pub to: WorkerId,
    /// Migrated context, in tokens.
    pub tokens: u64,
    /// When it began.
    pub since: Timestamp,
}

/// All migrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Migrations {
    /// Programs that should be elsewhere.
    pub wanted: BTreeMap<ProgramId, Wanted>,
    /// Programs whose cache is being migrated.
    pub moving: BTreeMap<ProgramId, Move>,
}

impl Migrations {
    /// True without migrations.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.moving.is_empty()
    }

    /// Workers that send or receive at present.
    pub fn busy(&self) -> BTreeSet<WorkerId> {
        let ends = self.moving.values().flat_map(|m| [m.from, m.to]);
        ends.collect()
    }

    /// The wanted migrations, the greatest rank first.
    pub fn by_rank(&self) -> Vec<(ProgramId, WorkerId)> {
        let mut wanted: Vec<_> = self.wanted.iter().collect();
        wanted.sort_unstable_by_key(|(program, w)| (Reverse(w.rank), **program));
        wanted.into_iter().map(|(p, w)| (*p, w.to)).collect()
    }
}
