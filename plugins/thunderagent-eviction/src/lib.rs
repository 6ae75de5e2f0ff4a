//! ThunderAgent's program-aware pausing and restoring (§4.3 and Appendix E).
//!
//! A worker thrashes when the tokens of its programs exceed its KV cache. Tokens of acting programs
//! count with a weight that may decay with the time in the tool call (eq. 7); under pressure acting
//! programs are paused first, the shorter context first (eq. 11); waiting programs are restored
//! reasoning first, the shorter context first (eq. 10), or by one of two rules that do not starve
//! long ones.
//!
//! The crate is built twice: as a component, and natively as the built-in default.

mod config;
mod decay;
mod order;

pub use config::{Config, Decay, Keys, Restore};

use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Phase, Policy, PolicyError, WaitingColumns,
};

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct ThunderAgentEviction {
    /// What to do; see [`Config`].
    pub config: Config,
}

impl Policy for ThunderAgentEviction {
    type Config = Keys;

    fn with_config(keys: Keys) -> Result<Self, PolicyError> {
        let config = Config::of(&keys)?;
        Ok(Self { config })
    }
}

impl EvictionPolicy for ThunderAgentEviction {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(decay::weights(&self.config, programs.phase_ms))
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs.phase.iter().zip(programs.tokens);
        Ok(rows
            .map(|(&phase, &tokens)| order::shortest(phase == Phase::Acting, tokens))
            .collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs
            .phase
            .iter()
            .zip(programs.waited_ms)
            .zip(programs.tokens)
            .map(|((&phase, &waited_ms), &tokens)| (phase == Phase::Reasoning, waited_ms, tokens));
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
