//! How long to wait before the next attempt.

use std::time::Duration;

/// Waits that double up to a bound, each cut by a random part of up to a half, so that many clients
/// of a broker that comes back don't come at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.next.min(self.longest);
        self.next = whole.saturating_mul(2).min(self.longest);
        // Without randomness the wait is full, which is harmless.
        let share = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
        whole.mul_f64(0.5 + share / 2.0)
    }

    /// Starts over.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest);
        for whole_ms in [100, 200, 400, 800, 1_000, 1_000] {
            let whole = Duration::from_millis(whole_ms);
            let wait = backoff.next();
            assert!(wait <= whole && wait >= whole / 2, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= first);
    }
}
