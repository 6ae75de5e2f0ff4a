//! The simplest eviction policy: acting programs count in full, the one that has been acting
//! longest is paused first, and restoring is first come, first served. A baseline, and an example
//! of a whole plugin.

use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, NoConfig, Phase, Policy, PolicyError,
    WaitingColumns,
};

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct LruEviction;

impl Policy for LruEviction {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl EvictionPolicy for LruEviction {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![1.0; programs.len()])
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs.phase.iter().zip(programs.phase_ms);
        // Scores of reasoning programs are negative, so that all acting ones go first.
        let score = |(phase, &ms): (&Phase, &u64)| match phase {
            Phase::Reasoning => ms as f64 - f64::powi(2.0, 65),
            Phase::Acting => ms as f64,
        };
        Ok(rows.map(score).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
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
            phase: &[Phase::Reasoning, Phase::Acting, Phase::Acting],
            phase_ms: &[9_000, 5, 7],
            steps: &[1, 1, 1],
            extra: &[],
        };
        let scores = LruEviction.pause_order(&programs).unwrap();
        assert!(scores[2] > scores[1] && scores[1] > scores[0], "{scores:?}");
    }

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().eviction::<LruEviction>();
    }
}
