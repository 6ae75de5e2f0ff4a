//! Request rates of tenants: a token bucket in one number.
//!
//! The number is the time at which the bucket would be full again (the generic cell rate
//! algorithm), so a request costs one compare-and-swap and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A bucket that fills at a steady rate and holds one second's worth.
#[derive(Debug)]
pub struct Rate {
    /// Time between two requests at the full rate; 0 for no limit.
    interval_ns: u64,
    epoch: Instant,
    /// When the bucket is full again, since the epoch.
    full_at_ns: AtomicU64,
}

impl Rate {
    /// A rate in requests per second; no limit if `None`.
    pub fn new(requests_per_s: Option<u32>) -> Self {
        let interval_ns = requests_per_s.map_or(0, |rate| 1_000_000_000 / u64::from(rate.max(1)));
        Self {
            interval_ns,
            epoch: Instant::now(),
            full_at_ns: AtomicU64::new(0),
        }
    }

    /// Takes one request out of the bucket.
    ///
    /// # Errors
    /// How long to wait if it is empty.
    pub fn take(&self) -> Result<(), Duration> {
        if self.interval_ns == 0 {
            return Ok(());
        }
        self.take_at(self.epoch.elapsed().as_nanos() as u64)
    }

    fn take_at(&self, now_ns: u64) -> Result<(), Duration> {
        const BURST_NS: u64 = 1_000_000_000;
        let mut full_at = self.full_at_ns.load(Ordering::Relaxed);
        loop {
            let next = full_at.max(now_ns) + self.interval_ns;
            let allowed_from = next.saturating_sub(BURST_NS.max(self.interval_ns));
            if allowed_from > now_ns {
                return Err(Duration::from_nanos(allowed_from - now_ns));
            }
            let swapped = self.full_at_ns.compare_exchange_weak(
                full_at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return Ok(()),
                Err(seen) => full_at = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_a_second_then_the_steady_rate() {
        let rate = Rate::new(Some(10));
        let allowed = (0..100).filter(|_| rate.take_at(0).is_ok()).count();
        assert_eq!(allowed, 10);
        let wait = rate.take_at(0).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(rate.take_at(wait.as_nanos() as u64).is_ok());
        assert!(rate.take_at(wait.as_nanos() as u64).is_err());
        let later = (0..100).filter(|_| rate.take_at(60_000_000_000).is_ok());
        assert_eq!(
            later.count(),
            10,
            "an idle hour saves up one second's worth"
        );
    }

    #[test]
    fn no_limit_is_no_limit() {
        let rate = Rate::new(None);
        assert!((0..100_000).all(|_| rate.take().is_ok()));
    }

    #[test]
    fn many_threads_get_no_more_than_one() {
        let rate = Rate::new(Some(1_000));
        let allowed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if rate.take_at(5).is_ok() {
                            allowed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(allowed.into_inner(), 1_000);
    }
}
