//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a limit, each reduced randomly by up to half, so that many clients do
/// not reconnect at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.next.min(self.longest);
        self.next = whole.saturating_mul(2).min(self.longest);
        // Without randomness, the full pause is used.
        let share = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
        whole.mul_f64(0.5 + share / 2.0)
    }

    /// Starts again with the first pause.
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
