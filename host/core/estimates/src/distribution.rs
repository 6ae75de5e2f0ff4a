//! Distributions learnt value by value, in buckets, and the predictions made from them: how much
//! longer a running tool call lasts, how much more a step generates.
//!
//! Buckets are a quarter of an octave wide, so that any value is known to about 10%. All arithmetic
//! is in whole numbers: the same values give the same answer on any machine.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::Span;

/// Number of values after which every bucket is halved, so that recent values weigh more.
const VALUES_MAX: u32 = 4_096;
/// Number of values below which no estimate is given.
const VALUES_MIN: u32 = 8;
/// The expected duration of a tool call without data, in microseconds.
const UNKNOWN_US: u64 = 2_000_000;

/// A distribution of values from 1 to 2^50.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values by bucket.
    buckets: BTreeMap<u8, u32>,
    /// Number of values in all buckets.
    values: u32,
}

/// The expected remainder of a value that has reached a given size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rest {
    /// The mean.
    pub mean: u64,
    /// The tenth percentile.
    pub tenth: u64,
    /// The price of waiting for the end, per end that is reached, with the best time to stop
    /// waiting: the minimum, over all stopping times, of the mean wait until then divided by the
    /// share that ends by then. The inverse is Gittins' index. If many end soon and a few go on for
    /// long, it is far below the mean.
    pub price: u64,
}

impl Distribution {
    /// True before the first value.
    pub fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// Adds a value.
    pub fn learn(&mut self, value: u64) {
        *self.buckets.entry(bucket(value)).or_default() += 1;
        self.values += 1;
        if self.values > VALUES_MAX {
            for values in self.buckets.values_mut() {
                *values /= 2;
            }
            self.buckets.retain(|_, values| *values > 0);
            self.values = self.buckets.values().sum();
        }
    }

    /// The value that the share `ppm`, in millionths, of all values does not exceed; `None` with
    /// too few values.
    pub fn quantile(&self, ppm: u32) -> Option<u64> {
        if self.values < VALUES_MIN {
            return None;
        }
        let wanted = u64::from(self.values) * u64::from(ppm.min(1_000_000));
        let mut below = 0_u64;
        let reaches = |(_, values): &(&u8, &u32)| {
            below += u64::from(**values) * 1_000_000;
            below >= wanted
        };
        let bucket = self.buckets.iter().find(reaches);
        bucket.map(|(bucket, _)| middle(*bucket))
    }

    /// The remainder beyond `so_far`, from the values that exceeded it. A value beyond all others
    /// is expected to double. `None` with too few values.
    pub fn rest(&self, so_far: u64) -> Option<Rest> {
        self.rest_after(0, so_far)
    }

    /// Like [`Self::rest`] for a value that continues only after `wait`, in the same unit; the
    /// result includes the wait.
    pub fn rest_after(&self, wait: u64, so_far: u64) -> Option<Rest> {
        if self.values < VALUES_MIN {
            return None;
        }
        let left = |bucket: &u8| middle(*bucket).saturating_sub(so_far);
        let beyond = self.buckets.range(bucket(so_far)..);
        let beyond = beyond
            .map(|(bucket, values)| (left(bucket), u64::from(*values)))
            .filter(|(left, _)| *left > 0)
            .map(|(left, values)| (left.saturating_add(wait), values));
        let values: u64 = beyond.clone().map(|(_, values)| values).sum();
        if values == 0 {
            return Some(Rest {
                mean: wait.saturating_add(so_far),
                tenth: wait.saturating_add(so_far / 10),
                price: wait.saturating_add(so_far),
            });
        }
        let (mut ended, mut spent) = (0_u64, 0_u128);
        let (mut tenth, mut price) = (None, u128::MAX);
        for (left, of_bucket) in beyond {
            ended += of_bucket;
            spent += u128::from(left) * u128::from(of_bucket);
            if tenth.is_none() && ended * 10 >= values {
                tenth = Some(left);
            }
            let waited = spent + u128::from(left) * u128::from(values - ended);
            price = price.min(waited / u128::from(ended));
        }
        let whole = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        Some(Rest {
            mean: whole(spent / u128::from(values)),
            tenth: tenth.unwrap_or(0),
            price: whole(price),
        })
    }
}

/// The remaining time of a tool call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemainingTime {
    /// The mean.
    pub mean: Span,
    /// The time within which one in ten such calls ends.
    pub soonest: Span,
    /// The price of waiting for the end ([`Rest::price`]).
    pub price: Span,
}

impl RemainingTime {
    /// Estimates the remaining time from the times of other calls, in milliseconds: of a call that
    /// began `elapsed` ago, or that begins after `wait`.
    pub fn of(times_ms: &Distribution, elapsed: Span, wait: Span) -> Option<Self> {
        let rest = times_ms.rest_after(wait.millis(), elapsed.millis())?;
        Some(Self {
            mean: Span::from_millis(rest.mean),
            soonest: Span::from_millis(rest.tenth),
            price: Span::from_millis(rest.price),
        })
    }

    /// The remaining time of a call without data: the longer it has lasted, the longer it is
    /// expected to last.
    pub fn unknown(elapsed: Span) -> Self {
        let mean = elapsed.micros().max(UNKNOWN_US);
        Self {
            mean: Span(mean),
            soonest: Span(mean / 10),
            price: Span(mean),
        }
    }

    /// The same call after a further wait.
    #[must_use]
    pub fn after(self, wait: Span) -> Self {
        let later = |time: Span| Span(time.0.saturating_add(wait.0));
        Self {
            mean: later(self.mean),
            soonest: later(self.soonest),
            price: later(self.price),
        }
    }

    /// The remaining time of a call whose expected remainder is known.
    pub fn expected(left: Span) -> Self {
        Self {
            mean: left,
            soonest: Span(left.micros() / 2),
            price: left,
        }
    }

    /// The later of two calls, if both must end.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if other.mean > self.mean { other } else { self }
    }
}

/// The bucket of a value: its octave and the quarter of the octave.
fn bucket(value: u64) -> u8 {
    let value = value.clamp(1, 1 << 50);
    let octave = value.ilog2();
    let quarter = ((value << 2) >> octave) & 3;
    (octave * 4) as u8 + quarter as u8
}

/// The middle of a bucket.
fn middle(bucket: u8) -> u64 {
    let (octave, quarter) = (u32::from(bucket) / 4, u64::from(bucket) % 4);
    ((9 + 2 * quarter) << octave) / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn learnt(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        for value in values {
            distribution.learn(*value);
        }
        distribution
    }

    #[test]
    fn a_few_values_give_no_estimate() {
        assert_eq!(learnt(&[1; 7]).rest(0), None);
        assert!(learnt(&[1; 8]).rest(0).is_some());
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut values = vec![1_000; 90];
        values.extend([100_000; 10]);
        let learnt = learnt(&values);
        let at = |ppm| learnt.quantile(ppm).unwrap();
        assert!((900..1_150).contains(&at(900_000)), "{}", at(900_000));
        assert!(at(900_001) > 85_000 && at(1_000_000) == at(900_001));
        assert_eq!(at(0), at(500_000));
    }

    #[test]
    fn what_has_outlasted_the_short_ones_is_one_of_the_long_ones() {
        let mut values = vec![1_000; 90];
        values.extend([100_000; 10]);
        let learnt = learnt(&values);
        let early = learnt.rest(0).unwrap();
        let late = learnt.rest(5_000).unwrap();
        assert!((9_000..13_000).contains(&early.mean), "{early:?}");
        assert!((85_000..110_000).contains(&late.mean), "{late:?}");
        assert!(early.tenth < 2_000 && late.tenth > 80_000);
    }

    #[test]
    fn waiting_a_little_is_worth_while_though_a_few_last_for_long() {
        let mut values = vec![1_000; 90];
        values.extend([1_000_000; 10]);
        let learnt = learnt(&values);
        let early = learnt.rest(0).unwrap();
        assert!(early.mean > 90_000, "{early:?}");
        // All wait for a second, by which nine in ten have ended.
        assert!((900..1_300).contains(&early.price), "{early:?}");
        let late = learnt.rest(5_000).unwrap();
        assert_eq!(late.price, late.mean, "those that are left end together");
    }

    #[test]
    fn beyond_all_that_is_known_it_goes_as_far_again() {
        let rest = learnt(&[1_000; 50]).rest(60_000).unwrap();
        assert_eq!(rest.mean, 60_000);
    }

    #[test]
    fn old_values_fade() {
        let mut fading = learnt(&vec![100_000; 4_096]);
        for _ in 0..40_000 {
            fading.learn(1_000);
        }
        let rest = fading.rest(0).unwrap();
        assert!(rest.mean < 2_000, "{rest:?}");
    }

    /// The price by its definition.
    fn price(values: &[u64], so_far: u64) -> Option<u128> {
        let lefts = values
            .iter()
            .map(|v| middle(bucket(*v)).saturating_sub(so_far));
        let lefts: Vec<u64> = lefts.filter(|left| *left > 0).collect();
        let until = |stop: u64| {
            let waited: u128 = lefts.iter().map(|left| u128::from(*left.min(&stop))).sum();
            waited / lefts.iter().filter(|left| **left <= stop).count() as u128
        };
        lefts.iter().map(|left| until(*left)).min()
    }

    proptest! {
        #[test]
        fn the_price_is_the_least_over_all_times_to_give_up(
            values in proptest::collection::vec(1_u64..1 << 20, 8..60),
            so_far in 0_u64..1 << 19,
        ) {
            let rest = learnt(&values).rest(so_far).unwrap();
            let expected = price(&values, so_far).map_or(u128::from(so_far), |least| least);
            prop_assert_eq!(u128::from(rest.price), expected);
            prop_assert!(rest.price <= rest.mean.max(so_far));
        }

        #[test]
        fn a_wait_counts_as_if_each_value_were_so_much_longer(
            values in proptest::collection::vec(1_u64..1 << 20, 8..60),
            wait in 0_u64..1 << 20,
        ) {
            let learnt = learnt(&values);
            let (now, later) = (learnt.rest(0).unwrap(), learnt.rest_after(wait, 0).unwrap());
            prop_assert_eq!(later.mean, now.mean + wait);
            prop_assert_eq!(later.tenth, now.tenth + wait);
            prop_assert!(later.price >= now.price + wait && later.price <= later.mean);
        }

        #[test]
        fn a_bucket_holds_its_values(value in 1_u64..1 << 40) {
            let off = middle(bucket(value)).abs_diff(value);
            prop_assert!(off * 8 <= value + 4, "{value}: off by {off}");
        }
    }
}
