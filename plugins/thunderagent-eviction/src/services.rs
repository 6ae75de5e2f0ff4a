//! Which service goes first: the one whose memory saves the least loading.
//!
//! Keeping a service saves its load time at each use. Per byte that it holds, that is
//! its worth, and the least worth is dropped first: cheap to load, seldom used, large.

use treadle_plugin::ServiceColumns;

/// Uses are counted over an hour.
const HOUR_MS: u64 = 3_600_000;

/// Scores; the highest is dropped first.
pub(crate) fn cheapest_first(services: &ServiceColumns<'_>) -> Vec<f64> {
    (0..services.len())
        .map(|row| {
            -worth(
                services.bytes[row],
                services.idle_ms[row],
                services.load_ms[row],
                services.uses[row],
            )
        })
        .collect()
}

/// Milliseconds of loading that a byte saves per hour; finite and not negative.
fn worth(bytes: u64, idle_ms: u64, load_ms: u64, uses: u32) -> f64 {
    // A program that was not used within the hour was used at most once in its idle time.
    let idle_hours = idle_ms.max(HOUR_MS) as f64 / HOUR_MS as f64;
    let uses_per_hour = f64::from(uses.max(1)) / idle_hours;
    load_ms as f64 * uses_per_hour / bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_large_service_goes_before_a_small_one_that_loads_as_long() {
        let scores = cheapest_first(&ServiceColumns {
            bytes: &[1_000, 80_000],
            idle_ms: &[900, 900],
            load_ms: &[20_000, 20_000],
            uses: &[4, 4],
            extra: &[],
        });
        assert!(scores[1] > scores[0], "{scores:?}");
    }

    #[test]
    fn among_the_unused_the_longest_idle_goes_first() {
        let scores = cheapest_first(&ServiceColumns {
            bytes: &[1_000, 1_000],
            idle_ms: &[2 * HOUR_MS, 3 * HOUR_MS],
            load_ms: &[20_000, 20_000],
            uses: &[0, 0],
            extra: &[],
        });
        assert!(scores[1] > scores[0], "{scores:?}");
    }

    proptest! {
        #[test]
        fn worth_grows_with_load_and_use_and_falls_with_size_and_idleness(
            [bytes, idle_ms, load_ms] in any::<[u64; 3]>(),
            uses in any::<u32>(),
            more in any::<u64>(),
        ) {
            let here = worth(bytes, idle_ms, load_ms, uses);
            prop_assert!(here.is_finite() && here >= 0.0);
            let more_uses = uses.saturating_add(more as u32);
            prop_assert!(worth(bytes, idle_ms, load_ms, more_uses) >= here);
            prop_assert!(worth(bytes, idle_ms, load_ms.saturating_add(more), uses) >= here);
            prop_assert!(worth(bytes.saturating_add(more), idle_ms, load_ms, uses) <= here);
            prop_assert!(worth(bytes, idle_ms.saturating_add(more), load_ms, uses) <= here);
        }
    }
}
