//! Moves of KV caches between workers: which are wanted, and which are under
//! way. No worker sends or receives two at once (`Heddle` §5.3).

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// A move that waits for its program's next tool call and for both its ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Where the program should be.
    pub to: WorkerId,
    /// What the placement policy ranked it by, its remaining length as a rule:
    /// the greatest goes first.
    pub rank: i64,
}

/// A move under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Where the cache was.
    pub from: WorkerId,
    /// Where it goes.
    pub to: WorkerId,
    /// Context that is moved, in tokens.
    pub tokens: u64,
    /// Since when.
    pub since: Timestamp,
}

/// All moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Migrations {
    /// Programs that should be elsewhere.
    pub wanted: BTreeMap<ProgramId, Wanted>,
    /// Programs whose cache is being moved.
    pub moving: BTreeMap<ProgramId, Move>,
}

impl Migrations {
    /// True without moves.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.moving.is_empty()
    }

    /// Workers that send or receive now.
    pub fn busy(&self) -> BTreeSet<WorkerId> {
        let ends = self.moving.values().flat_map(|m| [m.from, m.to]);
        ends.collect()
    }

    /// The wanted moves, longest remaining first.
    pub fn by_rank(&self) -> Vec<(ProgramId, WorkerId)> {
        let mut wanted: Vec<_> = self.wanted.iter().collect();
        wanted.sort_unstable_by_key(|(program, w)| (Reverse(w.rank), **program));
        wanted.into_iter().map(|(p, w)| (*p, w.to)).collect()
    }
}
