//! Accounts of KV memory: the space-time product of `ThunderAgent` §4.2, charged ledger tokens
//! times their duration, per worker and per job.
//!
//! An account knows how many tokens are in each use at present, and is settled just before that
//! changes, so it can be read at any time without looking at the programs. Its clock has whole
//! milliseconds: all sums are exact, and a worker's uses add up to its capacity times the time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{Timestamp, WorkerId};

/// Maximum number of job accounts. Beyond it the job that has been without a charge for longest is
/// dropped.
pub const JOB_ACCOUNTS_MAX: usize = 4_096;

/// What KV memory is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// A step of the program generates.
    Decode,
    /// A step of the program is at its engine before its first token: the share for tokens that
    /// were not computed before.
    Prefill,
    /// The other share: tokens that were computed before.
    Recompute,
    /// The program is between steps, or waits for something other than its cache.
    Caching,
    /// Its cache waits for a link or is being transferred, at either end.
    Transfer,
    /// Prefixes that programs placed here share. They are charged once, so they belong to no single
    /// job.
    Shared,
    /// Capacity that is not charged.
    Unused,
}

impl Use {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Decode,
        Self::Prefill,
        Self::Recompute,
        Self::Caching,
        Self::Transfer,
        Self::Shared,
        Self::Unused,
    ];

    /// Its name, as on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "prefill",
            Self::Recompute => "recompute",
            Self::Caching => "caching",
            Self::Transfer => "transfer",
            Self::Shared => "shared",
            Self::Unused => "unused",
        }
    }
}

const USES: usize = Use::ALL.len();

/// Token-milliseconds by use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TokenTime {
    by_use: [u64; USES],
    /// Use by unfinished steps before their first token: the share for tokens computed before is
    /// only known when they end.
    pub undivided: u64,
    /// Use charged above capacity, which exists only in the ledger.
    pub over: u64,
}

impl TokenTime {
    /// Token-milliseconds of one use.
    pub const fn of(&self, what: Use) -> u64 {
        self.by_use[what as usize]
    }

    /// The sum of all uses, including those before the first token: a worker's capacity times the
    /// time, plus what was charged above it.
    pub fn total(&self) -> u64 {
        let sum = |sum: u64, next: &u64| sum.saturating_add(*next);
        self.by_use.iter().fold(self.undivided, sum)
    }

    /// Each use as a share of all divided uses.
    pub fn shares(&self) -> impl Iterator<Item = (Use, f64)> {
        let told = self.total().saturating_sub(self.undivided).max(1);
        let share = move |what| (what, self.of(what) as f64 / told as f64);
        Use::ALL.into_iter().map(share)
    }

    /// The increase since `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        for what in Use::ALL {
            let sum = &mut self.by_use[what as usize];
            *sum = sum.saturating_sub(earlier.of(what));
        }
        self.undivided = self.undivided.saturating_sub(earlier.undivided);
        self.over = self.over.saturating_sub(earlier.over);
        self
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for what in Use::ALL {
            self.add(what, other.of(what));
        }
        self.undivided = self.undivided.saturating_add(other.undivided);
        self.over = self.over.saturating_add(other.over);
        self
    }

    fn add(&mut self, what: Use, token_ms: u64) {
        let sum = &mut self.by_use[what as usize];
        *sum = sum.saturating_add(token_ms);
    }

    /// Moves undivided time to its uses.
    fn divide(&mut self, parts: &Parts) {
        self.undivided = self.undivided.saturating_sub(parts.total());
        self.add(Use::Decode, parts.decode);
        self.add(Use::Prefill, parts.prefill);
        self.add(Use::Recompute, parts.recompute);
    }
}

/// How a step's prompt was computed, from which the time before its first token is divided.
#[derive(Clone, Copy, Debug)]
pub struct Prefill {
    /// Tokens that were not in the engine's cache.
    pub computed: u64,
    /// The number of those that had been computed before.
    pub again: u64,
    /// The share of the time that was spent on the prompt; the rest was unobserved decoding.
    pub timing: Share,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The part.
    pub part: u64,
    /// The whole.
    pub whole: u64,
}

impl Share {
    /// All of it.
    pub const ALL: Self = Self { part: 1, whole: 1 };
}

/// A step's time before its first token by use, in token-milliseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Parts {
    decode: u64,
    prefill: u64,
    recompute: u64,
}

impl Parts {
    /// Divides `token_ms` by how the prompt was computed.
    pub(super) fn of(token_ms: u64, prefill: &Prefill) -> Self {
        let Share { part, whole } = prefill.timing;
        let computing = share(token_ms, part.min(whole), whole);
        let again = prefill.again.min(prefill.computed);
        let recompute = share(computing, again, prefill.computed);
        Self {
            decode: token_ms - computing,
            prefill: computing - recompute,
            recompute,
        }
    }

    const fn total(&self) -> u64 {
        // The parts of one number.
        self.decode + self.prefill + self.recompute
    }
}

/// The share `part / whole` of `all`; 0 if `whole` is 0.
fn share(all: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    (u128::from(all) * u128::from(part) / u128::from(whole)) as u64
}

/// The account of a worker or a job.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The time up to which it is settled, in milliseconds.
    at_ms: u64,
    /// Current tokens in each use.
    tokens: [u64; USES],
    /// Tokens currently charged above capacity.
    tokens_over: u64,
    sums: TokenTime,
}

impl Account {
    /// Its value at `now`.
    pub fn at(&self, now: Timestamp) -> TokenTime {
        let mut account = *self;
        account.settle(now);
        account.sums
    }

    /// Current tokens in a use; those before the first token are under [`Use::Prefill`].
    pub const fn tokens(&self, what: Use) -> u64 {
        self.tokens[what as usize]
    }

    /// Tokens currently charged above capacity.
    pub const fn tokens_over(&self) -> u64 {
        self.tokens_over
    }

    /// Settles it up to `now`.
    fn settle(&mut self, now: Timestamp) {
        let now_ms = clock_ms(now);
        let passed = now_ms.saturating_sub(self.at_ms);
        if passed == 0 {
            return;
        }
        self.at_ms = now_ms;
        for what in Use::ALL {
            let token_ms = self.tokens(what).saturating_mul(passed);
            match what {
                Use::Prefill => {
                    self.sums.undivided = self.sums.undivided.saturating_add(token_ms);
                }
                _ => self.sums.add(what, token_ms),
            }
        }
        let over = self.tokens_over.saturating_mul(passed);
        self.sums.over = self.sums.over.saturating_add(over);
    }

    /// Ends a charge now.
    pub(super) fn end(&mut self, charge: &Charge, now: Timestamp) {
        self.settle(now);
        let tokens = &mut self.tokens[charge.what as usize];
        *tokens = tokens.saturating_sub(charge.tokens);
    }

    /// Begins a charge now.
    pub(super) fn begin(&mut self, charge: &Charge, now: Timestamp) {
        self.settle(now);
        let tokens = &mut self.tokens[charge.what as usize];
        *tokens = tokens.saturating_add(charge.tokens);
    }

    pub(super) fn divide(&mut self, parts: &Parts, now: Timestamp) {
        self.settle(now);
        self.sums.divide(parts);
    }

    /// Sets the tokens of shared prefixes; the rest of the capacity is unused.
    pub(super) fn balance(&mut self, shared: u64, capacity: Option<u64>, now: Timestamp) {
        let programs = &self.tokens[..Use::Shared as usize];
        let charged = programs
            .iter()
            .fold(shared, |sum, next| sum.saturating_add(*next));
        let unused = capacity.unwrap_or(0).saturating_sub(charged);
        let over = capacity.map_or(0, |capacity| charged.saturating_sub(capacity));
        let known = (
            self.tokens(Use::Shared),
            self.tokens(Use::Unused),
            self.tokens_over,
        );
        if known == (shared, unused, over) {
            return;
        }
        self.settle(now);
        self.tokens[Use::Shared as usize] = shared;
        self.tokens[Use::Unused as usize] = unused;
        self.tokens_over = over;
    }

    fn is_idle(&self) -> bool {
        self.tokens.iter().all(|tokens| *tokens == 0)
    }
}

/// `now` by an account's clock.
pub(super) const fn clock_ms(now: Timestamp) -> u64 {
    now.0 / 1_000
}

/// The accounts of all jobs, which outlive their programs. Those of workers are stored with the
/// workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobAccounts(BTreeMap<Box<str>, Account>);

impl JobAccounts {
    /// All accounts by job.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Account)> {
        self.0.iter().map(|(job, account)| (&**job, account))
    }

    /// The account of one job.
    pub fn get(&self, job: &str) -> Option<&Account> {
        self.0.get(job)
    }

    /// True without accounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get_mut(&mut self, job: &str) -> Option<&mut Account> {
        self.0.get_mut(job)
    }

    /// The account of one job, opened if needed; `None` if there is no room and none can be made.
    pub(super) fn open(&mut self, job: &str) -> Option<&mut Account> {
        if !self.0.contains_key(job) {
            if self.0.len() >= JOB_ACCOUNTS_MAX {
                let idle = self.0.iter().filter(|(_, account)| account.is_idle());
                let oldest = idle.min_by_key(|(_, account)| account.at_ms);
                let oldest = oldest.map(|(job, _)| job.clone())?;
                self.0.remove(&oldest);
            }
            self.0.insert(job.into(), Account::default());
        }
        self.0.get_mut(job)
    }
}

/// Tokens of a program at a worker, in one use.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// The worker.
    pub worker: WorkerId,
    /// The use; [`Use::Prefill`] until the first token.
    pub what: Use,
    /// Number of tokens.
    pub tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lose_nothing() {
        for token_ms in [0, 1, 7, 1_000, u64::MAX] {
            for (computed, again) in [(0, 0), (3, 1), (10, 10), (7, 9)] {
                for (part, whole) in [(1, 1), (0, 5), (2, 3), (9, 3), (0, 0)] {
                    let prefill = Prefill {
                        computed,
                        again,
                        timing: Share { part, whole },
                    };
                    let parts = Parts::of(token_ms, &prefill);
                    assert_eq!(parts.total(), token_ms);
                }
            }
        }
    }

    #[test]
    fn a_job_beyond_the_bound_replaces_the_longest_idle() {
        let mut jobs = JobAccounts::default();
        let charge = Charge {
            worker: WorkerId(0),
            what: Use::Caching,
            tokens: 5,
        };
        for job in 0..JOB_ACCOUNTS_MAX {
            let at = Timestamp::default() + treadle_model::Span::from_secs(job as u64);
            let account = jobs.open(&job.to_string()).unwrap();
            account.begin(&charge, at);
            if job == 7 || job == 9 {
                account.end(&charge, at);
            }
        }
        assert!(jobs.open("new").is_some() && jobs.get("7").is_none());
        jobs.get_mut("new").unwrap().begin(&charge, Timestamp(0));
        assert!(jobs.open("newer").is_some() && jobs.get("9").is_none());
        jobs.get_mut("newer").unwrap().begin(&charge, Timestamp(0));
        assert!(jobs.open("newest").is_none(), "all others are in use");
        assert_eq!(jobs.iter().count(), JOB_ACCOUNTS_MAX);
    }
}
