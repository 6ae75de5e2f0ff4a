//! Prediction from history only, as in systems that consider the prompt but not the program's
//! progress (the history-based baseline of Heddle §7.2): a program is expected to generate as much
//! as the finished programs of its prompt (group) on average.
//!
//! Groups without finished programs are expected to be like the whole job, which counts as
//! `job_weight` programs in each group. A program's own progress is only subtracted: the expected
//! total stays, and nothing remains beyond it.

mod config;

pub use config::Config;

use treadle_plugin::running::{JobFigures, Running};
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

/// What a snapshot begins with.
const MARK: [u8; 8] = *b"history1";

/// The policy and what it has learnt.
#[derive(Debug, Clone)]
pub struct HistoryPrediction {
    config: Config,
    learnt: JobFigures<1>,
}

impl Default for HistoryPrediction {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl HistoryPrediction {
    /// A policy that has learnt nothing.
    pub fn new(config: Config) -> Self {
        let learnt = JobFigures::new(config.groups_max as usize);
        Self { config, learnt }
    }

    fn job(&self) -> Running {
        let [job] = *self.learnt.job();
        if job.count > 0.0 {
            return job;
        }
        Running::guess(self.config.total_tokens, self.config.total_tool_s * 1_000.0)
    }
}

impl Policy for HistoryPrediction {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(self.learnt.snapshot(MARK))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        self.learnt.restore(MARK, snapshot)
    }
}

impl PredictionPolicy for HistoryPrediction {
    const FUNCTIONS: &'static [&'static str] = &["predict", "learn"];

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        let job = self.job();
        let mut estimates = Estimates::default();
        for (row, group) in programs.group.iter().enumerate() {
            let expected = self.learnt.group(*group).map_or(job, |[of_group]| {
                of_group.filled_with(&job, self.config.job_weight)
            });
            let output_tokens = programs.output_tokens[row] as f64;
            let left = |total: f64, done: f64| (total - done).max(0.0);
            let tokens = left(expected.tokens, output_tokens);
            let tokens_p90 = left(expected.tokens_p90, output_tokens).max(tokens);
            let tool_ms = left(expected.tool_ms, programs.tool_ms[row] as f64);
            estimates.remaining_tokens.push(tokens);
            estimates.remaining_tokens_p90.push(tokens_p90);
            estimates.remaining_tool_s.push(tool_ms / 1_000.0);
        }
        Ok(estimates)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let memory = f64::from(self.config.memory);
        for program in programs.programs() {
            let row = program.start;
            let tokens = programs.total_tokens(row) as f64;
            let tool_ms = programs.tool_ms[row].saturating_add(programs.remaining_tool_ms[row]);
            let group = programs.group[row];
            self.learnt.add(group, 0, tokens, tool_ms as f64, memory);
        }
        Ok(())
    }
}

treadle_plugin::prediction_policy!(HistoryPrediction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Finished, Harness, Live};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    fn learn(policy: &mut HistoryPrediction, group: u64, totals: &[u64]) {
        let zeros = vec![0; totals.len()];
        let finished = FinishedColumns {
            group: &vec![group; totals.len()],
            tokens: &zeros,
            output_tokens: &zeros,
            steps: &vec![0; totals.len()],
            tool_ms: &zeros,
            remaining_tokens: totals,
            remaining_tool_ms: &zeros,
            extra: &[],
        };
        policy.learn(&finished).unwrap();
    }

    fn predict(policy: &mut HistoryPrediction, group: u64, output_tokens: u64) -> Vec<f64> {
        let live = LiveColumns {
            group: &[group],
            tokens: &[0],
            output_tokens: &[output_tokens],
            steps: &[1],
            tool_ms: &[0],
            extra: &[],
        };
        policy.predict(&live).unwrap().remaining_tokens
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"groups_max": 2, "memory": 1, "job_weight": 0}"#] {
            Harness::new(config)
                .by_row()
                .prediction::<HistoryPrediction>();
        }
    }

    #[test]
    fn a_group_is_expected_to_be_as_before_and_a_new_one_as_the_job() {
        let mut policy = HistoryPrediction::configure(r#"{"job_weight": 0}"#).unwrap();
        assert_eq!(predict(&mut policy, 1, 0), [1_000.0]);
        learn(&mut policy, 1, &[3_000, 5_000]);
        learn(&mut policy, 2, &[100, 300]);
        assert_eq!(predict(&mut policy, 1, 0), [4_000.0]);
        assert_eq!(predict(&mut policy, 1, 1_500), [2_500.0]);
        assert_eq!(predict(&mut policy, 1, 9_000), [0.0]);
        assert_eq!(predict(&mut policy, 3, 0), [2_100.0]);
    }

    #[test]
    fn a_snapshot_gives_the_same_estimates_and_an_invalid_one_changes_nothing() {
        let mut random = SplitMix64::new(11);
        let mut policy = HistoryPrediction::default();
        policy
            .learn(&Finished::draw(&mut random, 300, 0).columns())
            .unwrap();
        let snapshot = policy.snapshot().unwrap();
        let mut successor = HistoryPrediction::default();
        successor.restore(&snapshot).unwrap();
        let live = Live::draw(&mut random, 100, 0);
        let estimates = policy.predict(&live.columns());
        assert_eq!(estimates, successor.predict(&live.columns()));
        for invalid in [&snapshot[..snapshot.len() - 1], b"history0", b"x"] {
            assert!(successor.restore(invalid).is_err());
        }
        assert_eq!(estimates, successor.predict(&live.columns()));
    }
}
