//! The speeds of prefill and of cache transfers. An engine's prefill speed is that of its fastest
//! prompts: the others waited inside it, for earlier prompts or for caches that it loaded. A
//! transfer speed is a mean that includes waits, because programs wait for both. It is dropped
//! after a time without transfers: a slow past would keep new ones from being tried.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// Minimum number of computed tokens: with fewer, other things take most of the time.
const TOKENS_LEAST: u64 = 1_024;
/// Number of prompts before a speed is known.
const SEEN_LEAST: u32 = 8;
/// A faster prompt raises the speed by this part of the difference.
const FASTER_PART: u64 = 2;
/// Any other prompt lowers it by this part: if many wait, few show the speed.
const SLOWER_PART: u64 = 4096;

/// Number of prompts that test a speed known from elsewhere: each that is not faster lowers it by a
/// larger part, so that it approaches the engine's own.
const PROOFS: u32 = 64;
const PROOF_PART: u64 = 32;

/// The prefill speed of one engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct PrefillSpeed {
    tokens_per_s: u64,
    seen: u32,
    /// Remaining prompts that test a speed known from elsewhere.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    proofs: u32,
}

impl PrefillSpeed {
    /// A speed measured with a test prompt. Later prompts may still show that it is faster.
    pub(super) fn measured(tokens_per_s: u64) -> Self {
        Self {
            tokens_per_s,
            seen: SEEN_LEAST,
            proofs: 0,
        }
    }

    /// A speed known from elsewhere.
    pub(super) fn sown(tokens_per_s: u64) -> Self {
        Self {
            proofs: PROOFS,
            ..Self::measured(tokens_per_s)
        }
    }

    /// The speed kept for an engine that comes back.
    pub(super) fn remembered(&self) -> Self {
        self.tokens_per_s().map(Self::sown).unwrap_or_default()
    }

    /// Whether it was measured on this engine.
    pub(super) fn is_learnt(&self) -> bool {
        self.seen >= SEEN_LEAST && self.proofs == 0
    }

    /// True without prompts.
    pub(super) fn is_unused(&self) -> bool {
        self.seen == 0
    }

    /// Prompt tokens per second, once there are enough prompts.
    pub(super) fn tokens_per_s(&self) -> Option<u64> {
        (self.seen >= SEEN_LEAST).then_some(self.tokens_per_s.max(1))
    }

    /// Records that a prompt with `tokens` uncached tokens had its first token after `took`.
    /// Returns whether the sample was used.
    pub(super) fn see(&mut self, tokens: u64, took: Span) -> bool {
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

/// Number of transfers before their speed is known.
const TRANSFERS_LEAST: u32 = 4;
/// Each new transfer reduces the weight of earlier ones by this part.
const TRANSFERS_FORGOTTEN_PART: u64 = 16;

/// Time after the last transfer at which the speed becomes unknown.
const TRANSFERS_KNOWN: Span = Span::from_secs(600);

/// The speed of transfers of one kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct TransferSpeed {
    tokens: u64,
    us: u64,
    seen: u32,
    /// When the last one ended.
    at: Timestamp,
}

impl TransferSpeed {
    /// Records that a transfer of `tokens` took `took`.
    pub(super) fn see(&mut self, now: Timestamp, tokens: u64, took: Span) {
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

    /// Tokens per second, once there are enough recent transfers.
    pub(super) fn tokens_per_s(&self, now: Timestamp) -> Option<u64> {
        let speed = u128::from(self.tokens) * 1_000_000 / u128::from(self.us.max(1));
        let speed = u64::try_from(speed).unwrap_or(u64::MAX).max(1);
        let is_known = self.seen >= TRANSFERS_LEAST && now.since(self.at) <= TRANSFERS_KNOWN;
        is_known.then_some(speed)
    }
}

/// The speeds of cache transfers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct TransferSpeeds {
    /// From host memory to an engine.
    pub(super) loads: TransferSpeed,
    /// From one engine to another.
    pub(super) moves: TransferSpeed,
    /// From a prefill worker to the first token of the answer.
    #[serde(default, skip_serializing_if = "treadle_model::is_default")]
    pub(super) handovers: TransferSpeed,
}

impl TransferSpeeds {
    /// True without transfers.
    pub(super) fn is_unused(&self) -> bool {
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
