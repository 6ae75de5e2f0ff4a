//! First come, first served: the score is the time in the queue. A baseline to compare
//! with.

use serde::Deserialize;
use treadle_plugin::{Policy, PolicyError, PriorityPolicy, QueueColumns};

/// The policy and its configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FcfsPriority {
    extra: Vec<String>,
}

impl Policy for FcfsPriority {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        serde_json::from_str(json).map_err(|error| PolicyError::invalid_config(error.to_string()))
    }
}

impl PriorityPolicy for FcfsPriority {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
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
        let scores = FcfsPriority::default().score(&queue.columns()).unwrap();
        assert!(scores.is_sorted() && scores[0] < scores[499]);
    }
}
