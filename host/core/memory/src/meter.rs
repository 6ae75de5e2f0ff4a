//! What a program is charged, and how that enters the accounts of its job and of its workers. Only
//! this changes accounts.

use super::accounts::{Charge, JobAccounts, Parts, Prefill, Use, clock_ms};
use super::ledger::Ledger;
use serde::{Deserialize, Serialize};
use treadle_model::{Timestamp, WorkerId};

/// The ledgers of workers.
pub trait Ledgers {
    /// The ledger of a worker, with the capacity that counts as unused if it is not charged.
    fn ledger(&mut self, worker: WorkerId) -> Option<(&mut Ledger, Option<u64>)>;
}

/// A program's charges.
#[derive(Clone, Copy, Debug)]
pub struct Charges {
    /// The charge of its placement.
    pub placement: Option<Charge>,
    /// Room reserved for it where its cache is going.
    pub kept: Option<Charge>,
}

/// A program's entry in the accounts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// The charge of its placement.
    placement: Option<Charge>,
    /// Room reserved for it where its cache is going.
    kept: Option<Charge>,
    /// Whether its job's account includes these charges.
    in_job: bool,
    /// Whether its last step's cache is on the worker where it is placed, as far as is known.
    is_warm: bool,
    /// Since when its placement has had its present use, in milliseconds.
    since_ms: u64,
    /// Token-milliseconds before first tokens that are not divided yet.
    undivided: u64,
}

impl Meter {
    /// True if there is nothing to report.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The charge of its placement.
    pub fn placement(&self) -> Option<Charge> {
        self.placement
    }

    /// Room reserved for it where its cache is going.
    pub fn kept(&self) -> Option<Charge> {
        self.kept
    }

    /// Whether its last step's cache is on the worker where it is placed, as far as is known.
    pub fn is_warm(&self) -> bool {
        self.is_warm
    }

    /// Sets whether its cache is on its worker.
    pub fn set_warm(&mut self, is_warm: bool) {
        self.is_warm = is_warm;
    }

    /// Whether it would stop being charged where it is placed.
    pub fn leaves(&self, place: Option<Charge>) -> bool {
        let stays = |was: Charge| place.is_some_and(|place| place.worker == was.worker);
        self.placement.is_some_and(|was| !stays(was))
    }

    /// Token-milliseconds that are not divided yet, up to `now`.
    pub fn undivided_at(&self, now: Timestamp) -> u64 {
        let mut meter = *self;
        meter.settle(now);
        meter.undivided
    }

    fn settle(&mut self, now: Timestamp) {
        let now_ms = clock_ms(now);
        let passed = now_ms.saturating_sub(self.since_ms);
        self.since_ms = now_ms;
        if let Some(charge) = self.placement
            && charge.what == Use::Prefill
        {
            let token_ms = charge.tokens.saturating_mul(passed);
            self.undivided = self.undivided.saturating_add(token_ms);
        }
    }
}

impl Meter {
    /// Replaces its charges, and those in the accounts of its job and of workers.
    pub(super) fn book(
        &mut self,
        accounts: &mut JobAccounts,
        job: &str,
        charges: &Charges,
        ledgers: &mut impl Ledgers,
        now: Timestamp,
    ) {
        let leaves = self.leaves(charges.placement);
        self.settle(now);
        let old = [self.placement, self.kept];
        let new = [charges.placement, charges.kept];
        self.is_warm &= !leaves;
        if self.in_job
            && let Some(job) = accounts.get_mut(job)
        {
            old.iter().flatten().for_each(|charge| job.end(charge, now));
        }
        let account = if new.iter().any(Option::is_some) {
            accounts.open(job)
        } else {
            None
        };
        self.in_job = account.is_some();
        if let Some(account) = account {
            let begun = new.iter().flatten();
            begun.for_each(|charge| account.begin(charge, now));
        }
        (self.placement, self.kept) = (charges.placement, charges.kept);
        for (old, new) in old.into_iter().zip(new) {
            let ends = old.filter(|old| new.is_none_or(|new| new.worker != old.worker));
            if let Some((ledger, capacity)) = ends.and_then(|old| ledgers.ledger(old.worker)) {
                ledger.rebook(old, None, capacity, now);
            }
            if let Some((ledger, capacity)) = new.and_then(|new| ledgers.ledger(new.worker)) {
                let old = old.filter(|_| ends.is_none());
                ledger.rebook(old, new, capacity, now);
            }
        }
    }

    /// Divides its time before its first token.
    pub(super) fn divide(
        &mut self,
        accounts: &mut JobAccounts,
        job: &str,
        prefill: &Prefill,
        ledgers: &mut impl Ledgers,
        now: Timestamp,
    ) {
        self.settle(now);
        let undivided = std::mem::take(&mut self.undivided);
        if undivided == 0 {
            return;
        }
        let parts = Parts::of(undivided, prefill);
        let place = self.placement;
        if let Some((ledger, _)) = place.and_then(|place| ledgers.ledger(place.worker)) {
            ledger.divide(&parts, now);
        }
        if self.in_job
            && let Some(job) = accounts.get_mut(job)
        {
            job.divide(&parts, now);
        }
    }
}
