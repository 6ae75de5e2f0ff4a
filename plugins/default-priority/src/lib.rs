//! The default order of the waiting queue.
//!
//! A batch of rollouts ends with its last program, so the program with the most work left goes
//! first (longest processing time first). Every second in the queue counts as `ageing` seconds of
//! work, and predicted work is cut to `remaining_s_max`, so no program waits forever behind long
//! programs or a wild prediction. Programs without a prediction count as `unknown_s`: without any
//! prediction, the order is first come, first served.

mod config;
mod preempt;

pub use config::Config;

use treadle_plugin::{Policy, PolicyError, PreemptColumns, PriorityPolicy, QueueColumns};

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultPriority {
    /// The configuration.
    pub config: Config,
}

impl DefaultPriority {
    /// Predicted work left, in seconds.
    #[allow(
        clippy::needless_bitwise_bool,
        reason = "without a branch several rows are computed at once"
    )]
    fn remaining_s(&self, tokens: f64, tool_s: f64) -> f64 {
        let generating_s = at_least_0(tokens) * self.config.token_ms / 1_000.0;
        let remaining_s = generating_s + at_least_0(tool_s);
        // Not `min` and `max`, which in WebAssembly are calls of functions, and not
        // `||`: without a branch several rows are computed at once.
        let counted_s = if remaining_s < self.config.remaining_s_max {
            remaining_s
        } else {
            self.config.remaining_s_max
        };
        // False also where a prediction is not a number.
        if (tokens >= 0.0) | (tool_s >= 0.0) {
            counted_s
        } else {
            self.config.unknown_s
        }
    }
}

/// The value, or 0 where it is negative or not a number.
fn at_least_0(value: f64) -> f64 {
    if value > 0.0 { value } else { 0.0 }
}

impl Policy for DefaultPriority {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PriorityPolicy for DefaultPriority {
    const FUNCTIONS: &'static [&'static str] = &["score", "preempt"];

    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let predicted = programs
            .remaining_tokens
            .iter()
            .zip(programs.remaining_tool_s);
        let rows = predicted.zip(programs.waited_ms);
        Ok(rows
            .map(|((&tokens, &tool_s), &waited_ms)| {
                self.remaining_s(tokens, tool_s) + self.config.ageing * waited_ms as f64 / 1_000.0
            })
            .collect())
    }

    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        match self.config.preempt_margin_s {
            None => Err(PolicyError::not_supported()),
            Some(margin_s) => Ok(preempt::give_way(
                steps,
                margin_s,
                self.config.preempt_run_ms_max,
            )),
        }
    }
}

treadle_plugin::priority_policy!(DefaultPriority);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Harness, Queue};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    fn scores(remaining_tokens: &[f64], waited_ms: &[u64]) -> Vec<f64> {
        let rows = waited_ms.len();
        DefaultPriority::default()
            .score(&QueueColumns {
                tokens: &vec![0; rows],
                output_tokens: &vec![0; rows],
                steps: &vec![0; rows],
                waited_ms,
                remaining_tokens,
                remaining_tool_s: &vec![-1.0; rows],
                extra: &[],
            })
            .unwrap()
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"preempt_margin_s": 0.5, "ageing": 0}"#] {
            Harness::new(config).by_row().priority::<DefaultPriority>();
        }
    }

    #[test]
    fn the_most_work_left_goes_first() {
        let scores = scores(&[500.0, 9_000.0, 0.0], &[0, 0, 0]);
        assert!(scores[1] > scores[0] && scores[0] > scores[2], "{scores:?}");
    }

    #[test]
    fn nobody_waits_for_ever_behind_long_programs() {
        let scores = scores(&[0.0, 1e300], &[601_000, 0]);
        assert!(scores[0] > scores[1], "{scores:?}");
    }

    #[test]
    fn without_predictions_the_order_is_that_of_arrival() {
        let mut queue = Queue::draw(&mut SplitMix64::new(2), 300, 0);
        queue.waited_ms = (0..300).map(|row| row * 7).collect();
        queue.remaining_tokens.fill(-1.0);
        queue.remaining_tool_s.fill(-1.0);
        let scores = DefaultPriority::default().score(&queue.columns()).unwrap();
        assert!(scores.is_sorted_by(|left, right| left < right));
    }
}
