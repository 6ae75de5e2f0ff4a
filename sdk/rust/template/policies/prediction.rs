//! Predicts what programs need.

use serde::{Deserialize, Serialize};
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    extra: Vec<String>,
    /// Tokens still to come, before anything was learnt.
    prior_tokens: f64,
    /// Seconds still to be spent in tools.
    tool_s: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            extra: Vec::new(),
            prior_tokens: 2000.0,
            tool_s: 1.0,
        }
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
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let config: Config = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        if config.prior_tokens < 0.0 || config.tool_s < 0.0 {
            return Err(PolicyError::invalid_config(
                "prior_tokens and tool_s are 0 or more",
            ));
        }
        Ok(Self {
            config,
            learnt: Learnt::default(),
        })
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
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        programs.check(self.config.extra.len())?;
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
        programs.check(self.config.extra.len())?;
        self.learnt.rows += programs.len() as u64;
        let tokens = programs.remaining_tokens.iter();
        self.learnt.sum_tokens += tokens.map(|&tokens| tokens as f64).sum::<f64>();
        Ok(())
    }
}

treadle_plugin::prediction_policy!(RunningMean);
