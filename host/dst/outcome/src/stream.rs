//! Seeded random streams, one for each purpose, so that a change of one part of a simulation does
//! not change the draws of the others.
//!
//! `SplitMix64`, implemented here: a recorded seed must mean the same after an upgrade of any
//! crate.

/// A random stream.
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of a seed for a purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut state = 0xcbf2_9ce4_8422_2325_u64;
        for byte in seed.to_le_bytes().iter().chain(purpose.as_bytes()) {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// As `between`, with small numbers being likelier.
    pub fn between_low(&mut self, low: u64, high: u64) -> u64 {
        self.between(low, high).min(self.between(low, high))
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
