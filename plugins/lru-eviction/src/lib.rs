//! The simplest eviction policy: acting programs count in full, the one that has
//! been acting longest is paused first, restoring is first come, first served, and
//! the service that was used longest ago is dropped first. A baseline to compare with,
//! and an example of a whole plugin.

use serde::Deserialize;
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Policy, PolicyError, ServiceColumns,
    WaitingColumns,
};

/// The policy and its configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LruEviction {
    extra: Vec<String>,
}

impl Policy for LruEviction {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        serde_json::from_str(json).map_err(|error| PolicyError::invalid_config(error.to_string()))
    }
}

impl EvictionPolicy for LruEviction {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        Ok(vec![1.0; programs.len()])
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        let rows = programs.acting.iter().zip(programs.phase_ms);
        // Reasoning programs are below zero, so that all acting ones go first.
        Ok(rows
            .map(|(&acting, &ms)| ms as f64 - if acting == 0 { f64::powi(2.0, 65) } else { 0.0 })
            .collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.extra.len())?;
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
    }

    fn drop_order(&mut self, services: &ServiceColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        services.check(self.extra.len())?;
        Ok(services.idle_ms.iter().map(|&ms| ms as f64).collect())
    }
}

treadle_plugin::eviction_policy!(LruEviction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn the_longest_acting_goes_first_and_reasoning_last() {
        let programs = ActiveColumns {
            tokens: &[10, 10, 10],
            acting: &[0, 1, 1],
            phase_ms: &[9_000, 5, 7],
            steps: &[1, 1, 1],
            extra: &[],
        };
        let scores = LruEviction::default().pause_order(&programs).unwrap();
        assert!(scores[2] > scores[1] && scores[1] > scores[0], "{scores:?}");
    }

    #[test]
    fn the_service_used_longest_ago_goes_first() {
        let services = ServiceColumns {
            bytes: &[1, 1],
            idle_ms: &[5, 9],
            load_ms: &[1, 1],
            uses: &[7, 7],
            extra: &[],
        };
        let scores = LruEviction::default().drop_order(&services).unwrap();
        assert!(scores[1] > scores[0], "{scores:?}");
    }

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().eviction::<LruEviction>();
    }
}
