//! Heddle's progressive priority scheduling (§4.2, Algorithm 1): the program with the most
//! predicted tokens goes first, as predictions are renewed after every step, and a running step is
//! preempted when a waiting program outranks it.
//!
//! A program without a prediction counts as its generated tokens plus `default_tokens`: in a long
//! tail a program that has come far is likely to go far.

mod config;

pub use config::{Config, Rank};

use treadle_plugin::{Policy, PolicyError, PreemptColumns, PriorityPolicy, QueueColumns};

/// Predictions are cut to this many tokens.
const TOKENS_MAX: f64 = 1e12;

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct HeddlePriority {
    /// The configuration.
    pub config: Config,
}

impl HeddlePriority {
    /// The rank of a program, in tokens.
    fn tokens(&self, output_tokens: u64, remaining_tokens: f64, remaining_tool_s: f64) -> f64 {
        let generated = output_tokens as f64;
        if remaining_tokens.is_nan() || remaining_tokens < 0.0 {
            return generated.min(TOKENS_MAX) + self.config.default_tokens;
        }
        let tools = match self.config.tool_token_ms {
            Some(token_ms) if remaining_tool_s > 0.0 => remaining_tool_s * 1_000.0 / token_ms,
            _ => 0.0,
        };
        let done = match self.config.rank {
            Rank::Remaining => 0.0,
            Rank::Total => generated,
        };
        (remaining_tokens + tools + done).min(TOKENS_MAX)
    }
}

impl Policy for HeddlePriority {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PriorityPolicy for HeddlePriority {
    const FUNCTIONS: &'static [&'static str] = &["score", "preempt"];

    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let predicted = programs
            .remaining_tokens
            .iter()
            .zip(programs.remaining_tool_s);
        let rows = programs.output_tokens.iter().zip(predicted);
        Ok(rows
            .map(|(&generated, (&tokens, &tool_s))| self.tokens(generated, tokens, tool_s))
            .collect())
    }

    /// Lines 6 to 10 of Algorithm 1, for all waiting programs at once: the highest rank against the
    /// lowest running, the next against the next.
    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let Some(margin) = self.config.preempt_margin_tokens else {
            return Err(PolicyError::not_supported());
        };
        let scores = steps.running_score;
        let mut running: Vec<usize> = (0..steps.len()).collect();
        // Of equal ranks the step that has run least loses least.
        running.sort_by(|&left, &right| {
            scores[left]
                .total_cmp(&scores[right])
                .then(steps.running_ms[left].cmp(&steps.running_ms[right]))
        });
        let mut waiting = steps.waiting_score.to_vec();
        waiting.sort_by(|left, right| right.total_cmp(left));
        let mut ways = vec![false; steps.len()];
        for (step, score) in running.into_iter().zip(waiting) {
            if score <= scores[step] + margin {
                break;
            }
            ways[step] = true;
        }
        Ok(ways)
    }
}

treadle_plugin::priority_policy!(HeddlePriority);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    fn scores(config: &str, output_tokens: &[u64], remaining_tokens: &[f64]) -> Vec<f64> {
        let rows = output_tokens.len();
        HeddlePriority::configure(config)
            .unwrap()
            .score(&QueueColumns {
                tokens: &vec![0; rows],
                output_tokens,
                steps: &vec![1; rows],
                waited_ms: &vec![0; rows],
                remaining_tokens,
                remaining_tool_s: &vec![2.0; rows],
                extra: &[],
            })
            .unwrap()
    }

    #[test]
    fn every_answer_is_valid() {
        for config in [
            "{}",
            r#"{"rank": "total", "tool_token_ms": 20, "preempt_margin_tokens": 0}"#,
            r#"{"preempt_margin_tokens": null}"#,
        ] {
            Harness::new(config).by_row().priority::<HeddlePriority>();
        }
    }

    #[test]
    fn the_longest_goes_first_and_the_unpredicted_by_what_they_have_done() {
        let (done, left) = ([0, 9_000, 100, 7_000], [20_000.0, 5_000.0, -1.0, -1.0]);
        assert_eq!(
            scores("{}", &done, &left),
            [20_000.0, 5_000.0, 4_196.0, 11_096.0]
        );
        let total = r#"{"rank": "total", "tool_token_ms": 20}"#;
        assert_eq!(
            scores(total, &done, &left),
            [20_100.0, 14_100.0, 4_196.0, 11_096.0]
        );
    }

    #[test]
    fn the_lowest_running_step_gives_way_to_who_outranks_it() {
        let steps = PreemptColumns {
            running_score: &[9_000.0, 100.0, 5_000.0, 100.0],
            running_ms: &[0, 70, 0, 20],
            waiting_score: &[4_000.0, 1_200.0, 30_000.0],
        };
        let ways = |margin: f64| {
            let config = format!("{{\"preempt_margin_tokens\": {margin}}}");
            let mut policy = HeddlePriority::configure(&config).unwrap();
            policy.preempt(&steps).unwrap()
        };
        assert_eq!(ways(1_024.0), [false, true, false, true]);
        assert_eq!(ways(20_000.0), [false, false, false, true]);
        assert_eq!(ways(1e6), [false; 4]);
    }
}
