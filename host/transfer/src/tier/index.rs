//! The index of a tier and its eviction order, without files.

use std::collections::BTreeMap;

use super::TierUsage;
use crate::{CopyId, KvCopy, TransferError};

struct Entry {
    copy: KvCopy,
    /// Sequence number of its last use.
    used: u64,
    /// Number of transfers that use it.
    pins: u32,
    /// To be removed when the last of them ends.
    is_doomed: bool,
}

/// The copies of a tier, ordered by use.
pub(super) struct Index {
    entries: BTreeMap<CopyId, Entry>,
    by_use: BTreeMap<u64, CopyId>,
    uses: u64,
    /// Bytes of the entries.
    held: u64,
    /// Bytes reserved for copies being received.
    reserved: u64,
    bytes_max: u64,
}

impl Index {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            held: 0,
            reserved: 0,
            bytes_max,
        }
    }

    /// Adds a copy as the most recently used. Its room must be reserved.
    pub(super) fn insert(&mut self, copy: KvCopy) {
        debug_assert!(!self.knows(copy.id), "{} is already here", copy.id);
        self.forget(copy.id);
        self.uses += 1;
        self.held += copy.bytes;
        self.by_use.insert(self.uses, copy.id);
        let entry = Entry {
            used: self.uses,
            pins: 0,
            is_doomed: false,
            copy,
        };
        self.entries.insert(entry.copy.id, entry);
    }

    /// Whether a copy is here, even if it is removed with its last transfer.
    pub(super) fn knows(&self, id: CopyId) -> bool {
        self.entries.contains_key(&id)
    }

    /// A usable copy.
    pub(super) fn get(&self, id: CopyId) -> Option<&KvCopy> {
        let entry = self.entries.get(&id)?;
        (!entry.is_doomed).then_some(&entry.copy)
    }

    pub(super) fn pin(&mut self, id: CopyId) {
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.pins += 1;
            self.by_use.remove(&entry.used);
            entry.used = self.uses;
            self.by_use.insert(entry.used, id);
        }
    }

    /// Unpins a copy; returns whether its files must be removed now.
    pub(super) fn unpin(&mut self, id: CopyId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        entry.pins -= 1;
        let over = entry.is_doomed && entry.pins == 0;
        if over {
            self.forget(id);
        }
        over
    }

    /// Removes a copy; returns whether its files must be removed now.
    pub(super) fn remove(&mut self, id: CopyId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        if entry.pins > 0 {
            entry.is_doomed = true;
            return false;
        }
        self.forget(id);
        true
    }

    /// Reserves room and returns the evicted copies. Evicts nothing if there is not enough room.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<Vec<KvCopy>, TransferError> {
        let idle: u64 = self
            .entries
            .values()
            .filter(|entry| entry.pins == 0)
            .map(|entry| entry.copy.bytes)
            .sum();
        let held_bytes = self.held - idle + self.reserved;
        if held_bytes.saturating_add(bytes) > self.bytes_max {
            return Err(TransferError::TierFull {
                needed_bytes: bytes,
                held_bytes,
                bytes_max: self.bytes_max,
            });
        }
        self.reserved += bytes;
        Ok(self.shrink())
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved -= bytes;
    }

    /// Evicts idle copies, the least recently used first, until the limit holds.
    pub(super) fn shrink(&mut self) -> Vec<KvCopy> {
        let mut gone = Vec::new();
        let order: Vec<CopyId> = self.by_use.values().copied().collect();
        for id in order {
            if self.held + self.reserved <= self.bytes_max {
                break;
            }
            if self.entries[&id].pins == 0 {
                gone.extend(self.forget(id));
            }
        }
        gone
    }

    pub(super) fn copies(&self) -> Vec<KvCopy> {
        let entries = self.by_use.values().map(|id| &self.entries[id]);
        entries
            .filter(|entry| !entry.is_doomed)
            .map(|entry| entry.copy.clone())
            .collect()
    }

    pub(super) fn usage(&self) -> TierUsage {
        TierUsage {
            copies: self.entries.len(),
            bytes: self.held + self.reserved,
            in_transfer: self.entries.values().filter(|entry| entry.pins > 0).count(),
            bytes_max: self.bytes_max,
        }
    }

    fn forget(&mut self, id: CopyId) -> Option<KvCopy> {
        let entry = self.entries.remove(&id)?;
        self.by_use.remove(&entry.used);
        self.held -= entry.copy.bytes;
        Some(entry.copy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use treadle_model::ProgramId;

    use super::*;
    use crate::{CopyLocation, Prefix, Tags};

    fn copy(program: u64, bytes: u64) -> KvCopy {
        KvCopy {
            id: CopyId::random().unwrap(),
            program: ProgramId(program),
            tags: Tags {
                model: "m".into(),
                shape: None,
                block_tokens: None,
                dtype: None,
            },
            prefix: Prefix::of(&[]),
            bytes,
            checksum: None,
            place: CopyLocation::Tier {
                node: "n".into(),
                owner: "o".into(),
            },
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Add(u64),
        Pin(usize),
        Unpin,
        Remove(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => (1_u64..60).prop_map(Act::Add),
            2 => (0_usize..8).prop_map(Act::Pin),
            1 => Just(Act::Unpin),
            1 => (0_usize..8).prop_map(Act::Remove),
        ];
        proptest::collection::vec(act, 0..60)
    }

    const BYTES_MAX: u64 = 100;

    proptest! {
        /// Compared with a list in order of use, from which the first unpinned copy is evicted.
        #[test]
        fn the_least_recently_used_is_evicted(acts in acts()) {
            let mut index = Index::new(BYTES_MAX);
            // Copies with their pins, in order of use.
            let mut list: Vec<(KvCopy, u32)> = Vec::new();
            let mut pinned = Vec::new();
            for act in acts {
                match act {
                    Act::Add(bytes) => {
                        let held: u64 = list.iter().map(|(copy, _)| copy.bytes).sum();
                        let fast: u64 = list.iter().filter(|(_, pins)| *pins > 0).map(|(copy, _)| copy.bytes).sum();
                        let made = index.reserve(bytes);
                        prop_assert_eq!(made.is_ok(), fast + bytes <= BYTES_MAX);
                        let Ok(gone) = made else { continue };
                        let mut left = held;
                        let mut expected = Vec::new();
                        while left + bytes > BYTES_MAX {
                            let at = list.iter().position(|(_, pins)| *pins == 0).unwrap();
                            let (copy, _) = list.remove(at);
                            left -= copy.bytes;
                            expected.push(copy);
                        }
                        prop_assert_eq!(gone, expected);
                        let copy = copy(0, bytes);
                        index.release(bytes);
                        index.insert(copy.clone());
                        list.push((copy, 0));
                    }
                    Act::Pin(at) if at < list.len() => {
                        let (copy, pins) = list.remove(at);
                        index.pin(copy.id);
                        pinned.push(copy.id);
                        list.push((copy, pins + 1));
                    }
                    Act::Unpin => {
                        let Some(id) = pinned.pop() else { continue };
                        prop_assert!(!index.unpin(id));
                        list.iter_mut().find(|(copy, _)| copy.id == id).unwrap().1 -= 1;
                    }
                    Act::Remove(at) if at < list.len() && list[at].1 == 0 => {
                        let (copy, _) = list.remove(at);
                        prop_assert!(index.remove(copy.id));
                    }
                    Act::Pin(_) | Act::Remove(_) => {}
                }
                let listed: Vec<KvCopy> = list.iter().map(|(copy, _)| copy.clone()).collect();
                prop_assert_eq!(index.copies(), listed);
                prop_assert!(index.usage().bytes <= BYTES_MAX);
            }
        }
    }

    #[test]
    fn one_in_transfer_goes_when_that_ends() {
        let mut index = Index::new(BYTES_MAX);
        let held = copy(1, 10);
        index.insert(held.clone());
        index.pin(held.id);
        index.pin(held.id);
        assert!(!index.remove(held.id));
        assert_eq!(index.get(held.id), None);
        assert_eq!(index.copies(), []);
        assert!(!index.unpin(held.id));
        assert_eq!(index.usage().bytes, 10);
        assert!(index.unpin(held.id));
        assert_eq!(index.usage().bytes, 0);
    }
}
