//! How long tools take: a distribution in buckets, learnt call by call, and what
//! it says of a call that has lasted so long already.
//!
//! Buckets are a quarter of an octave wide, so that any time is known to about
//! 10%. All is whole numbers: the same calls give the same answer anywhere.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::Span;

/// Calls that count; when there are more, each bucket is halved, so that what
/// happened lately weighs more.
const CALLS_MAX: u32 = 4_096;
/// Calls below which nothing is said.
const CALLS_MIN: u32 = 8;
/// What is expected of a call while nothing is known, in microseconds.
const UNKNOWN_US: u64 = 2_000_000;

/// A distribution of times.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ToolTimes {
    /// Calls by bucket.
    buckets: BTreeMap<u8, u32>,
    /// All of them.
    calls: u32,
}

/// What is expected of a call that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outlook {
    /// The mean of the time that it lasts yet.
    pub mean: Span,
    /// The time in which one in ten such calls ends.
    pub soonest: Span,
}

impl Outlook {
    /// Of a call of which nothing is known: what has lasted long lasts as long
    /// again.
    pub fn unknown(elapsed: Span) -> Self {
        let mean = elapsed.micros().max(UNKNOWN_US);
        Self {
            mean: Span(mean),
            soonest: Span(mean / 10),
        }
    }

    /// The later of two calls that both must end.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if other.mean > self.mean { other } else { self }
    }
}

impl ToolTimes {
    /// True before the first call.
    pub fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// Takes an ended call into account.
    pub fn learn(&mut self, took: Span) {
        *self.buckets.entry(bucket(took)).or_default() += 1;
        self.calls += 1;
        if self.calls > CALLS_MAX {
            for calls in self.buckets.values_mut() {
                *calls /= 2;
            }
            self.buckets.retain(|_, calls| *calls > 0);
            self.calls = self.buckets.values().sum();
        }
    }

    /// What is expected of a call that has lasted `elapsed`, by those that
    /// lasted longer; `None` while too few are known.
    pub fn outlook(&self, elapsed: Span) -> Option<Outlook> {
        if self.calls < CALLS_MIN {
            return None;
        }
        let left = |bucket: &u8| middle_us(*bucket).saturating_sub(elapsed.micros());
        let longer = self.buckets.range(bucket(elapsed)..);
        let longer: Vec<(u64, u32)> = longer
            .map(|(bucket, calls)| (left(bucket), *calls))
            .filter(|(left, _)| *left > 0)
            .collect();
        let calls: u64 = longer.iter().map(|(_, calls)| u64::from(*calls)).sum();
        if calls == 0 {
            return Some(Outlook::unknown(elapsed));
        }
        let sum: u128 = longer
            .iter()
            .map(|(left, calls)| u128::from(*left) * u128::from(*calls))
            .sum();
        let mut seen = 0;
        let soonest = longer.iter().find(|(_, of_bucket)| {
            seen += u64::from(*of_bucket);
            seen * 10 >= calls
        });
        Some(Outlook {
            mean: Span(u64::try_from(sum / u128::from(calls)).unwrap_or(u64::MAX)),
            soonest: Span(soonest.map_or(0, |(left, _)| *left)),
        })
    }
}

/// The bucket of a time: its octave in milliseconds, and a quarter of that.
fn bucket(time: Span) -> u8 {
    let ms = (time.micros() / 1_000).clamp(1, 1 << 50);
    let octave = ms.ilog2();
    let quarter = ((ms << 2) >> octave) & 3;
    (octave * 4) as u8 + quarter as u8
}

/// The middle of a bucket, in microseconds.
fn middle_us(bucket: u8) -> u64 {
    let (octave, quarter) = (u32::from(bucket) / 4, u64::from(bucket) % 4);
    (((9 + 2 * quarter) * 1_000) << octave) / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn learnt(seconds: &[u64]) -> ToolTimes {
        let mut times = ToolTimes::default();
        for s in seconds {
            times.learn(Span::from_secs(*s));
        }
        times
    }

    #[test]
    fn a_few_calls_say_nothing() {
        assert_eq!(learnt(&[1; 7]).outlook(Span(0)), None);
        assert!(learnt(&[1; 8]).outlook(Span(0)).is_some());
    }

    #[test]
    fn what_has_outlasted_the_short_ones_is_one_of_the_long_ones() {
        let mut seconds = vec![1; 90];
        seconds.extend([100; 10]);
        let times = learnt(&seconds);
        let early = times.outlook(Span(0)).unwrap();
        let late = times.outlook(Span::from_secs(5)).unwrap();
        assert!(
            (9..13).contains(&(early.mean.micros() / 1_000_000)),
            "{early:?}"
        );
        assert!(
            (85..110).contains(&(late.mean.micros() / 1_000_000)),
            "{late:?}"
        );
        assert!(early.soonest < Span::from_secs(2) && late.soonest > Span::from_secs(80));
    }

    #[test]
    fn beyond_all_that_is_known_it_lasts_as_long_again() {
        let outlook = learnt(&[1; 50]).outlook(Span::from_secs(60)).unwrap();
        assert_eq!(outlook.mean, Span::from_secs(60));
    }

    #[test]
    fn old_calls_fade() {
        let mut times = learnt(&vec![100; 4_096]);
        for _ in 0..40_000 {
            times.learn(Span::from_secs(1));
        }
        let outlook = times.outlook(Span(0)).unwrap();
        assert!(outlook.mean < Span::from_secs(2), "{outlook:?}");
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_times(ms in 1_u64..1 << 40) {
            let middle = middle_us(bucket(Span::from_millis(ms)));
            let off = middle.abs_diff(ms * 1_000);
            prop_assert!(off * 8 <= ms * 1_000 + 4_000, "{ms} ms: {middle} us");
        }
    }
}
