//! How long an engine takes for a token, by how many steps it runs at once.
//!
//! Each step that ends tells its mean time for a token, and how many steps ran beside it on average.
//! A straight line through these gives the time alone and what each further step adds, contexts as
//! they come. Prompts of others, and whatever else holds an engine up, only make times longer: so a
//! time above the line moves it little, and it comes to lie along the shortest.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// Of shorter answers other things take most of the time.
const TOKENS_LEAST: u64 = 16;
/// Steps until a pace is known.
const SEEN_LEAST: u32 = 8;
/// What was seen counts by this part less with each further step.
const FORGOTTEN_PART: u64 = 256;
/// A time above the line, or far below it, counts by this part less.
const ODD_PART: u64 = 64;
/// Sums of whole numbers: of steps in this many parts.
const PARTS: u64 = 1 << 10;
/// The weight of one step.
const WEIGHT: u64 = 1 << 20;
/// More steps at once count as so many.
const STEPS_MAX: u64 = 1 << 10;
/// A longer time for a token counts as this, in nanoseconds.
const TOKEN_NS_MAX: u64 = 1 << 33;
/// Where all steps had about as many beside them, these differ by chance: in the square of parts.
/// Then a further step adds what was known before; where they differ by more, that counts as much as
/// this.
const CHANCE: i128 = 1 << 18;

/// What was seen of one engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DecodePace {
    seen: u32,
    weight: u64,
    steps: u64,
    steps_squared: u64,
    ns: u64,
    steps_ns: u64,
    /// What was known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sown: Option<DecodeTime>,
}

/// The time of all steps at a worker: a second in which three run counts three seconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct StepsTime {
    all: Span,
    /// When the number of steps changed last.
    since: Timestamp,
}

impl StepsTime {
    /// By now, where so many have run since it changed.
    pub(crate) fn by(&self, now: Timestamp, running: u32) -> Span {
        let since = now.since(self.since).0.saturating_mul(u64::from(running));
        Span(self.all.0.saturating_add(since))
    }

    /// From now on another number runs.
    pub(crate) fn change(&mut self, now: Timestamp, ran: u32) {
        (self.all, self.since) = (self.by(now, ran), now);
    }
}

/// The time that an engine takes for a token of each of its steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DecodeTime {
    /// Of one step alone.
    pub alone: Span,
    /// What each further one adds; `None` where about as many ran whenever it was seen.
    pub further: Option<Span>,
}

impl DecodeTime {
    /// With so many steps in all, in nanoseconds.
    pub(crate) fn with_steps(self, steps: u64) -> u64 {
        self.beside(steps.clamp(1, STEPS_MAX) * PARTS)
    }

    /// With so many steps in all, in parts; in nanoseconds.
    fn beside(self, steps: u64) -> u64 {
        let each = self.further.unwrap_or_default().0;
        let further = each.saturating_mul(steps.saturating_sub(PARTS)) / PARTS;
        self.alone.0.saturating_add(further).saturating_mul(1_000)
    }
}

impl DecodePace {
    /// As it was measured with an answer of treadle's own, while nothing else ran.
    pub(crate) fn measured(time: DecodeTime) -> Self {
        let mut pace = Self::sown(time);
        for _ in 0..SEEN_LEAST {
            let took = Span(time.alone.0.saturating_mul(TOKENS_LEAST));
            pace.see(TOKENS_LEAST, took, took);
        }
        pace
    }

    /// As it is known from elsewhere: that holds until enough steps were seen, which tell then. What
    /// a further one adds holds for as long as none shows it.
    pub(crate) fn sown(time: DecodeTime) -> Self {
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

    /// What is known of an engine that comes back.
    pub(crate) fn remembered(&self) -> Self {
        self.time().map(Self::sown).unwrap_or_default()
    }

    /// True if nothing is known.
    pub fn is_unused(&self) -> bool {
        self.seen == 0 && self.sown.is_none()
    }

    /// Whether enough steps of this engine were seen.
    pub(crate) fn is_learnt(&self) -> bool {
        self.seen >= SEEN_LEAST
    }

    /// So many tokens took so long, while the steps that ran, this one included, came to
    /// `steps_time`.
    pub(crate) fn see(&mut self, tokens: u64, took: Span, steps_time: Span) {
        if tokens < TOKENS_LEAST || took.0 == 0 {
            return;
        }
        let each = |of: u128, by: u64| u64::try_from(of / u128::from(by)).unwrap_or(u64::MAX);
        let steps = each(u128::from(steps_time.0) * u128::from(PARTS), took.0);
        let steps = steps.clamp(PARTS, STEPS_MAX * PARTS);
        let ns = each(u128::from(took.0) * 1_000, tokens).min(TOKEN_NS_MAX);
        // A time far below the line is no time for one answer: tokens of several, or some that
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

    /// What was seen of another engine of the same kind is added.
    pub(crate) fn add(&mut self, other: &Self) {
        self.seen = self.seen.saturating_add(other.seen);
        self.weight = self.weight.saturating_add(other.weight);
        self.steps = self.steps.saturating_add(other.steps);
        self.steps_squared = self.steps_squared.saturating_add(other.steps_squared);
        self.ns = self.ns.saturating_add(other.ns);
        self.steps_ns = self.steps_ns.saturating_add(other.steps_ns);
        self.sown = self.sown.or(other.sown);
    }

    /// The line through what was seen, once that is enough.
    pub fn time(&self) -> Option<DecodeTime> {
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
        // What a further step adds is at least nothing, and at most what one takes alone.
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

    /// Steps of so many tokens, at an engine that takes 20 ms for a token and half a millisecond
    /// more for each further step.
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
        // One that is too fast gives way as well, though longer times count little later.
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
            // Of three steps two are held up, by as much again or more.
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
