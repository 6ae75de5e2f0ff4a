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
#[serde(default)]
pub struct Migrations {
    /// Programs that should be elsewhere.
    wanted: BTreeMap<ProgramId, Wanted>,
    /// Programs whose cache is being migrated.
    moving: BTreeMap<ProgramId, Move>,
}

impl Migrations {
    /// Programs that should be elsewhere.
    pub fn wanted(&self) -> &BTreeMap<ProgramId, Wanted> {
        &self.wanted
    }

    /// Programs whose cache is being migrated.
    pub fn moving(&self) -> &BTreeMap<ProgramId, Move> {
        &self.moving
    }

    /// True without migrations.
    pub(super) fn is_empty(&self) -> bool {
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

    /// Records where a program should be; the greatest rank goes first.
    pub fn want(&mut self, program: ProgramId, to: WorkerId, rank: i64) {
        self.wanted.insert(program, Wanted { to, rank });
    }

    /// Withdraws a wanted migration.
    pub fn withdraw(&mut self, program: ProgramId) {
        self.wanted.remove(&program);
    }

    /// Withdraws the wanted migrations to a worker.
    pub fn withdraw_to(&mut self, worker: WorkerId) {
        self.wanted.retain(|_, wanted| wanted.to != worker);
    }

    /// Withdraws all wanted migrations.
    pub fn withdraw_all(&mut self) {
        self.wanted.clear();
    }

    /// Begins a migration, which was wanted.
    pub fn begin(&mut self, program: ProgramId, begun: Move) {
        self.moving.insert(program, begun);
    }

    /// Ends a migration.
    pub fn end(&mut self, program: ProgramId) -> Option<Move> {
        self.moving.remove(&program)
    }

    /// Ends all running migrations.
    pub fn end_all(&mut self) -> BTreeMap<ProgramId, Move> {
        std::mem::take(&mut self.moving)
    }
}
