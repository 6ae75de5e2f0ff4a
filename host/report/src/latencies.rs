//! Latencies of many requests, and their percentiles.

use std::time::Duration;

/// A collection of latencies.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    times: Vec<Duration>,
    sorted: bool,
}

impl Latencies {
    /// Adds a latency.
    pub fn push(&mut self, time: Duration) {
        self.times.push(time);
        self.sorted = false;
    }

    /// Adds all latencies of another collection.
    pub fn absorb(&mut self, other: Self) {
        self.times.extend(other.times);
        self.sorted = false;
    }

    /// The number of latencies.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// The smallest time that at least `share` of all do not exceed (nearest
    /// rank); zero without any.
    pub fn percentile(&mut self, share: f64) -> Duration {
        if !self.sorted {
            self.times.sort_unstable();
            self.sorted = true;
        }
        let rank = (share * self.times.len() as f64).ceil() as usize;
        let time = self.times.get(rank.saturating_sub(1));
        time.or(self.times.last()).copied().unwrap_or_default()
    }

    /// The percentile in milliseconds.
    pub fn percentile_ms(&mut self, share: f64) -> f64 {
        self.percentile(share).as_secs_f64() * 1e3
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        Self {
            times: times.into_iter().collect(),
            sorted: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times: Latencies = (1..=100).rev().map(Duration::from_millis).collect();
        let at = [0.0, 0.01, 0.5, 0.505, 0.95, 0.99, 1.0];
        let at = at.map(|share| times.percentile(share).as_millis());
        assert_eq!(at, [1, 1, 50, 51, 95, 99, 100]);
        times.push(Duration::from_secs(1));
        assert!((times.percentile_ms(1.0) - 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn one_time_is_every_percentile_and_none_is_zero() {
        let second = Duration::from_secs(1);
        let mut one: Latencies = [second].into_iter().collect();
        assert_eq!(
            (one.percentile(0.01), one.percentile(0.99)),
            (second, second)
        );
        let mut none = Latencies::default();
        assert_eq!((none.percentile(0.5), none.count()), (Duration::ZERO, 0));
        none.absorb(one);
        assert_eq!((none.percentile(0.5), none.count()), (second, 1));
    }
}
