//! Prompts that are in no cache: token ids drawn again for every request.

use std::time::{SystemTime, UNIX_EPOCH};

/// Ids of plain words in any vocabulary: above single bytes and marks, below what the smallest
/// vocabularies have.
const IDS: std::ops::Range<u32> = 260..508;

/// Draws token ids.
pub(super) struct Prompts {
    state: u64,
}

impl Prompts {
    /// Other prompts each time, so that an engine calibrated twice has not cached the first.
    pub(super) fn fresh() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::seeded(since.map_or(0, |since| since.as_nanos() as u64))
    }

    /// The same prompts for the same seed.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Uniform below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        // SplitMix64; the high half scaled to the bound.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = (mixed ^ (mixed >> 31)) >> 32;
        ((high * u64::from(bound)) >> 32) as u32
    }

    /// Uniform in `from..=to`.
    pub(super) fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// `count` ids.
    pub(super) fn ids(&mut self, count: u32) -> Vec<u32> {
        let width = IDS.end - IDS.start;
        (0..count).map(|_| IDS.start + self.below(width)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_and_prompts_differ() {
        let mut prompts = Prompts::seeded(3);
        let (one, other) = (prompts.ids(500), prompts.ids(500));
        assert!(one.iter().chain(&other).all(|id| IDS.contains(id)));
        assert_ne!(one[..8], other[..8]);
        assert_eq!(Prompts::seeded(3).ids(500), one);
        assert!((0..100).all(|_| (3..=5).contains(&prompts.between(3, 5))));
    }
}
