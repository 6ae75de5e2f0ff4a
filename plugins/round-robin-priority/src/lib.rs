//! Round robin over steps: a step that returns from a tool goes to the end of the queue, whatever
//! the program's progress, as agentic frameworks do by default (Heddle §4.2). Of those that came at
//! the same time the program with fewer steps goes first. A baseline.

use treadle_plugin::{NoConfig, Policy, PolicyError, PriorityPolicy, QueueColumns};

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct RoundRobinPriority;

impl Policy for RoundRobinPriority {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl PriorityPolicy for RoundRobinPriority {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs.waited_ms.iter().zip(programs.steps);
        // The second term is below 1, the smallest difference of two waits.
        Ok(rows
            .map(|(&waited_ms, &steps)| waited_ms as f64 + 1.0 / (f64::from(steps) + 2.0))
            .collect())
    }
}

treadle_plugin::priority_policy!(RoundRobinPriority);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().priority::<RoundRobinPriority>();
    }

    #[test]
    fn a_step_that_came_back_waits_behind_those_that_came_before() {
        let scores = RoundRobinPriority
            .score(&QueueColumns {
                tokens: &[9_000, 100, 100],
                output_tokens: &[5_000, 0, 0],
                steps: &[20, 0, 1],
                waited_ms: &[0, 10, 10],
                remaining_tokens: &[9_000.0, 1.0, 1.0],
                remaining_tool_s: &[-1.0; 3],
                extra: &[],
            })
            .unwrap();
        assert!(scores[1] > scores[2] && scores[2] > scores[0], "{scores:?}");
    }
}
