//! The random stream of a policy. The host, native policies and tests use the same generator, so
//! that a recorded decision is repeatable anywhere.

/// SplitMix64: 64 bits of state; every seed gives a stream of full period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A stream; the same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut stream = SplitMix64::new(1_234_567);
        let found: Vec<u64> = (0..5).map(|_| stream.next_u64()).collect();
        assert_eq!(
            found,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }
}
