//! Compares the ledger with the engine: the memory that an engine reports for its running requests,
//! and the ledger's figure for the steps there.
//!
//! Engine and ledger are read at slightly different times, and steps come and go in between. So a
//! difference counts only if it appears in several consecutive readings, and the smallest of them
//! is used.

use std::collections::VecDeque;
use treadle_core::programs::RunningUse;
use treadle_wire::EngineReading;

/// Consecutive readings that must agree.
const LOOKS: usize = 3;
/// Differences above this share of the capacity, in percent, raise an alarm.
const ALARM_PERCENT: u64 = 10;

/// The difference between the ledger and an engine's own report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drift {
    /// Tokens that the engine holds for running requests in excess of the ledger; negative if it
    /// holds fewer.
    pub tokens: i64,
    /// Those of them that belong to requests not sent by treadle: the engine runs more requests
    /// than the ledger has.
    pub untracked_tokens: u64,
    /// Whether the difference exceeds a tenth of the engine's capacity.
    pub alarm: bool,
}

/// The last readings of one engine.
#[derive(Debug, Default)]
pub(super) struct DriftWatch {
    looks: VecDeque<(i64, u64)>,
}

impl DriftWatch {
    /// Compares a reading with the ledger before and after it. `None` if the engine does not report
    /// enough.
    pub(super) fn compare(
        &mut self,
        ledger: [RunningUse; 2],
        reading: &EngineReading,
    ) -> Option<Drift> {
        let (held, running) = (reading.used_tokens?, reading.running?);
        let waiting = reading.waiting.unwrap_or(0);
        let [before, after] = ledger;
        let least = before.tokens.min(after.tokens);
        let most = before.tokens.max(after.tokens);
        // Requests waiting inside an engine are in the ledger but hold no memory yet.
        let least = if waiting == 0 { least } else { 0 };
        let tokens = if held > most {
            signed(held - most)
        } else {
            -signed(least.saturating_sub(held))
        };
        let foreign = running.saturating_add(waiting) > before.steps.max(after.steps);
        let untracked = if foreign {
            held.saturating_sub(most)
        } else {
            0
        };
        self.looks.push_back((tokens, untracked));
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        Some(self.assess(reading.capacity_tokens))
    }

    fn assess(&self, capacity: Option<u64>) -> Drift {
        if self.looks.len() < LOOKS {
            return Drift::default();
        }
        let tokens = self.looks.iter().map(|(tokens, _)| *tokens);
        let (least, most) = (tokens.clone().min(), tokens.max());
        let steady = match (least.unwrap_or(0), most.unwrap_or(0)) {
            (least, _) if least > 0 => least,
            (_, most) if most < 0 => most,
            _ => 0,
        };
        let untracked = self.looks.iter().map(|(_, untracked)| *untracked).min();
        let bound = capacity.map(|tokens| tokens / 100 * ALARM_PERCENT);
        Drift {
            tokens: steady,
            untracked_tokens: untracked.unwrap_or(0),
            alarm: bound.is_some_and(|bound| steady.unsigned_abs() > bound),
        }
    }
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(used: u64, running: u64, waiting: u64) -> EngineReading {
        EngineReading {
            capacity_tokens: Some(100_000),
            used_tokens: Some(used),
            running: Some(running),
            waiting: Some(waiting),
            ..EngineReading::default()
        }
    }

    fn ledger(steps: u64, tokens: u64) -> [RunningUse; 2] {
        [RunningUse { steps, tokens }; 2]
    }

    fn after(looks: &[([RunningUse; 2], EngineReading)]) -> Drift {
        let mut watch = DriftWatch::default();
        let drifts = looks
            .iter()
            .map(|(ledger, read)| watch.compare(*ledger, read));
        drifts.last().flatten().unwrap_or_default()
    }

    #[test]
    fn requests_of_others_are_untracked() {
        let look = (ledger(2, 10_000), reading(50_000, 5, 0));
        assert_eq!(
            after(&[look; 2]),
            Drift::default(),
            "two looks are not enough"
        );
        let expected = Drift {
            tokens: 40_000,
            untracked_tokens: 40_000,
            alarm: true,
        };
        assert_eq!(after(&[look; 3]), expected);
        let quiet = (ledger(2, 10_000), reading(10_000, 2, 0));
        assert_eq!(after(&[look, quiet, look]), Drift::default());
    }

    #[test]
    fn a_wrong_estimate_is_an_alarm_and_charges_no_memory() {
        let look = (ledger(2, 10_000), reading(40_000, 2, 0));
        let drift = after(&[look; 3]);
        assert_eq!((drift.tokens, drift.untracked_tokens), (30_000, 0));
        assert!(drift.alarm);
        let look = (ledger(2, 40_000), reading(10_000, 2, 0));
        assert_eq!(after(&[look; 3]).tokens, -30_000);
        let look = (ledger(2, 40_000), reading(10_000, 1, 1));
        assert_eq!(
            after(&[look; 3]),
            Drift::default(),
            "one of them waits inside"
        );
    }

    #[test]
    fn steps_that_come_and_go_during_a_look_are_no_drift() {
        let [few, many] =
            [(1, 10_000), (4, 60_000)].map(|(steps, tokens)| RunningUse { steps, tokens });
        let look = ([few, many], reading(40_000, 3, 0));
        assert_eq!(after(&[look; 3]), Drift::default());
    }
}
