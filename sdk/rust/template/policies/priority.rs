//! Orders the waiting queue.

use treadle_plugin::{Policy, PolicyError, PriorityPolicy, QueueColumns};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Thousands of tokens that a second in the queue makes up for.
        age_weight: f64 = 1.0, 0.0..=1e6;
    }
}

/// The program with the least left to do goes first, and waiting makes up for length.
#[derive(Debug, Clone, Default)]
pub struct ShortestRemaining {
    config: Config,
}

impl Policy for ShortestRemaining {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PriorityPolicy for ShortestRemaining {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let score = |row: usize| {
            // Where nothing was predicted, the context tells how long a program is.
            let left = programs.remaining_tokens[row];
            let length = if left >= 0.0 {
                left
            } else {
                programs.tokens[row] as f64
            };
            (programs.waited_ms[row] as f64 * self.config.age_weight - length) / 1000.0
        };
        Ok((0..programs.len()).map(score).collect())
    }
}

treadle_plugin::priority_policy!(ShortestRemaining);
