//! Shares out resources.

use std::cmp::Reverse;

use serde::Deserialize;
use treadle_plugin::{AllocationPolicy, GrantColumns, Policy, PolicyError};

/// The actions that have waited longest get the least that they can run with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LongestWaiting {
    extra: Vec<String>,
    /// Units of each pool that are never granted.
    reserve_units: u32,
}

impl Policy for LongestWaiting {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        serde_json::from_str(json).map_err(|error| PolicyError::invalid_config(error.to_string()))
    }
}

impl AllocationPolicy for LongestWaiting {
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        actions.check(self.extra.len())?;
        let free = actions.free_units.iter();
        let mut free: Vec<u32> = free
            .map(|units| units.saturating_sub(self.reserve_units))
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
