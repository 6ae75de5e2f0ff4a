//! KV caches in host memory, and those in transfer between it and an engine. At most one valid copy
//! of a program's cache is known: the engine's while the program is placed, otherwise the one
//! stored here.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// A cache in host memory.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HeldCopy {
    /// Its name in the tier that holds it; opaque to the core.
    pub copy: Box<str>,
    /// Context that it holds, in tokens.
    pub tokens: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was stored.
    pub since: Timestamp,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the engine to host memory.
    Out,
    /// From host memory to the engine.
    Back,
}

/// A transfer between an engine and host memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its direction.
    pub direction: Direction,
    /// The engine.
    pub worker: WorkerId,
    /// Context, in tokens.
    pub tokens: u64,
    /// When it began.
    pub since: Timestamp,
    /// When it counts as failed.
    pub deadline: Timestamp,
}

/// All caches in host memory or in transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offloads {
    /// Copies in host memory.
    pub held: BTreeMap<ProgramId, HeldCopy>,
    /// Tokens of those copies.
    pub held_tokens: u64,
    /// Tokens of transfers to host memory.
    pub leaving_tokens: u64,
    /// Caches to be offloaded once their link is free.
    pub wanted: BTreeSet<ProgramId>,
    /// Running transfers.
    pub moving: BTreeMap<ProgramId, Transfer>,
    /// Until when offloads from a worker have used up their share of its link.
    pub link_free_at: BTreeMap<WorkerId, Timestamp>,
    /// When the next link is free, while a program waits for that.
    pub link_timer_at: Option<Timestamp>,
}

impl Offloads {
    /// True without copies and transfers.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.wanted.is_empty() && self.moving.is_empty()
    }

    /// True if there is nothing to report.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// True if the program's cache is about to leave its engine.
    pub fn is_leaving(&self, program: ProgramId) -> bool {
        let out = |transfer: &Transfer| transfer.direction == Direction::Out;
        self.wanted.contains(&program) || self.moving.get(&program).is_some_and(out)
    }

    /// True if the program's cache is being loaded to an engine.
    pub fn is_returning(&self, program: ProgramId) -> bool {
        let back = |transfer: &Transfer| transfer.direction == Direction::Back;
        self.moving.get(&program).is_some_and(back)
    }

    /// Workers with a running transfer in this direction.
    pub fn busy(&self, direction: Direction) -> BTreeSet<WorkerId> {
        let same = self.moving.values().filter(|t| t.direction == direction);
        same.map(|transfer| transfer.worker).collect()
    }

    pub(crate) fn hold(&mut self, program: ProgramId, copy: HeldCopy) {
        self.held_tokens += copy.tokens;
        self.held.insert(program, copy);
    }

    pub(crate) fn release(&mut self, program: ProgramId) -> Option<HeldCopy> {
        let copy = self.held.remove(&program)?;
        self.held_tokens -= copy.tokens;
        Some(copy)
    }

    pub(crate) fn begin(&mut self, program: ProgramId, transfer: Transfer) {
        if transfer.direction == Direction::Out {
            self.leaving_tokens += transfer.tokens;
        }
        self.moving.insert(program, transfer);
    }

    pub(crate) fn end(&mut self, program: ProgramId) -> Option<Transfer> {
        let transfer = self.moving.remove(&program)?;
        if transfer.direction == Direction::Out {
            self.leaving_tokens -= transfer.tokens;
        }
        Some(transfer)
    }
}
