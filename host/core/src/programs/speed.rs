//! How fast an engine computes prompts, and how fast caches go from place to place. The former is
//! seen in its fastest prompts: the others waited inside it, for prompts before them or for caches
//! that it brought back. The latter is a mean, waits included: so long do programs wait for
//! them. It is forgotten when none was seen for a while: slow ones keep others from being tried.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// With fewer tokens to compute, other things take most of the time.
const TOKENS_LEAST: u64 = 1_024;
/// Prompts until a speed is known.
const SEEN_LEAST: u32 = 8;
/// A faster prompt takes the speed up by this part of the difference.
const FASTER_PART: u64 = 2;
/// Each other one takes it down by this part of it: where many wait, few show it.
const SLOWER_PART: u64 = 4096;

/// What is only known from elsewhere is put to the proof by so many prompts: each that is not faster
/// takes it down by this part, so that it comes to those that the engine really has.
const PROOFS: u32 = 64;
const PROOF_PART: u64 = 32;

/// The speed of one engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PrefillSpeed {
    tokens_per_s: u64,
    seen: u32,
    /// Prompts that put it to the proof yet.
    #[serde(default, skip_serializing_if = "is_none")]
    proofs: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_none(prompts: &u32) -> bool {
    *prompts == 0
}

impl PrefillSpeed {
    /// As it was measured with a prompt of treadle's own. Others may still show that it is faster.
    pub(crate) fn measured(tokens_per_s: u64) -> Self {
        Self {
            tokens_per_s,
            seen: SEEN_LEAST,
            proofs: 0,
        }
    }

    /// As it is known from elsewhere.
    pub(crate) fn sown(tokens_per_s: u64) -> Self {
        Self {
            proofs: PROOFS,
            ..Self::measured(tokens_per_s)
        }
    }

    /// What is known of an engine that comes back.
    pub(crate) fn remembered(&self) -> Self {
        self.tokens_per_s().map(Self::sown).unwrap_or_default()
    }

    /// Whether it is this engine's own.
    pub(crate) fn is_learnt(&self) -> bool {
        self.seen >= SEEN_LEAST && self.proofs == 0
    }

    /// True if no prompt was seen.
    pub fn is_unused(&self) -> bool {
        self.seen == 0
    }

    /// Prompt tokens in a second, once enough prompts were seen.
    pub fn tokens_per_s(&self) -> Option<u64> {
        (self.seen >= SEEN_LEAST).then_some(self.tokens_per_s.max(1))
    }

    /// So many tokens of a prompt were not in the engine's cache, and its first token took so long;
    /// true if that tells anything.
    pub(crate) fn see(&mut self, tokens: u64, took: Span) -> bool {
        if tokens < TOKENS_LEAST || took.0 == 0 {
            return false;
        }
        let speed = u128::from(tokens) * 1_000_000 / u128::from(took.micros());
        let speed = u64::try_from(speed).unwrap_or(u64::MAX);
        self.seen = self.seen.saturating_add(1);
        let known = self.tokens_per_s;
        let slower_part = if self.proofs > 0 {
            PROOF_PART
        } else {
            SLOWER_PART
        };
        self.proofs = self.proofs.saturating_sub(1);
        self.tokens_per_s = if speed > known {
            known + (speed - known).div_ceil(FASTER_PART)
        } else {
            known - known / slower_part
        };
        true
    }
}

/// Transfers until their speed is known.
const TRANSFERS_LEAST: u32 = 4;
/// What was seen of transfers counts by this part less with each further one.
const TRANSFERS_FORGOTTEN_PART: u64 = 16;

/// So long after the last transfer nothing is known any more.
const TRANSFERS_KNOWN: Span = Span::from_secs(600);

/// The speed of transfers of one kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TransferSpeed {
    tokens: u64,
    us: u64,
    seen: u32,
    /// When the last one ended.
    at: Timestamp,
}

impl TransferSpeed {
    /// So many tokens took so long.
    pub(crate) fn see(&mut self, now: Timestamp, tokens: u64, took: Span) {
        if tokens < TOKENS_LEAST || took.0 == 0 {
            return;
        }
        if now.since(self.at) > TRANSFERS_KNOWN {
            *self = Self::default();
        }
        self.at = now;
        self.seen = self.seen.saturating_add(1);
        for (sum, value) in [(&mut self.tokens, tokens), (&mut self.us, took.micros())] {
            *sum = (*sum - *sum / TRANSFERS_FORGOTTEN_PART).saturating_add(value);
        }
    }

    /// Tokens in a second, once enough transfers were seen.
    pub fn tokens_per_s(&self, now: Timestamp) -> Option<u64> {
        let speed = u128::from(self.tokens) * 1_000_000 / u128::from(self.us.max(1));
        let speed = u64::try_from(speed).unwrap_or(u64::MAX).max(1);
        let is_known = self.seen >= TRANSFERS_LEAST && now.since(self.at) <= TRANSFERS_KNOWN;
        is_known.then_some(speed)
    }
}

/// The speeds of caches that go from place to place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TransferSpeeds {
    /// From host memory to an engine.
    pub loads: TransferSpeed,
    /// From an engine to another.
    pub moves: TransferSpeed,
}

impl TransferSpeeds {
    /// True if no transfer was seen.
    pub fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{PrefillSpeed, TransferSpeed};
    use treadle_model::{Span, Timestamp};

    fn see(speed: &mut PrefillSpeed, tokens: u64, times: u32) -> Option<u64> {
        for _ in 0..times {
            speed.see(tokens, Span::from_secs(1));
        }
        speed.tokens_per_s()
    }

    #[test]
    fn the_fastest_prompts_tell() {
        let mut speed = PrefillSpeed::default();
        assert_eq!(see(&mut speed, 1_000, 100), None, "too small to tell");
        assert_eq!(see(&mut speed, 5_000, 7), None, "too few");
        let known = see(&mut speed, 20_000, 12).unwrap_or_default();
        assert!((19_990..=20_000).contains(&known), "{known}");
        let known = see(&mut speed, 2_000, 20).unwrap_or_default();
        assert!((19_000..20_000).contains(&known), "few waited: {known}");
        let known = see(&mut speed, 10_000, 5_000).unwrap_or_default();
        assert!(
            (9_990..=10_000).contains(&known),
            "it is slower now: {known}"
        );
    }

    #[test]
    fn what_was_sown_gives_way_to_what_is_seen() {
        for sown in [2_000, 10_000, 50_000] {
            let mut speed = PrefillSpeed::sown(sown);
            assert_eq!(speed.tokens_per_s(), Some(sown));
            assert!(!speed.is_learnt());
            let known = see(&mut speed, 10_000, 60).unwrap_or_default();
            assert!((9_500..=10_500).contains(&known), "{sown}: {known}");
            see(&mut speed, 10_000, 4);
            assert!(speed.is_learnt());
        }
    }

    #[test]
    fn what_no_engine_does_breaks_nothing() {
        let mut speed = PrefillSpeed::default();
        for _ in 0..100 {
            speed.see(u64::MAX, Span(1));
            speed.see(u64::MAX, Span(0));
        }
        assert!(speed.tokens_per_s().is_some_and(|known| known > 0));
    }

    #[test]
    fn the_speed_of_transfers_follows_the_latest_and_is_forgotten() {
        let mut speed = TransferSpeed::default();
        let mut now = Timestamp(0);
        let mut see = |tokens, times, pause_s| {
            for _ in 0..times {
                now = now + Span::from_secs(pause_s);
                speed.see(now, tokens, Span::from_secs(2));
            }
            let later = now + Span::from_secs(601);
            assert_eq!(speed.tokens_per_s(later), None, "long ago");
            speed.tokens_per_s(now)
        };
        assert_eq!(see(100, 50, 1), None, "too small to tell");
        assert_eq!(see(20_000, 3, 1), None, "too few");
        assert_eq!(see(20_000, 1, 1), Some(10_000));
        let known = see(4_000, 200, 1).unwrap_or_default();
        assert!((2_000..=2_100).contains(&known), "{known}");
        assert!(see(u64::MAX, 50, 1).is_some());
        assert_eq!(see(20_000, 3, 700), None, "each after a long pause");
        assert_eq!(see(20_000, 4, 1), Some(10_000));
    }
}
