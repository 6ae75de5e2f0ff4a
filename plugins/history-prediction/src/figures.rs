//! Figures of finished programs, in constant memory.

/// Averages of programs: finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Figures {
    /// Effective number of programs.
    pub(crate) count: f64,
    /// Mean of the generated tokens.
    pub(crate) tokens: f64,
    /// 90th percentile of the generated tokens.
    pub(crate) tokens_p90: f64,
    /// Mean of the time in tools, in milliseconds.
    pub(crate) tool_ms: f64,
}

impl Figures {
    /// Adds a program. About the newest `memory` programs count.
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
        // At rest where one program in ten is above.
        let step = self.tokens_p90.max(1.0) / self.count.sqrt();
        self.tokens_p90 = if tokens > self.tokens_p90 {
            (self.tokens_p90 + 0.9 * step).min(tokens)
        } else {
            (self.tokens_p90 - 0.1 * step).max(tokens)
        };
    }

    /// These figures combined with `weight` programs of others.
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

/// The mean of `count` values including the new one.
fn towards(mean: f64, value: f64, count: f64) -> f64 {
    // Rounding may pass 0.
    (mean + (value - mean) / count).max(0.0)
}
