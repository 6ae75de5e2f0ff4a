//! Figures of programs with the same prompt.

use std::collections::VecDeque;

/// A mean of the newest values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Mean {
    /// Values that count.
    pub(crate) count: f64,
    /// Their mean.
    pub(crate) value: f64,
}

impl Mean {
    /// Takes `count` more values of this sum into account; beyond `memory` the old ones
    /// are forgotten.
    pub(crate) fn add(&mut self, sum: f64, count: f64, memory: f64) {
        if count > 0.0 {
            let kept = self.count.min((memory - count).max(0.0));
            self.value = (self.value * kept + sum) / (kept + count);
            self.count = kept + count;
        }
    }

    /// How far it lies from `common`, the less the fewer values there are.
    pub(crate) fn beyond(&self, common: f64, weight: f64) -> f64 {
        (self.value - common) * self.count / (self.count + weight)
    }
}

/// Maximum number of observations of live programs per group.
const OBSERVATIONS_MAX: usize = 48;
/// Fractions in which sums are kept, so that they do not depend on the order of what is
/// summed.
const FIXED: f64 = 65_536.0;

/// An observation of a live program after a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Observation {
    /// How far it is ahead of others after the same number of steps, as a logarithm in fractions.
    ahead: i64,
    /// Whether its last tool call succeeded, if that is known.
    tool_ok: Option<bool>,
}

impl Observation {
    pub(crate) fn new(ahead: f64, tool_ok: Option<bool>) -> Self {
        Self {
            ahead: (ahead * FIXED) as i64,
            tool_ok,
        }
    }

    /// As a number for a snapshot.
    pub(crate) fn word(self) -> u64 {
        let result = self.tool_ok.map_or(0, |ok| 1 + i64::from(ok));
        (self.ahead * 4 + result).cast_unsigned()
    }

    /// From such a number.
    pub(crate) fn from_word(word: u64) -> Self {
        let word = word.cast_signed();
        Self {
            // A logarithm of 64 bits and its sums are far smaller.
            ahead: (word >> 2).clamp(-(1 << 24), 1 << 24),
            tool_ok: match word & 3 {
                0 => None,
                result => Some(result > 1),
            },
        }
    }
}

/// A group's figures.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Group {
    /// Generated tokens of the finished programs of earlier rollouts, as logarithms.
    pub(crate) total: Mean,
    /// Generated tokens of the finished programs of the current rollout, as logarithms.
    pub(crate) fresh: Mean,
    /// How far live programs are ahead of others after the same number of steps, as logarithms.
    pub(crate) ahead: Mean,
    /// Share of tool calls that failed, as far as it is known.
    pub(crate) failed: Mean,
    /// The observations that the last two are computed from, the oldest first.
    observations: VecDeque<Observation>,
}

impl Group {
    /// A program of its prompt begins: others that have finished are history. What was seen of them
    /// on their way still counts, until newer observations replace it.
    pub(crate) fn begin(&mut self, memory: f64) {
        let fresh = std::mem::take(&mut self.fresh);
        let sum = fresh.value * fresh.count;
        self.total.add(sum, fresh.count, memory);
    }

    /// Records an observation of a live program; beyond the limit the oldest is forgotten.
    pub(crate) fn see(&mut self, observation: Observation) {
        if self.observations.len() >= OBSERVATIONS_MAX {
            self.observations.pop_front();
        }
        self.observations.push_back(observation);
    }

    /// The observations of live programs, the oldest first.
    pub(crate) fn observations(&self) -> impl ExactSizeIterator<Item = Observation> + '_ {
        self.observations.iter().copied()
    }

    /// Recomputes the figures that follow from the observations.
    pub(crate) fn summarise(&mut self) {
        let mean = |sum: f64, count: usize| Mean {
            count: count as f64,
            value: sum / count.max(1) as f64,
        };
        let ahead: i64 = self.observations.iter().map(|seen| seen.ahead).sum();
        self.ahead = mean(ahead as f64 / FIXED, self.observations.len());
        let known = || self.observations.iter().filter_map(|seen| seen.tool_ok);
        self.failed = mean(known().filter(|ok| !ok).count() as f64, known().count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_forget() {
        let mut mean = Mean::default();
        mean.add(30.0, 3.0, 4.0);
        mean.add(2.0, 1.0, 4.0);
        assert_eq!((mean.count, mean.value), (4.0, 8.0));
        mean.add(16.0, 2.0, 4.0);
        assert_eq!((mean.count, mean.value), (4.0, 8.0));
        mean.add(5.0, 5.0, 4.0);
        assert_eq!((mean.count, mean.value), (5.0, 1.0));
        assert_eq!(Some(mean.beyond(0.0, 5.0)), Some(0.5));
    }

    #[test]
    fn the_newest_observations_count() {
        let mut group = Group::default();
        for number in 0..100 {
            let ok = (number % 2 == 0).then_some(number % 4 == 0);
            let observation = Observation::new(f64::from(number), ok);
            assert_eq!(Observation::from_word(observation.word()), observation);
            group.see(observation);
        }
        group.summarise();
        assert_eq!((group.ahead.count, group.ahead.value), (48.0, 75.5));
        assert_eq!((group.failed.count, group.failed.value), (24.0, 0.5));
    }
}
