//! KV memory: what each engine's is charged for, what it was used for over time, and caches that
//! are elsewhere.
//!
//! The memory of one worker is in its [`Ledger`]; [`Memory`] has what concerns several workers:
//! accounts of jobs, copies in host memory, and transfers. Fields are private, so that nothing but
//! this crate changes a charge. It knows programs, steps and workers by their ids only; what
//! depends on them is passed in.

mod accounts;
mod backlog;
mod capacity;
mod engine_cache;
mod ledger;
mod lingering;
mod meter;
mod migrations;
mod offloads;
mod reuse;

pub use accounts::{
    Account, Charge, JOB_ACCOUNTS_MAX, JobAccounts, Prefill, Share, TokenTime, Use,
};
pub use capacity::{Capacity, PrefixSegment};
pub use engine_cache::{EngineCache, ReuseAt, is_lost};
pub use ledger::{KeptRoom, Ledger, SharedPrefix};
pub use meter::{Charges, Ledgers, Meter};
pub use migrations::{Migrations, Move, Wanted};
pub use offloads::{Direction, HeldCopy, Leaving, Offloads, Transfer};
pub use reuse::Observation;

use serde::{Deserialize, Serialize};
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// KV memory beyond the ledger of a single worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// KV memory use by job.
    #[serde(skip_serializing_if = "JobAccounts::is_empty")]
    accounts: JobAccounts,
    /// KV caches in host memory or in transfer between it and an engine.
    #[serde(skip_serializing_if = "Offloads::is_default")]
    offloads: Offloads,
    /// Wanted and running migrations.
    #[serde(skip_serializing_if = "Migrations::is_empty")]
    migrations: Migrations,
}

impl Memory {
    /// KV memory use by job.
    pub fn accounts(&self) -> &JobAccounts {
        &self.accounts
    }

    /// KV caches in host memory or in transfer between it and an engine.
    pub fn offloads(&self) -> &Offloads {
        &self.offloads
    }

    /// Wanted and running migrations.
    pub fn migrations(&self) -> &Migrations {
        &self.migrations
    }

    /// The copy of a program's cache in host memory.
    pub fn copy_of(&self, program: ProgramId) -> Option<&HeldCopy> {
        self.offloads.held().get(&program)
    }

    /// The running transfer of a program's cache to or from host memory.
    pub fn transfer_of(&self, program: ProgramId) -> Option<&Transfer> {
        self.offloads.moving().get(&program)
    }

    /// The running migration of a program's cache.
    pub fn move_of(&self, program: ProgramId) -> Option<&Move> {
        self.migrations.moving().get(&program)
    }

    /// The worker that a program is wanted at.
    pub fn wanted_at(&self, program: ProgramId) -> Option<WorkerId> {
        self.migrations.wanted().get(&program).map(|w| w.to)
    }

    /// True if nothing happens to the program's cache, and no offload is wanted. A migration that
    /// has not begun is ignored: it may wait for its link for long, and short memory does not wait
    /// for it.
    pub fn is_at_rest(&self, program: ProgramId) -> bool {
        !self.offloads.concerns(program) && self.move_of(program).is_none()
    }

    /// True if nothing happens or is about to happen to the program's cache.
    pub fn is_settled(&self, program: ProgramId) -> bool {
        self.wanted_at(program).is_none() && self.is_at_rest(program)
    }

    /// Marks a program's cache to be offloaded, which replaces a wanted migration.
    pub fn want_offload(&mut self, program: ProgramId) {
        self.migrations.withdraw(program);
        self.offloads.want(program);
    }

    /// The same caches, to change them.
    pub fn offloads_mut(&mut self) -> &mut Offloads {
        &mut self.offloads
    }

    /// The same migrations, to change them.
    pub fn migrations_mut(&mut self) -> &mut Migrations {
        &mut self.migrations
    }

    /// Replaces a program's charges, in its meter and in the accounts of its job and of workers.
    pub fn book(
        &mut self,
        meter: &mut Meter,
        job: &str,
        charges: &Charges,
        ledgers: &mut impl Ledgers,
        now: Timestamp,
    ) {
        meter.book(&mut self.accounts, job, charges, ledgers, now);
    }

    /// Divides a program's time before its first token into its uses.
    pub fn divide(
        &mut self,
        meter: &mut Meter,
        job: &str,
        prefill: &Prefill,
        ledgers: &mut impl Ledgers,
        now: Timestamp,
    ) {
        meter.divide(&mut self.accounts, job, prefill, ledgers, now);
    }
}
