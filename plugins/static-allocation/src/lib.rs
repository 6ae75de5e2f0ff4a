//! The same for all: each action gets `units` units, in order of arrival; all devices
//! run one degree of tensor parallelism. A baseline to compare with.

use treadle_plugin::{AllocationPolicy, GrantColumns, ParallelismColumns, Policy, PolicyError};

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Units of each action, within what it can run with.
        units: u32 = 1, 1..=u32::MAX;
        /// Degree of tensor parallelism; the largest on offer that is not above it, else the
        /// smallest.
        degree: u32 = 1, 1..=u32::MAX;
    }
}

/// The policy. It keeps nothing between calls but its configuration.
#[derive(Debug, Clone, Default)]
pub struct StaticAllocation {
    config: Config,
}

impl Policy for StaticAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for StaticAllocation {
    const FUNCTIONS: &'static [&'static str] = &["grant", "parallelism"];

    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut free = actions.free_units.to_vec();
        let mut rows: Vec<usize> = (0..actions.len()).collect();
        rows.sort_by_key(|&row| std::cmp::Reverse(actions.waited_ms[row]));
        let mut granted = vec![0; actions.len()];
        for row in rows {
            let least = actions.units_min[row];
            // Not `clamp`, which panics when the bounds contradict each other.
            let units = self.config.units.max(least).min(actions.units_max[row]);
            let left = &mut free[actions.pool[row] as usize];
            if units >= least && units <= *left {
                *left -= units;
                granted[row] = units;
            }
        }
        Ok(granted)
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut counts = vec![0; degrees.len()];
        let below = degrees
            .degree
            .iter()
            .rposition(|degree| *degree <= self.config.degree);
        if let Some(count) = counts.get_mut(below.unwrap_or(0)) {
            *count = degrees.gpus / degrees.degree[below.unwrap_or(0)].max(1);
        }
        Ok(counts)
    }
}

treadle_plugin::allocation_policy!(StaticAllocation);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"units": 7, "degree": 4}"#] {
            Harness::new(config)
                .by_row()
                .allocation::<StaticAllocation>();
        }
    }

    #[test]
    fn units_go_to_those_that_have_waited_longest() {
        let granted = StaticAllocation::configure(r#"{"units": 2}"#)
            .unwrap()
            .grant(&GrantColumns {
                pool: &[0, 0, 0, 1],
                units_min: &[1, 1, 3, 1],
                units_max: &[4, 4, 4, 1],
                waited_ms: &[1, 9, 5, 0],
                expected_ms: &[-1.0; 4],
                free_units: &[5, 5],
                extra: &[],
            });
        assert_eq!(granted, Ok(vec![0, 2, 3, 1]));
    }

    #[test]
    fn all_devices_run_one_degree() {
        let degrees = ParallelismColumns {
            gpus: 9,
            degree: &[1, 2, 8],
            token_us: &[3.0, 2.0, 1.0],
            capacity_tokens: &[1, 2, 8],
            expected_tokens: &[],
            ..ParallelismColumns::default()
        };
        let mut policy = StaticAllocation::configure(r#"{"degree": 4}"#).unwrap();
        assert_eq!(policy.parallelism(&degrees), Ok(vec![0, 4, 0]));
    }
}
