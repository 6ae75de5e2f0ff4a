//! Least attained service first, as in Autellix (PLAS): the program that has generated the fewest
//! tokens goes first, in levels, and first come first served within a level. A baseline.
//!
//! Level 0 ends at `level_tokens`, each further one at twice the tokens of the one before. A
//! program that has waited more than `starvation_ratio` times as long as it was served moves to
//! level 0, so that long ones are not starved.

use treadle_plugin::{Policy, PolicyError, PreemptColumns, PriorityPolicy, QueueColumns};

/// Score that a level, or a token without levels, outweighs: longer than any wait in
/// milliseconds that counts, so small that scores stay exact.
const LEVEL: f64 = 4_294_967_296.0;
/// Waits are cut to 30 days.
const WAITED_MS_MAX: u64 = 2_592_000_000;
/// Service is cut to this many tokens.
const TOKENS_MAX: u64 = 1 << 20;
/// Largest value of any key.
const KEY_MAX: f64 = 1e9;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Generated tokens at which level 0 ends; 0 disables levels, so that every token counts.
        level_tokens: u64 = 512;
        /// Ratio of wait to service from which a program moves to level 0.
        starvation_ratio: f64 = 16.0, 0.0..=KEY_MAX;
        /// Service time that a generated token counts as, in milliseconds.
        token_ms: f64 = 20.0, 0.0..=KEY_MAX;
        /// Whether running steps of a higher level are preempted.
        preempt: bool = false;
    }
}

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct ShortestFirstPriority {
    config: Config,
}

impl ShortestFirstPriority {
    fn level(&self, output_tokens: u64, waited_ms: u64) -> u64 {
        let output_tokens = output_tokens.min(TOKENS_MAX);
        let served_ms = output_tokens as f64 * self.config.token_ms;
        if waited_ms as f64 > self.config.starvation_ratio * served_ms {
            return 0;
        }
        match output_tokens.checked_div(self.config.level_tokens) {
            None => output_tokens,
            Some(0) => 0,
            Some(times) => u64::from(times.ilog2()) + 1,
        }
    }
}

impl Policy for ShortestFirstPriority {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PriorityPolicy for ShortestFirstPriority {
    const FUNCTIONS: &'static [&'static str] = &["score", "preempt"];

    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs.output_tokens.iter().zip(programs.waited_ms);
        Ok(rows
            .map(|(&output_tokens, &waited_ms)| {
                let waited_ms = waited_ms.min(WAITED_MS_MAX);
                waited_ms as f64 - LEVEL * self.level(output_tokens, waited_ms) as f64
            })
            .collect())
    }

    /// A longer wait by itself never preempts; a lower level does.
    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        if !self.config.preempt {
            return Err(PolicyError::not_supported());
        }
        let level = |score: f64| (score / LEVEL).ceil();
        let mut running: Vec<usize> = (0..steps.len()).collect();
        running.sort_by(|&left, &right| {
            steps.running_score[left].total_cmp(&steps.running_score[right])
        });
        let mut waiting = steps.waiting_score.to_vec();
        waiting.sort_by(|left, right| right.total_cmp(left));
        let mut ways = vec![false; steps.len()];
        for (step, score) in running.into_iter().zip(waiting) {
            if level(score) <= level(steps.running_score[step]) {
                break;
            }
            ways[step] = true;
        }
        Ok(ways)
    }
}

treadle_plugin::priority_policy!(ShortestFirstPriority);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    fn scores(config: &str, output_tokens: &[u64], waited_ms: &[u64]) -> Vec<f64> {
        let rows = output_tokens.len();
        ShortestFirstPriority::configure(config)
            .unwrap()
            .score(&QueueColumns {
                tokens: &vec![0; rows],
                output_tokens,
                steps: &vec![1; rows],
                waited_ms,
                remaining_tokens: &vec![-1.0; rows],
                remaining_tool_s: &vec![-1.0; rows],
                extra: &[],
            })
            .unwrap()
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"level_tokens": 0, "preempt": true}"#] {
            Harness::new(config)
                .by_row()
                .priority::<ShortestFirstPriority>();
        }
    }

    #[test]
    fn less_service_goes_first_and_the_wait_counts_within_a_level() {
        let waited_ms = [0, 500, 900, 1_000];
        let found = scores("{}", &[100, 600, 700, 9_000], &waited_ms);
        assert!(found[0] > found[2] && found[2] > found[1] && found[1] > found[3]);
        let found = scores(
            r#"{"level_tokens": 0}"#,
            &[100, 600, 700, 9_000],
            &waited_ms,
        );
        assert!(found.is_sorted_by(|left, right| left > right), "{found:?}");
    }

    #[test]
    fn who_is_starved_goes_to_the_first_level() {
        let found = scores("{}", &[10_000, 1], &[3_200_001, 100]);
        assert!(found[0] > found[1], "{found:?}");
    }

    #[test]
    fn running_steps_of_a_higher_level_give_way() {
        let mut policy = ShortestFirstPriority::configure(r#"{"preempt": true}"#).unwrap();
        let scores = scores("{}", &[20_000, 100, 600, 700], &[0, 0, 0, 100]);
        let ways = policy.preempt(&PreemptColumns {
            running_score: &scores[..3],
            running_ms: &[10, 10, 10],
            waiting_score: &scores[3..],
        });
        assert_eq!(ways, Ok(vec![true, false, false]));
    }
}
