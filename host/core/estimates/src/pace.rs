//! An engine's time per token, by the number of concurrent steps.
//!
//! Each step that ends gives its mean time per token and the mean number of steps that ran beside
//! it. A straight line through these samples gives the time of a single step and what each further
//! step adds, at usual context lengths. Other prompts, and whatever else holds an engine up, only
//! lengthen times: so a sample above the line moves it little, and the line settles at the shortest
//! times.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// Minimum length of an answer: in shorter ones other things take most of the time.
const TOKENS_LEAST: u64 = 16;
/// Number of samples before a pace is known.
const SEEN_LEAST: u32 = 8;
/// Each new sample reduces the weight of earlier ones by this part.
const FORGOTTEN_PART: u64 = 256;
/// A sample above the line, or far below it, has its weight divided by this.
const ODD_PART: u64 = 64;
/// Steps are summed as whole numbers, in units of this part of a step.
const PARTS: u64 = 1 << 10;
/// The weight of one sample.
const WEIGHT: u64 = 1 << 20;
/// Limit on concurrent steps in a sample.
const STEPS_MAX: u64 = 1 << 10;
/// Limit on the time per token in a sample, in nanoseconds.
const TOKEN_NS_MAX: u64 = 1 << 33;
/// Variance of concurrent steps, in squared parts, that may be chance. Below it, the earlier value
/// for a further step is used; above it, that value weighs as much as this variance.
const CHANCE: i128 = 1 << 18;

/// The samples of one engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct DecodePace {
    seen: u32,
    weight: u64,
    steps: u64,
    steps_squared: u64,
    ns: u64,
    steps_ns: u64,
    /// The value known before the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sown: Option<DecodeTime>,
}

/// The summed time of all steps at a worker: a second in which three run counts as three.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct StepsTime {
    all: Span,
    /// When the number of running steps last changed.
    since: Timestamp,
}

impl StepsTime {
    /// The sum by now, given the number that has run since the last change.
    pub(super) fn by(&self, now: Timestamp, running: u32) -> Span {
        let since = now.since(self.since).0.saturating_mul(u64::from(running));
        Span(self.all.0.saturating_add(since))
    }

    /// Records that the number of running steps changes.
    pub(super) fn change(&mut self, now: Timestamp, ran: u32) {
        (self.all, self.since) = (self.by(now, ran), now);
    }
}

/// An engine's time per token.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DecodeTime {
    /// With a single step.
    pub alone: Span,
    /// Increase per further step; `None` if about the same number ran in all samples.
    pub further: Option<Span>,
}

impl DecodeTime {
    /// The time with `steps` concurrent steps, in nanoseconds.
    pub fn with_steps(self, steps: u64) -> u64 {
        self.beside(steps.clamp(1, STEPS_MAX) * PARTS)
    }

    /// The same time, for a number of steps in parts; in nanoseconds.
    fn beside(self, steps: u64) -> u64 {
        let each = self.further.unwrap_or_default().0;
        let further = each.saturating_mul(steps.saturating_sub(PARTS)) / PARTS;
        self.alone.0.saturating_add(further).saturating_mul(1_000)
    }
}

impl DecodePace {
    /// The pace measured with a test answer while nothing else ran.
    pub(super) fn measured(time: DecodeTime) -> Self {
        let mut pace = Self::sown(time);
        for _ in 0..SEEN_LEAST {
            let took = Span(time.alone.0.saturating_mul(TOKENS_LEAST));
            pace.see(TOKENS_LEAST, took, took);
        }
        pace
    }

    /// A pace known from elsewhere, which holds until there are enough samples. Its increase per
    /// further step holds until samples show one.
    pub(super) fn sown(time: DecodeTime) -> Self {
        let bounded = |span: Span| Span(span.0.clamp(1, TOKEN_NS_MAX / 1_000));
        let time = DecodeTime {
            alone: bounded(time.alone),
            further: time
                .further
                .map(|span| bounded(span).min(bounded(time.alone))),
        };
        Self {
            sown: Some(time),
            ..Self::default()
        }
    }

    /// The pace kept for an engine that comes back.
    pub(super) fn remembered(&self) -> Self {
        self.time().map(Self::sown).unwrap_or_default()
    }

    /// True if nothing is known.
    pub(super) fn is_unused(&self) -> bool {
        self.seen == 0 && self.sown.is_none()
    }

    /// Whether there are enough samples of this engine.
    pub(super) fn is_learnt(&self) -> bool {
        self.seen >= SEEN_LEAST
    }

    /// Adds a sample: `tokens` took `took`, while the running steps, this one included, accumulated
    /// `steps_time`.
    pub(super) fn see(&mut self, tokens: u64, took: Span, steps_time: Span) {
        if tokens < TOKENS_LEAST || took.0 == 0 {
            return;
        }
        let each = |of: u128, by: u64| u64::try_from(of / u128::from(by)).unwrap_or(u64::MAX);
        let steps = each(u128::from(steps_time.0) * u128::from(PARTS), took.0);
        let steps = steps.clamp(PARTS, STEPS_MAX * PARTS);
        let ns = each(u128::from(took.0) * 1_000, tokens).min(TOKEN_NS_MAX);
        // A time far below the line is not that of a single answer: tokens of several, or ones that
        // came late and all at once.
        let known = self.is_learnt().then(|| self.time()).flatten();
        let expected = known.map(|time| time.beside(steps));
        let is_odd = expected.is_some_and(|expected| ns > expected || ns < expected / 8);
        let part = if is_odd { ODD_PART } else { 1 };
        self.seen = self.seen.saturating_add(1);
        for (sum, value) in [
            (&mut self.weight, WEIGHT),
            (&mut self.steps, steps),
            (&mut self.steps_squared, steps * steps),
            (&mut self.ns, ns),
            (&mut self.steps_ns, steps * ns / PARTS),
        ] {
            *sum = *sum - *sum / (FORGOTTEN_PART * part) + value / part;
        }
    }

    /// Adds the samples of another engine of the same kind.
    pub(super) fn add(&mut self, other: &Self) {
        self.seen = self.seen.saturating_add(other.seen);
        self.weight = self.weight.saturating_add(other.weight);
        self.steps = self.steps.saturating_add(other.steps);
        self.steps_squared = self.steps_squared.saturating_add(other.steps_squared);
        self.ns = self.ns.saturating_add(other.ns);
        self.steps_ns = self.steps_ns.saturating_add(other.steps_ns);
        self.sown = self.sown.or(other.sown);
    }

    /// The line through the samples, once there are enough.
    pub(super) fn time(&self) -> Option<DecodeTime> {
        if !self.is_learnt() {
            return self.sown;
        }
        let (weight, parts, unit) = (
            i128::from(self.weight),
            i128::from(PARTS),
            i128::from(WEIGHT),
        );
        let mean = |sum: u64| i128::from(sum) * unit / weight;
        let (steps, ns) = (mean(self.steps), mean(self.ns));
        let variance = mean(self.steps_squared) - steps * steps;
        let covariance = mean(self.steps_ns) * parts - steps * ns;
        // A further step adds at least nothing, and at most as much as a single one takes.
        let bounded = |slope: i128| slope.clamp(0, ns * parts / steps);
        let sown = self.sown.and_then(|time| time.further);
        let sown = sown.map(|further| i128::from(further.0) * 1_000);
        let further = match sown {
            _ if variance < CHANCE => sown.map(bounded),
            None => Some(bounded(covariance * parts / variance)),
            Some(sown) => {
                let both = covariance * parts + sown * CHANCE;
                Some(bounded(both / (variance + CHANCE)))
            }
        };
        let alone = ns - further.unwrap_or(0) * (steps - parts) / parts;
        let span = |ns: i128| Span(u64::try_from((ns + 500) / 1_000).unwrap_or(0));
        Some(DecodeTime {
            alone: span(alone),
            further: further.map(span),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodePace, DecodeTime};
    use treadle_model::Span;

    /// Adds samples of an engine that takes 20 ms per token and half a millisecond more for each
    /// further step.
    fn seen(pace: &mut DecodePace, steps_at_once: impl Iterator<Item = u64>) {
        for (number, steps) in steps_at_once.enumerate() {
            let tokens = 20 + (number as u64 * 37) % 300;
            let took = tokens * (20_000 + 500 * (steps - 1));
            pace.see(tokens, Span(took), Span(took * steps));
        }
    }

    fn found(pace: &DecodePace) -> (u64, u64) {
        let time = pace.time().expect("enough was seen");
        (
            time.alone.0,
            time.further.map(|span| span.0).unwrap_or_default(),
        )
    }

    #[test]
    fn the_time_alone_and_what_each_further_step_adds_are_found() {
        let mut pace = DecodePace::default();
        seen(&mut pace, (0..7).map(|number| 1 + number % 3));
        assert_eq!(pace.time(), None, "too few");
        seen(&mut pace, (0..50).map(|number| 1 + number * 7 % 40));
        let (alone, further) = found(&pace);
        assert!((19_500..=20_500).contains(&alone), "{alone}");
        assert!((475..=525).contains(&further), "{further}");
        seen(&mut pace, (0..2_000).map(|number| 1 + number * 7 % 40));
        let (alone, further) = found(&pace);
        assert!((19_900..=20_100).contains(&alone), "{alone}");
        assert!((495..=505).contains(&further), "{further}");
    }

    #[test]
    fn what_was_measured_holds_until_more_is_seen() {
        let mut pace = DecodePace::measured(DecodeTime {
            alone: Span(20_000),
            further: None,
        });
        assert_eq!(found(&pace), (20_000, 0));
        seen(&mut pace, (0..20).map(|number| 10 + number % 10));
        let (alone, further) = found(&pace);
        assert!((19_500..=20_500).contains(&alone), "{alone}");
        assert!((450..=550).contains(&further), "{further}");
    }

    fn sown(alone_us: u64, further_us: u64) -> DecodePace {
        DecodePace::sown(DecodeTime {
            alone: Span(alone_us),
            further: Some(Span(further_us)),
        })
    }

    #[test]
    fn what_was_sown_holds_until_enough_was_seen() {
        let mut pace = sown(40_000, 2_000);
        assert_eq!(found(&pace), (40_000, 2_000));
        assert!(!pace.is_unused());
        seen(&mut pace, (0..7).map(|number| 1 + number * 7 % 40));
        assert_eq!(found(&pace), (40_000, 2_000), "too few");
        seen(&mut pace, (0..9).map(|number| 1 + number * 7 % 40));
        let (alone, further) = found(&pace);
        assert!((18_000..=22_000).contains(&alone), "{alone}");
        assert!((450..=550).contains(&further), "{further}");
        // A value that is too fast is corrected as well, though longer times count little later.
        let mut pace = sown(5_000, 0);
        seen(&mut pace, (0..16).map(|number| 1 + number * 7 % 40));
        let (alone, _) = found(&pace);
        assert!((18_000..=22_000).contains(&alone), "{alone}");
    }

    #[test]
    fn what_a_further_step_adds_stays_as_sown_while_none_shows_it() {
        let mut pace = sown(20_000, 500);
        seen(&mut pace, std::iter::repeat_n(16, 4_000));
        let (alone, further) = found(&pace);
        assert!((490..=510).contains(&further), "{further}");
        assert!((19_500..=20_500).contains(&alone), "{alone}");
    }

    #[test]
    fn nothing_that_is_sown_breaks_anything() {
        for alone in [0, 1, u64::MAX] {
            for further in [0, u64::MAX] {
                let mut pace = sown(alone, further);
                assert!(pace.time().is_some());
                pace.see(16, Span(u64::MAX), Span(u64::MAX));
                pace.add(&sown(further, alone));
                assert!(pace.time().is_some());
            }
        }
    }

    #[test]
    fn from_one_number_of_steps_no_line_is_drawn() {
        let mut pace = DecodePace::default();
        seen(&mut pace, std::iter::repeat_n(16, 500));
        let (alone, _) = found(&pace);
        assert_eq!(pace.time().and_then(|time| time.further), None);
        assert!((27_450..=27_550).contains(&alone), "{alone}");
    }

    #[test]
    fn a_further_step_takes_no_more_than_one_alone() {
        let mut pace = DecodePace::default();
        for number in 0..100 {
            let steps = 1 + number % 8;
            let took = 1_000 * 1_000 * steps * steps;
            pace.see(1_000, Span(took), Span(took * steps));
        }
        let (alone, further) = found(&pace);
        assert!(further <= alone && alone > 0, "{further} of {alone}");
    }

    #[test]
    fn the_shortest_times_tell() {
        let mut pace = DecodePace::default();
        for number in 0..1_000 {
            // Two of three steps are held up, to twice their time or more.
            let steps = 1 + number * 7 % 20;
            let held_up = 20_000 * (number % 3) * (1 + number % 5);
            let took = 100 * (20_000 + 500 * (steps - 1) + held_up);
            pace.see(100, Span(took), Span(took * steps));
        }
        let (alone, further) = found(&pace);
        assert!((18_000..=26_000).contains(&alone), "{alone}");
        assert!((400..=700).contains(&further), "{further}");
    }

    #[test]
    fn what_no_engine_does_breaks_nothing() {
        let mut pace = DecodePace::default();
        for tokens in [16, u64::MAX] {
            for took in [1, u64::MAX] {
                for steps_time in [0, u64::MAX] {
                    for _ in 0..1_000 {
                        pace.see(tokens, Span(took), Span(steps_time));
                    }
                }
            }
        }
        let mut both = pace;
        both.add(&pace);
        assert!(both.time().is_some());
    }
}
