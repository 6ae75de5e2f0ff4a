//! Shares out resources.

use std::cmp::Reverse;

use treadle_plugin::{AllocationPolicy, GrantColumns, Policy, PolicyError};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Units of each pool that are never granted.
        reserve_units: u32 = 0, 0..=1_000_000;
    }
}

/// The actions that have waited longest get the least that they can run with.
#[derive(Debug, Clone, Default)]
pub struct LongestWaiting {
    config: Config,
}

impl Policy for LongestWaiting {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for LongestWaiting {
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let free = actions.free_units.iter();
        let mut free: Vec<u32> = free
            .map(|units| units.saturating_sub(self.config.reserve_units))
            .collect();
        let mut granted = vec![0; actions.len()];
        let mut rows: Vec<usize> = (0..actions.len()).collect();
        // On equal times the first row goes first, because sorting is stable.
        rows.sort_by_key(|&row| Reverse(actions.waited_ms[row]));
        for row in rows {
            let (left, units) = (
                &mut free[actions.pool[row] as usize],
                actions.units_min[row],
            );
            if *left >= units {
                *left -= units;
                granted[row] = units;
            }
        }
        Ok(granted)
    }
}

treadle_plugin::allocation_policy!(LongestWaiting);
