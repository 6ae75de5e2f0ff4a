//! Prefers caches while the load is even, and the least load otherwise: if the busiest worker runs
//! more than `skew` times as many steps as the idlest, a step or program goes to the idlest worker,
//! else to where most of its context is cached. No program moves. A baseline: the rule of SGLang's
//! router as Heddle describes it (§7, Verl*).

use treadle_plugin::recent::Recent;
use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, Policy, PolicyError, RouteColumns,
};

/// Maximum number of groups; the oldest are forgotten.
const GROUPS_MAX: usize = 65_536;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Ratio of running steps between the busiest and the idlest worker (counted as at least
        /// one) above which the least load decides.
        skew: f64 = 32.0, 1.0..=1e6;
    }
}

/// The policy. It records which worker got which group first.
#[derive(Debug, Clone)]
pub struct HybridPlacement {
    config: Config,
    /// Number of workers in the last call.
    workers: usize,
    /// The worker that got the first program of a group, and so holds its prompt.
    first_workers: Recent<u64, u32>,
}

impl Default for HybridPlacement {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl HybridPlacement {
    /// A policy that has placed nothing.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            workers: 0,
            first_workers: Recent::new(GROUPS_MAX),
        }
    }

    /// Forgets everything if the number of workers has changed, as their rows may have changed.
    fn set_workers(&mut self, workers: usize) {
        if self.workers != workers {
            self.workers = workers;
            self.first_workers.clear();
        }
    }

    fn is_skewed(&self, running: &[u32]) -> bool {
        let busiest = running.iter().copied().max().unwrap_or(0);
        let idlest = running.iter().copied().min().unwrap_or(0).max(1);
        f64::from(busiest) > self.config.skew * f64::from(idlest)
    }
}

impl Policy for HybridPlacement {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }
}

impl PlacementPolicy for HybridPlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut running = programs.workers.running.to_vec();
        let mut used = programs.workers.used_tokens.to_vec();
        self.set_workers(running.len());
        let mut places = Vec::with_capacity(programs.len());
        for row in 0..programs.len() {
            let group = programs.group[row];
            let last =
                Some(programs.last_worker[row] as usize).filter(|last| *last < running.len());
            let first = self.first_workers.get(&group).copied();
            let cached = last.or(first.map(|worker| worker as usize));
            let idlest = (0..running.len()).min_by_key(|&worker| (running[worker], used[worker]));
            let worker = if self.is_skewed(&running) {
                idlest
            } else {
                cached.or(idlest)
            };
            let worker = worker
                .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))?;
            running[worker] = running[worker].saturating_add(1);
            used[worker] = used[worker].saturating_add(programs.tokens[row]);
            if first.is_none() {
                self.first_workers.insert(group, worker as u32);
            }
            places.push(worker as u32);
        }
        Ok(places)
    }

    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let running = workers.workers.running;
        let skewed = self.is_skewed(running);
        let rows = workers.cached_tokens.iter().zip(running);
        Ok(rows
            .map(|(&cached, &running)| {
                // Lower terms only break ties: they count for less than one.
                let (cached, running) = (cached as f64, f64::from(running));
                if skewed {
                    0.5 * cached / (1.0 + cached) - running
                } else {
                    cached + 0.5 / (1.0 + running)
                }
            })
            .collect())
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(programs.at_worker.to_vec())
    }
}

treadle_plugin::placement_policy!(HybridPlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Assign, Harness, Workers};
    use treadle_plugin::{NO_CLASS, NOWHERE};

    use super::*;

    fn workers(running: &[u32]) -> Workers {
        Workers {
            running: running.to_vec(),
            ..Workers::idle(&vec![1_000; running.len()])
        }
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"skew": 1}"#] {
            Harness::new(config).by_row().placement::<HybridPlacement>();
        }
    }

    #[test]
    fn a_group_stays_together_until_the_load_is_skewed() {
        let programs = Assign {
            group: vec![1; 40],
            tokens: vec![10; 40],
            remaining_tokens: vec![-1.0; 40],
            growth: vec![-1.0; 40],
            tool_us: vec![-1.0; 40],
            preferred_class: vec![NO_CLASS; 40],
            last_worker: vec![NOWHERE; 40],
            extra: Vec::new(),
        };
        let mut policy = HybridPlacement::default();
        let places = policy
            .assign(&programs.columns_with(&workers(&[0, 0])))
            .unwrap();
        let first = places.iter().filter(|place| **place == 0).count();
        assert_eq!(places[..33], [0; 33]);
        assert_eq!(first, 38, "{places:?}");
    }

    #[test]
    fn a_route_changes_its_rule_at_the_skew() {
        let scores = |running: &[u32]| {
            let workers = workers(running);
            let columns = RouteColumns {
                cached_tokens: &[900, 0],
                tokens: 1_000,
                workers: workers.columns(),
                extra: &[],
            };
            HybridPlacement::default().route(&columns).unwrap()
        };
        let [even, skewed] = [scores(&[64, 2]), scores(&[65, 2])];
        assert!(even[0] > even[1], "{even:?}");
        assert!(skewed[1] > skewed[0], "{skewed:?}");
    }
}
