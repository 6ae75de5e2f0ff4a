//! Names that are over: of groups that were served or given up, and of their programs, so that none
//! is sampled a second time.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Hashes of the latest names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    in_order: BTreeMap<u64, u64>,
    hashes: BTreeSet<u64>,
    next: u64,
}

impl Finished {
    /// Remembers a name; beyond `names_max` the oldest one is forgotten.
    pub(crate) fn insert(&mut self, key: &str, names_max: usize) {
        let hash = hash(key);
        if self.hashes.insert(hash) {
            self.in_order.insert(self.next, hash);
            self.next += 1;
        }
        if self.hashes.len() > names_max
            && let Some((_, oldest)) = self.in_order.pop_first()
        {
            self.hashes.remove(&oldest);
        }
    }

    /// Whether a name is remembered.
    pub fn contains(&self, key: &str) -> bool {
        self.hashes.contains(&hash(key))
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// FNV-1a with 64 bits: of a million keys two are taken for one with a chance of 1 in 36 million.
pub(crate) fn hash(key: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    key.as_bytes().iter().fold(start, add)
}
