//! Random numbers by name: what a member of a prompt does depends on the seed, the prompt and its
//! number only, so all systems are given the same work.

use treadle_plugin::random::SplitMix64;

/// A lognormal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// Half of the values are below it.
    pub(super) median: f64,
    /// Standard deviation of the logarithm.
    pub(super) sigma: f64,
}

impl Spread {
    pub(super) const fn of(median: f64, sigma: f64) -> Self {
        Self { median, sigma }
    }
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    numbers: SplitMix64,
}

impl Stream {
    /// The stream of this name.
    pub(super) fn of(seed: u64, name: &[u64]) -> Self {
        let mix = |state: u64, part: &u64| SplitMix64::new(state ^ part.rotate_left(23)).next_u64();
        Self {
            numbers: SplitMix64::new(name.iter().fold(seed, mix)),
        }
    }

    /// A number above 0 and at most 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.numbers.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// An integer from `low` to `high`.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        let width = u64::from(high.saturating_sub(low)) + 1;
        low + (self.numbers.next_u64() % width) as u32
    }

    /// A standard normal number (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    pub(super) fn lognormal(&mut self, spread: Spread) -> f64 {
        spread.median * (spread.sigma * self.normal()).exp()
    }
}
