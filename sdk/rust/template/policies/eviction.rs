//! Pauses and restores programs.

use serde::Deserialize;
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Policy, PolicyError, WaitingColumns,
};

/// Pauses the program that acts longest and restores first come, first served.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LongestActing {
    extra: Vec<String>,
    /// Time in a tool call during which a program counts in full, in milliseconds.
    grace_ms: u64,
}

impl Default for LongestActing {
    fn default() -> Self {
        Self {
            extra: Vec::new(),
            grace_ms: 2000,
        }
    }
}

impl Policy for LongestActing {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        if policy.grace_ms == 0 {
            return Err(PolicyError::invalid_config(
                "grace_ms is below 1; give a positive number",
            ));
        }
        Ok(policy)
    }
}

impl EvictionPolicy for LongestActing {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        let grace = self.grace_ms as f64;
        let phases = programs.phase_ms.iter();
        Ok(phases
            .map(|&phase| grace / (phase as f64).max(grace))
            .collect())
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        let rows = programs.acting.iter().zip(programs.phase_ms);
        // Any acting program goes before all that reason.
        let score = |(&acting, &phase): (&u8, &u64)| match acting {
            0 => -1.0 - phase as f64,
            _ => phase as f64,
        };
        Ok(rows.map(score).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
    }
}

treadle_plugin::eviction_policy!(LongestActing);
