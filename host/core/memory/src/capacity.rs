//! What engines hold, and what programs share of it.

use serde::{Deserialize, Serialize};

/// A part of a prompt that other programs may share, with a chained hash: the second segment's hash
/// covers the first segment too.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PrefixSegment {
    /// Chained hash of the prompt up to the end of this segment.
    pub hash: u64,
    /// Tokens of only this segment.
    pub tokens: u64,
}

/// What a worker can hold. `None` means unknown, hence unlimited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Tokens of KV cache.
    pub tokens: Option<u64>,
    /// Longest context of one program, in tokens.
    pub context_tokens_max: Option<u64>,
    /// Engines with fixed slots (llama.cpp's slots): programs placed at once.
    pub slots: Option<u32>,
    /// Number of GPUs it runs on, by tensor parallelism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Whether it reports that it offloads caches to host memory of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offloads: bool,
}

impl Capacity {
    /// The longest context that it holds.
    pub fn context_tokens_max(&self) -> u64 {
        let pool = self.tokens.unwrap_or(u64::MAX);
        pool.min(self.context_tokens_max.unwrap_or(u64::MAX))
    }

    /// Tokens of each slot, on engines that have slots.
    pub fn slot_tokens(&self) -> Option<u64> {
        let slots = u64::from(self.slots?).max(1);
        let tokens = self.tokens.unwrap_or(slots);
        Some((tokens / slots).max(1))
    }

    /// True if a placement has a slot that there still is, or if there are no slots.
    pub fn has_seat(&self, slot: Option<u32>) -> bool {
        self.slots
            .is_none_or(|slots| slot.is_some_and(|slot| slot < slots))
    }
}
