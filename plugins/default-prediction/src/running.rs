//! Running means and percentiles in constant memory.
//!
//! Only operations that IEEE 754 rounds the same way everywhere, so that the native
//! build and the component give the same bits.

/// Stages of a program by its finished LLM calls: 0, 1 to 3, 4 to 15, 16 and more.
pub(crate) const STAGES: usize = 4;

/// Figures of each stage.
pub(crate) type Stages = [Running; STAGES];

/// The stage of a program.
pub(crate) fn stage(steps: u32) -> usize {
    // Without branches, which would be mispredicted.
    usize::from(steps >= 1) + usize::from(steps >= 4) + usize::from(steps >= 16)
}

/// Figures of what remained: finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Running {
    /// Effective number of rows.
    pub(crate) count: f64,
    /// Mean of the tokens.
    pub(crate) tokens: f64,
    /// 90th percentile of the tokens.
    pub(crate) tokens_p90: f64,
    /// Mean of the time in tools, in milliseconds.
    pub(crate) tool_ms: f64,
}

impl Running {
    /// Figures before anything is learnt; that the percentile is twice the mean fits
    /// lengths with a heavy tail.
    pub(crate) fn guess(tokens: f64, tool_ms: f64) -> Self {
        Self {
            count: 0.0,
            tokens,
            tokens_p90: tokens * 2.0,
            tool_ms,
        }
    }

    /// Adds a row. About the newest `memory` rows count.
    pub(crate) fn add(&mut self, tokens: f64, tool_ms: f64, memory: f64) {
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
        // A step up for a row above, a ninth of it down for one below: at rest where
        // one row in ten is above.
        let step = self.tokens_p90.max(1.0) / self.count.sqrt();
        self.tokens_p90 = if tokens > self.tokens_p90 {
            (self.tokens_p90 + 0.9 * step).min(tokens)
        } else {
            (self.tokens_p90 - 0.1 * step).max(tokens)
        };
    }

    /// These figures combined with `weight` rows of others.
    pub(crate) fn filled_with(&self, others: &Self, weight: f64) -> Self {
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
    pub(crate) fn numbers(&self) -> [f64; 4] {
        [self.count, self.tokens, self.tokens_p90, self.tool_ms]
    }

    /// Figures from numbers, if all are finite and not negative.
    pub(crate) fn from_numbers(numbers: [f64; 4]) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::draw;
    use treadle_plugin::random::SplitMix64;

    use super::*;

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
