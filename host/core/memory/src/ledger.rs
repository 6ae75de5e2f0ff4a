//! The ledger of one worker: what its KV memory is charged for, program by program, with shared
//! prefixes counted once. Its fields change only here.

use super::accounts::{Account, Charge, Parts};
use super::capacity::{Capacity, PrefixSegment};
use super::engine_cache::EngineCache;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, Timestamp};

/// A prefix that is charged once, however many programs share it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SharedPrefix {
    /// Programs placed here that begin with it.
    pub programs: u32,
    /// Tokens charged for it.
    pub tokens: u64,
}

/// Room reserved for a program whose cache is on its way here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct KeptRoom {
    /// Tokens.
    pub tokens: u64,
    /// Its slot, on engines that have slots.
    pub slot: Option<u32>,
}

/// The ledger of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// Private tokens charged for placed programs.
    charged_tokens: u64,
    /// Tokens charged for shared prefixes.
    shared_tokens: u64,
    /// The shared prefixes, by chained hash.
    shared: BTreeMap<u64, SharedPrefix>,
    /// Tokens that its engine holds for requests that treadle did not send.
    untracked_tokens: u64,
    /// Slots in use.
    slots_taken: BTreeSet<u32>,
    /// Room reserved for programs that are being moved here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    kept: BTreeMap<ProgramId, KeptRoom>,
    /// Its memory use over time.
    account: Account,
    /// What its engine does beyond that.
    engine: EngineCache,
}

/// What it holds.
impl Ledger {
    /// Tokens in use.
    pub fn used_tokens(&self) -> u64 {
        let kept = self.kept.values().map(|room| room.tokens).sum();
        self.charged_tokens
            .saturating_add(self.shared_tokens)
            .saturating_add(kept)
            .saturating_add(self.untracked_tokens)
    }

    /// Private tokens charged for placed programs.
    pub fn charged_tokens(&self) -> u64 {
        self.charged_tokens
    }

    /// Tokens charged for shared prefixes.
    pub fn shared_tokens(&self) -> u64 {
        self.shared_tokens
    }

    /// The shared prefixes, by chained hash.
    pub fn shared(&self) -> &BTreeMap<u64, SharedPrefix> {
        &self.shared
    }

    /// Tokens that its engine holds for requests that treadle did not send.
    pub fn untracked_tokens(&self) -> u64 {
        self.untracked_tokens
    }

    /// Number of slots in use.
    pub fn slots_taken(&self) -> usize {
        self.slots_taken.len()
    }

    /// Room reserved for programs that are being moved here.
    pub fn kept(&self) -> &BTreeMap<ProgramId, KeptRoom> {
        &self.kept
    }

    /// Its memory use over time.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// What its engine does beyond that.
    pub fn engine(&self) -> &EngineCache {
        &self.engine
    }

    /// The same, to record what its engine does.
    pub fn engine_mut(&mut self) -> &mut EngineCache {
        &mut self.engine
    }

    /// `ppm` millionths of what the engine keeps: its KV memory, and host memory that it offloads
    /// to by itself; unlimited if the former is unknown.
    pub fn watermark_tokens(&self, capacity: &Capacity, ppm: u32) -> u64 {
        let Some(tokens) = capacity.tokens else {
            return u64::MAX;
        };
        let tokens = tokens.saturating_add(self.engine.beyond_tokens());
        // This is called for each worker whenever a program waits, and dividing 128 bits is slow.
        match tokens.checked_mul(u64::from(ppm)) {
            Some(product) => product / 1_000_000,
            None => {
                u64::try_from(u128::from(tokens) * u128::from(ppm) / 1_000_000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Host memory that its engine is observed to offload caches to by itself, in tokens.
    pub fn host_tokens(&self, capacity: &Capacity) -> u64 {
        self.engine.host_tokens(capacity)
    }

    /// Tokens that placing a program would add: its private ones and those of its prefix that no
    /// program here shares yet.
    pub fn need_tokens(&self, private_tokens: u64, prefix: &[PrefixSegment]) -> u64 {
        let fresh: u64 = prefix
            .iter()
            .filter(|segment| !self.shared.contains_key(&segment.hash))
            .map(|segment| segment.tokens)
            .sum();
        private_tokens.saturating_add(fresh)
    }

    /// Tokens of a prefix that programs here share, beside `itself` of them. A prefix that could be
    /// shared but is not, such as a long first prompt, goes and comes with the rest of its cache.
    pub fn tokens_shared_with_others(&self, prefix: &[PrefixSegment], itself: u32) -> u64 {
        let has_others = |segment: &&PrefixSegment| {
            let shared = self.shared.get(&segment.hash);
            shared.is_some_and(|shared| shared.programs > itself)
        };
        let shared = prefix.iter().take_while(has_others);
        shared.map(|segment| segment.tokens).sum()
    }
}

/// Charges and reservations.
impl Ledger {
    /// Charges a program that is placed here, and gives it a slot: this one if it is free.
    pub fn charge(
        &mut self,
        program: ProgramId,
        tokens: u64,
        prefix: &[PrefixSegment],
        slot: Option<u32>,
        capacity: &Capacity,
    ) -> Option<u32> {
        let slot = slot.filter(|slot| capacity.has_seat(Some(*slot)));
        let slot = slot.filter(|slot| self.slots_taken.insert(*slot));
        let slot = slot.or_else(|| self.take_slot(capacity));
        self.charge_prefix(prefix);
        self.charged_tokens = self.charged_tokens.saturating_add(tokens);
        self.engine.come_back(program);
        slot
    }

    /// Ends the charge of a program that leaves, and frees its slot.
    pub fn release(&mut self, tokens: u64, prefix: &[PrefixSegment], slot: Option<u32>) {
        self.charged_tokens = self.charged_tokens.saturating_sub(tokens);
        self.discharge_prefix(prefix);
        if let Some(slot) = slot {
            self.slots_taken.remove(&slot);
        }
    }

    /// Replaces a program's charge.
    pub fn recharge(&mut self, before: u64, tokens: u64) {
        self.charged_tokens = self
            .charged_tokens
            .saturating_sub(before)
            .saturating_add(tokens);
    }

    /// Replaces a program's prefix. The common segments stay charged as they are.
    pub fn change_prefix(&mut self, before: &[PrefixSegment], prefix: &[PrefixSegment]) {
        self.charge_prefix(prefix);
        self.discharge_prefix(before);
    }

    /// Adjusts the charges of a prefix's segments to its present token counts.
    pub fn recount_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let Some(shared) = self.shared.get_mut(&segment.hash) else {
                continue;
            };
            let before = std::mem::replace(&mut shared.tokens, segment.tokens);
            let others = self.shared_tokens.saturating_sub(before);
            self.shared_tokens = others.saturating_add(segment.tokens);
        }
    }

    /// Sets the tokens that its engine holds for requests that treadle did not send.
    pub fn set_untracked(&mut self, tokens: u64) {
        self.untracked_tokens = tokens;
    }

    /// Reserves room, and a slot, for a program that is about to come.
    pub fn keep_room(
        &mut self,
        program: ProgramId,
        tokens: u64,
        capacity: &Capacity,
    ) -> Option<u32> {
        let slot = self.take_slot(capacity);
        self.kept.insert(program, KeptRoom { tokens, slot });
        slot
    }

    /// Releases reserved room, and returns its slot.
    pub fn give_room_back(&mut self, program: ProgramId) -> Option<u32> {
        let slot = self.kept.remove(&program)?.slot?;
        self.slots_taken.remove(&slot);
        Some(slot)
    }

    /// Takes the lowest free slot, on engines that have slots.
    fn take_slot(&mut self, capacity: &Capacity) -> Option<u32> {
        let slot = (0..capacity.slots?).find(|slot| !self.slots_taken.contains(slot))?;
        self.slots_taken.insert(slot);
        Some(slot)
    }

    /// Charges a prefix; shared parts are charged with their first program.
    fn charge_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let shared = self.shared.entry(segment.hash).or_insert(SharedPrefix {
                programs: 0,
                tokens: segment.tokens,
            });
            if shared.programs == 0 {
                self.shared_tokens = self.shared_tokens.saturating_add(shared.tokens);
            }
            shared.programs += 1;
        }
    }

    /// Removes the charge for a prefix; shared parts go with their last program.
    fn discharge_prefix(&mut self, prefix: &[PrefixSegment]) {
        for segment in prefix {
            let Some(shared) = self.shared.get_mut(&segment.hash) else {
                continue;
            };
            shared.programs -= 1;
            if shared.programs == 0 {
                self.shared_tokens = self.shared_tokens.saturating_sub(shared.tokens);
                self.shared.remove(&segment.hash);
            }
        }
    }
}

/// Its account.
impl Ledger {
    /// Replaces one charge by another. `capacity` is what counts as unused if it is not charged.
    pub(super) fn rebook(
        &mut self,
        old: Option<Charge>,
        new: Option<Charge>,
        capacity: Option<u64>,
        now: Timestamp,
    ) {
        if let Some(old) = &old {
            self.account.end(old, now);
        }
        if let Some(new) = &new {
            self.account.begin(new, now);
        }
        self.balance(capacity, now);
    }

    /// Settles the account with this capacity and the shared prefixes.
    pub fn balance(&mut self, capacity: Option<u64>, now: Timestamp) {
        self.account.balance(self.shared_tokens, capacity, now);
    }

    /// Moves undivided time to its uses.
    pub(super) fn divide(&mut self, parts: &Parts, now: Timestamp) {
        self.account.divide(parts, now);
    }
}
