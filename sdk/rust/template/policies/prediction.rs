//! Predicts what programs need.

use serde::{Deserialize, Serialize};
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Tokens still to come, before anything was learnt.
        prior_tokens: f64 = 2_000.0, 0.0..=1e9;
        /// Seconds still to be spent in tools.
        tool_s: f64 = 1.0, 0.0..=1e9;
    }
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
struct Learnt {
    rows: u64,
    sum_tokens: f64,
}

/// Every program has left what programs had left so far, on average.
#[derive(Debug, Clone)]
pub struct RunningMean {
    config: Config,
    learnt: Learnt,
}

impl Policy for RunningMean {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        let learnt = Learnt::default();
        Ok(Self { config, learnt })
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        serde_json::to_vec(&self.learnt).map_err(|error| PolicyError::failed(error.to_string()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        self.learnt = serde_json::from_slice(snapshot)
            .map_err(|error| PolicyError::failed(error.to_string()))?;
        Ok(())
    }
}

impl PredictionPolicy for RunningMean {
    const FUNCTIONS: &'static [&'static str] = &["predict", "learn"];

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        let mean = match self.learnt.rows {
            0 => self.config.prior_tokens,
            rows => self.learnt.sum_tokens / rows as f64,
        };
        Ok(Estimates {
            remaining_tokens: vec![mean; programs.len()],
            remaining_tokens_p90: vec![2.0 * mean; programs.len()],
            remaining_tool_s: vec![self.config.tool_s; programs.len()],
        })
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        self.learnt.rows += programs.len() as u64;
        let tokens = programs.remaining_tokens.iter();
        self.learnt.sum_tokens += tokens.map(|&tokens| tokens as f64).sum::<f64>();
        Ok(())
    }
}

treadle_plugin::prediction_policy!(RunningMean);
