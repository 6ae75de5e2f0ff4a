//! ThunderAgent's program-aware pausing and restoring (§4.3 and Appendix E).
//!
//! A worker thrashes when the tokens of its programs exceed its KV cache. Tokens of
//! acting programs count with a weight that may decay with the time in the tool
//! call (eq. 7); under pressure acting programs are paused first, the shorter
//! context first (eq. 11); waiting programs come back reasoning first, the shorter
//! context first (eq. 10), or by one of two rules that do not starve long ones.
//! Services, of which the paper knows none, are dropped by what it costs to have them
//! back.
//!
//! The crate is built twice: as a component, and natively as the built-in default.

mod config;
mod decay;
mod order;
mod services;

pub use config::{Config, Decay, Restore};

use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Policy, PolicyError, ServiceColumns,
    WaitingColumns,
};

/// The policy. It keeps nothing between calls but its configuration.
#[derive(Debug, Clone, Default)]
pub struct ThunderAgentEviction {
    /// What to do; see [`Config`].
    pub config: Config,
}

impl Policy for ThunderAgentEviction {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Ok(Self {
            config: Config::parse(json)?,
        })
    }
}

impl EvictionPolicy for ThunderAgentEviction {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra.len())?;
        Ok(decay::weights(&self.config, programs.phase_ms))
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra.len())?;
        let rows = programs.acting.iter().zip(programs.tokens);
        Ok(rows
            .map(|(&acting, &tokens)| order::shortest(acting != 0, tokens))
            .collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra.len())?;
        let rows = programs
            .reasoning
            .iter()
            .zip(programs.waited_ms)
            .zip(programs.tokens)
            .map(|((&reasoning, &waited_ms), &tokens)| (reasoning != 0, waited_ms, tokens));
        Ok(match self.config.restore {
            Restore::Shortest => rows
                .map(|(reasoning, _, tokens)| order::shortest(reasoning, tokens))
                .collect(),
            Restore::Waiting => rows
                .map(|(reasoning, waited_ms, tokens)| order::waiting(reasoning, waited_ms, tokens))
                .collect(),
            Restore::Ageing { ageing_ms } => rows
                .map(|(reasoning, waited_ms, tokens)| {
                    order::ageing(ageing_ms, reasoning, waited_ms, tokens)
                })
                .collect(),
        })
    }

    fn drop_order(&mut self, columns: &ServiceColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        columns.check(self.config.extra.len())?;
        Ok(services::cheapest_first(columns))
    }
}

treadle_plugin::eviction_policy!(ThunderAgentEviction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in [
            "{}",
            r#"{"profile": "paper"}"#,
            r#"{"decay": "none", "restore": "ageing", "ageing_s": 60}"#,
        ] {
            Harness::new(config)
                .by_row()
                .eviction::<ThunderAgentEviction>();
        }
    }
}
