//! First come, first served: the score is the time in the queue. A baseline.

use treadle_plugin::{NoConfig, Policy, PolicyError, PriorityPolicy, QueueColumns};

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct FcfsPriority;

impl Policy for FcfsPriority {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl PriorityPolicy for FcfsPriority {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
    }
}

treadle_plugin::priority_policy!(FcfsPriority);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Harness, Queue};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().priority::<FcfsPriority>();
    }

    #[test]
    fn who_waited_longer_never_scores_less() {
        let mut queue = Queue::draw(&mut SplitMix64::new(1), 500, 0);
        queue.waited_ms.sort_unstable();
        let scores = FcfsPriority.score(&queue.columns()).unwrap();
        assert!(scores.is_sorted() && scores[0] < scores[499]);
    }
}
