//! The same for all: each action gets `units` units, in order of arrival; all devices
//! run one degree of tensor parallelism; rollouts that failed are started again. A
//! baseline to compare with.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `units` | units of each action, within what it can run with | 1 |
//! | `degree` | degree of tensor parallelism; the largest on offer that is not above it, else the smallest | 1 |
//! | `extra` | names of the extra columns; they are not used | none |

use serde::Deserialize;
use treadle_plugin::{
    AllocationPolicy, GrantColumns, ParallelismColumns, Policy, PolicyError, RedundancyColumns,
};

/// Most rollouts that are started for one prompt in one answer.
const ROLLOUTS_MAX: u32 = 1_024;

/// The policy and its configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticAllocation {
    units: u32,
    degree: u32,
    extra: Vec<String>,
}

impl Default for StaticAllocation {
    fn default() -> Self {
        Self {
            units: 1,
            degree: 1,
            extra: Vec::new(),
        }
    }
}

impl Policy for StaticAllocation {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        for (key, value) in [("units", policy.units), ("degree", policy.degree)] {
            if value == 0 {
                return Err(PolicyError::invalid_config(format!(
                    "{key} is 0; give a number from 1"
                )));
            }
        }
        Ok(policy)
    }
}

impl AllocationPolicy for StaticAllocation {
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        actions.check(self.extra.len())?;
        let mut free = actions.free_units.to_vec();
        let mut rows: Vec<usize> = (0..actions.len()).collect();
        rows.sort_by_key(|&row| std::cmp::Reverse(actions.waited_ms[row]));
        let mut granted = vec![0; actions.len()];
        for row in rows {
            let least = actions.units_min[row];
            // Not `clamp`, which panics when the bounds contradict each other.
            let units = self.units.max(least).min(actions.units_max[row]);
            let left = &mut free[actions.pool[row] as usize];
            if units >= least && units <= *left {
                *left -= units;
                granted[row] = units;
            }
        }
        Ok(granted)
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        degrees.check()?;
        let mut counts = vec![0; degrees.len()];
        let below = degrees
            .degree
            .iter()
            .rposition(|degree| *degree <= self.degree);
        if let Some(count) = counts.get_mut(below.unwrap_or(0)) {
            *count = degrees.gpus / degrees.degree[below.unwrap_or(0)].max(1);
        }
        Ok(counts)
    }

    fn redundancy(&mut self, prompts: &RedundancyColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        prompts.check(self.extra.len())?;
        let rows = prompts
            .wanted
            .iter()
            .zip(prompts.finished)
            .zip(prompts.running);
        Ok(rows
            .map(|((&wanted, &finished), &running)| {
                let missing = wanted.saturating_sub(finished).saturating_sub(running);
                missing.min(ROLLOUTS_MAX)
            })
            .collect())
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
        };
        let mut policy = StaticAllocation::configure(r#"{"degree": 4}"#).unwrap();
        assert_eq!(policy.parallelism(&degrees), Ok(vec![0, 4, 0]));
    }

    #[test]
    fn a_failed_rollout_is_started_again() {
        let rollouts = StaticAllocation::default().redundancy(&RedundancyColumns {
            wanted: &[8, 8],
            finished: &[4, 8],
            running: &[3, 0],
            failed: &[1, 0],
            running_ms: &[0, 0],
            extra: &[],
        });
        assert_eq!(rollouts, Ok(vec![1, 0]));
    }
}
