//! Pauses and restores programs.

use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Phase, Policy, PolicyError, WaitingColumns,
};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Time in a tool call during which a program counts in full, in milliseconds.
        grace_ms: u64 = 2_000, 1..=86_400_000;
    }
}

/// Pauses the program that acts longest and restores first come, first served.
#[derive(Debug, Clone, Default)]
pub struct LongestActing {
    config: Config,
}

impl Policy for LongestActing {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl EvictionPolicy for LongestActing {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let grace = self.config.grace_ms as f64;
        let phases = programs.phase_ms.iter();
        Ok(phases
            .map(|&phase| grace / (phase as f64).max(grace))
            .collect())
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let rows = programs.phase.iter().zip(programs.phase_ms);
        // Any acting program goes before all that reason.
        let score = |(&phase, &ms): (&Phase, &u64)| match phase {
            Phase::Reasoning => -1.0 - ms as f64,
            Phase::Acting => ms as f64,
        };
        Ok(rows.map(score).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
    }
}

treadle_plugin::eviction_policy!(LongestActing);
