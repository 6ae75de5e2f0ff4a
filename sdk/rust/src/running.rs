//! Running means and percentiles of programs, in constant memory, for a job and each of its groups.
//!
//! Only operations that IEEE 754 rounds the same way everywhere, so that a native build and a
//! component give the same bits.

use crate::PolicyError;
use crate::recent::Recent;

/// Length of the mark that a snapshot begins with.
const MARK_BYTES: usize = 8;
/// Numbers of a [`Running`].
const NUMBERS: usize = 4;
/// Bytes of a number in a snapshot.
const NUMBER_BYTES: usize = 8;

/// Means of programs, or of what remained of them, and a percentile: finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Running {
    /// Effective number of rows.
    pub count: f64,
    /// Mean of the tokens.
    pub tokens: f64,
    /// 90th percentile of the tokens.
    pub tokens_p90: f64,
    /// Mean of the time in tools, in milliseconds.
    pub tool_ms: f64,
}

impl Running {
    /// Figures before anything is learnt; that the percentile is twice the mean fits lengths with a
    /// heavy tail.
    pub fn guess(tokens: f64, tool_ms: f64) -> Self {
        Self {
            count: 0.0,
            tokens,
            tokens_p90: tokens * 2.0,
            tool_ms,
        }
    }

    /// Adds a row. About the newest `memory` rows count.
    pub fn add(&mut self, tokens: f64, tool_ms: f64, memory: f64) {
        if self.count == 0.0 {
            *self = Self {
                count: 1.0,
                tokens,
                tokens_p90: tokens,
                tool_ms,
            };
            return;
        }
        self.count = (self.count + 1.0).min(memory);
        self.tokens = towards(self.tokens, tokens, self.count);
        self.tool_ms = towards(self.tool_ms, tool_ms, self.count);
        // A step up for a row above, a ninth of it down for one below: at rest where one row in ten
        // is above.
        let step = self.tokens_p90.max(1.0) / self.count.sqrt();
        self.tokens_p90 = if tokens > self.tokens_p90 {
            (self.tokens_p90 + 0.9 * step).min(tokens)
        } else {
            (self.tokens_p90 - 0.1 * step).max(tokens)
        };
    }

    /// These figures combined with `weight` rows of others.
    pub fn filled_with(&self, others: &Self, weight: f64) -> Self {
        if self.count == 0.0 {
            return *others;
        }
        let share = weight / (self.count + weight);
        let mix = |own: f64, other: f64| own + (other - own) * share;
        Self {
            count: self.count,
            tokens: mix(self.tokens, others.tokens),
            tokens_p90: mix(self.tokens_p90, others.tokens_p90),
            tool_ms: mix(self.tool_ms, others.tool_ms),
        }
    }

    /// The numbers in a fixed order.
    pub fn numbers(&self) -> [f64; NUMBERS] {
        [self.count, self.tokens, self.tokens_p90, self.tool_ms]
    }

    /// Figures from numbers, if all are finite and not negative.
    pub fn from_numbers(numbers: [f64; NUMBERS]) -> Option<Self> {
        let [count, tokens, tokens_p90, tool_ms] = numbers;
        let sound = |number: &f64| number.is_finite() && *number >= 0.0;
        numbers.iter().all(sound).then_some(Self {
            count,
            tokens,
            tokens_p90,
            tool_ms,
        })
    }
}

/// A mean of `count` rows with one more.
fn towards(mean: f64, row: f64, count: f64) -> f64 {
    // Rounding may pass 0.
    (mean + (row - mean) / count).max(0.0)
}

/// Figures of a job and of its groups, `N` of each: one for each stage of a program, for instance.
/// The groups that were learnt from last are kept.
#[derive(Debug, Clone)]
pub struct JobFigures<const N: usize> {
    job: [Running; N],
    groups: Recent<u64, [Running; N]>,
    groups_max: usize,
}

impl<const N: usize> JobFigures<N> {
    /// Nothing learnt yet; of at most `groups_max` groups later.
    pub fn new(groups_max: usize) -> Self {
        Self {
            job: [Running::default(); N],
            groups: Recent::new(groups_max),
            groups_max,
        }
    }

    /// Figures of the whole job.
    pub fn job(&self) -> &[Running; N] {
        &self.job
    }

    /// Figures of a group, if some are known.
    pub fn group(&self, group: u64) -> Option<&[Running; N]> {
        self.groups.get(&group)
    }

    /// Adds a row to the figures at `place` of its group and of the job, as [`Running::add`].
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn add(&mut self, group: u64, place: usize, tokens: f64, tool_ms: f64, memory: f64) {
        let of_group = self.groups.touch_or(group, [Running::default(); N]);
        of_group[place].add(tokens, tool_ms, memory);
        self.job[place].add(tokens, tool_ms, memory);
    }

    /// A snapshot: the mark, which names the format's version, the job's figures, then for each
    /// group its number and its figures, the oldest first. All numbers have 8 bytes, little-endian.
    pub fn snapshot(&self, mark: [u8; MARK_BYTES]) -> Vec<u8> {
        let of_one = N * NUMBERS * NUMBER_BYTES;
        let groups = self.groups.oldest_first();
        let of_groups = groups.len() * (NUMBER_BYTES + of_one);
        let mut bytes = Vec::with_capacity(MARK_BYTES + of_one + of_groups);
        bytes.extend(mark);
        write(&mut bytes, &self.job);
        for (group, figures) in groups {
            bytes.extend(group.to_le_bytes());
            write(&mut bytes, figures);
        }
        bytes
    }

    /// Replaces all figures by those of a snapshot, of whose groups the newest are kept. An invalid
    /// snapshot changes nothing.
    pub fn restore(&mut self, mark: [u8; MARK_BYTES], snapshot: &[u8]) -> Result<(), PolicyError> {
        let rest = snapshot
            .strip_prefix(&mark)
            .ok_or_else(|| invalid("it does not begin with the mark of this version"))?;
        let (words, beyond) = rest.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (job, of_groups) = words
            .split_at_checked(N * NUMBERS)
            .ok_or_else(|| invalid("it ends within the job's figures"))?;
        let of_groups = of_groups.chunks_exact(1 + N * NUMBERS);
        if !beyond.is_empty() || !of_groups.remainder().is_empty() {
            return Err(invalid("it ends within the figures of a group"));
        }
        let mut restored = Self::new(self.groups_max);
        restored.job = read(job)?;
        for words in of_groups {
            let figures = read(&words[1..])?;
            *restored.groups.touch_or(words[0], figures) = figures;
        }
        *self = restored;
        Ok(())
    }
}

fn write(bytes: &mut Vec<u8>, figures: &[Running]) {
    let numbers = figures.iter().flat_map(Running::numbers);
    bytes.extend(numbers.flat_map(f64::to_le_bytes));
}

fn read<const N: usize>(words: &[u64]) -> Result<[Running; N], PolicyError> {
    let mut figures = [Running::default(); N];
    for (figures, words) in figures.iter_mut().zip(words.as_chunks().0) {
        *figures = Running::from_numbers(words.map(f64::from_bits))
            .ok_or_else(|| invalid("a figure is negative or not finite"))?;
    }
    Ok(figures)
}

fn invalid(why: &str) -> PolicyError {
    PolicyError::failed(format!(
        "the snapshot can't be read: {why}; start without it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::draw;
    use crate::random::SplitMix64;

    #[test]
    fn mean_and_percentile_are_found() {
        let mut random = SplitMix64::new(10);
        let mut running = Running::default();
        let mut square = || {
            let part = draw::below(&mut random, 1_000) as f64 / 1_000.0;
            10_000.0 * part * part
        };
        for _ in 0..4_000 {
            running.add(square(), 5.0, 1e6);
        }
        // Of 10,000 x^2 with x even between 0 and 1.
        assert!((3_100.0..3_570.0).contains(&running.tokens), "{running:?}");
        assert!(
            (7_300.0..8_900.0).contains(&running.tokens_p90),
            "{running:?}"
        );
        assert!((running.tool_ms - 5.0).abs() < 1e-9);
    }

    #[test]
    fn old_rows_are_forgotten() {
        let mut running = Running::default();
        for row in 0..2_000 {
            running.add(if row < 1_000 { 9_000.0 } else { 100.0 }, 0.0, 50.0);
        }
        assert!(running.tokens < 150.0, "{running:?}");
        assert!(running.tokens_p90 < 1_000.0, "{running:?}");
    }

    #[test]
    fn few_rows_are_filled_up() {
        let mut running = Running::default();
        let others = Running::guess(1_000.0, 0.0);
        assert_eq!(running.filled_with(&others, 4.0), others);
        running.add(0.0, 0.0, 1e6);
        let tokens = running.filled_with(&others, 4.0).tokens;
        assert!((tokens - 800.0).abs() < 1e-9, "{tokens}");
    }
}
