//! Accelerators that compute rewards: held for the run, or started when they are needed.

use super::stream::{Spread, Stream};
use serde::Serialize;

/// Where judges run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Judges {
    /// On as many accelerators as are needed, which go away when idle.
    Serverless,
    /// On accelerators that are held.
    Held(u32),
}

/// Time of a rule, in seconds.
const RULE_S: Spread = Spread::of(0.05, 0.5);
/// Time of a judgement by a language model of 7B, in seconds.
pub(super) const JUDGE_S: Spread = Spread::of(4.0, 0.5);
/// Judgements at once on one accelerator.
pub(super) const AT_ONCE: usize = 8;
/// Time until an idle serverless accelerator goes away, in seconds.
pub(super) const KEPT_S: u64 = 10;
/// What a serverless call adds, in seconds (`RollArt` §7.5: 0.01 on average, 2.1 at most).
const CALL_S: Spread = Spread::of(0.005, 1.2);

#[derive(Clone, Debug, Default)]
struct Accelerator {
    /// When each of its places is free, in microseconds.
    places: [u64; AT_ONCE],
    begun_us: u64,
    busy_until_us: u64,
    busy_us: u64,
}

impl Accelerator {
    fn free_place(&self) -> usize {
        let all = 0..AT_ONCE;
        all.min_by_key(|place| self.places[*place]).unwrap_or(0)
    }

    fn take(&mut self, from_us: u64, until_us: u64) {
        let place = self.free_place();
        self.places[place] = until_us;
        self.busy_us += until_us.saturating_sub(from_us.max(self.busy_until_us));
        self.busy_until_us = self.busy_until_us.max(until_us);
    }
}

/// The judges of a run.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    judges: Judges,
    all: Vec<Accelerator>,
    /// Time that serverless accelerators that went away were there, and busy.
    gone_us: u64,
    gone_busy_us: u64,
}

impl Pool {
    pub(super) fn new(judges: Judges) -> Self {
        let held = match judges {
            Judges::Serverless => 0,
            Judges::Held(count) => count.max(1),
        };
        Self {
            judges,
            all: vec![Accelerator::default(); held as usize],
            gone_us: 0,
            gone_busy_us: 0,
        }
    }

    /// When a rule has a reward.
    pub(super) fn by_rule(now_us: u64, stream: &mut Stream) -> u64 {
        now_us + (stream.lognormal(RULE_S) * 1e6) as u64
    }

    /// When a judge has a reward.
    pub(super) fn by_judge(&mut self, now_us: u64, stream: &mut Stream) -> u64 {
        let takes_us = (stream.lognormal(JUDGE_S) * 1e6) as u64;
        if self.judges == Judges::Serverless {
            let called_us = now_us + (stream.lognormal(CALL_S).min(2.1) * 1e6) as u64;
            self.retire(called_us);
            let has_room = |of: &Accelerator| of.places[of.free_place()] <= called_us;
            let at = self.all.iter().position(has_room).unwrap_or_else(|| {
                self.all.push(Accelerator {
                    begun_us: called_us,
                    ..Accelerator::default()
                });
                self.all.len() - 1
            });
            self.all[at].take(called_us, called_us + takes_us);
            return called_us + takes_us;
        }
        let first_free = |of: &Accelerator| of.places[of.free_place()];
        let at = (0..self.all.len()).min_by_key(|at| first_free(&self.all[*at]));
        let Some(judge) = at.and_then(|at| self.all.get_mut(at)) else {
            return now_us + takes_us;
        };
        let from_us = now_us.max(first_free(judge));
        judge.take(from_us, from_us + takes_us);
        from_us + takes_us
    }

    fn retire(&mut self, now_us: u64) {
        let kept_us = KEPT_S * 1_000_000;
        let gone: Vec<Accelerator> = self
            .all
            .extract_if(.., |of| of.busy_until_us + kept_us < now_us)
            .collect();
        for of in gone {
            self.gone_us += of.busy_until_us + kept_us - of.begun_us;
            self.gone_busy_us += of.busy_us;
        }
    }

    /// Share of the time in which an accelerator is there that it judges anything.
    pub(super) fn busy_share(&self, now_us: u64) -> f64 {
        let there = |of: &Accelerator| match self.judges {
            Judges::Held(_) => now_us,
            Judges::Serverless => of.busy_until_us + KEPT_S * 1_000_000 - of.begun_us,
        };
        let there_us: u64 = self.all.iter().map(there).sum::<u64>() + self.gone_us;
        let busy_us: u64 = self.all.iter().map(|of| of.busy_us).sum::<u64>() + self.gone_busy_us;
        busy_us as f64 / there_us.max(1) as f64
    }
}
