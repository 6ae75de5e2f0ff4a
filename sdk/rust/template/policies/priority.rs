//! Orders the waiting queue.

use serde::Deserialize;
use treadle_plugin::{Policy, PolicyError, PriorityPolicy, QueueColumns};

/// The program with the least left to do goes first, and waiting makes up for length.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShortestRemaining {
    extra: Vec<String>,
    /// Thousands of tokens that a second in the queue makes up for.
    age_weight: f64,
}

impl Default for ShortestRemaining {
    fn default() -> Self {
        Self {
            extra: Vec::new(),
            age_weight: 1.0,
        }
    }
}

impl Policy for ShortestRemaining {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        if policy.age_weight < 0.0 {
            return Err(PolicyError::invalid_config(
                "age_weight is negative; give 0 or more",
            ));
        }
        Ok(policy)
    }
}

impl PriorityPolicy for ShortestRemaining {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        let score = |row: usize| {
            // Where nothing was predicted, the context tells how long a program is.
            let left = programs.remaining_tokens[row];
            let length = if left >= 0.0 {
                left
            } else {
                programs.tokens[row] as f64
            };
            (programs.waited_ms[row] as f64 * self.age_weight - length) / 1000.0
        };
        Ok((0..programs.len()).map(score).collect())
    }
}

treadle_plugin::priority_policy!(ShortestRemaining);
