//! Places programs where most of their context is cached, whatever the load: a program returns to
//! its last worker, a new one goes to the worker that got its group's prompt before, else to the
//! one with most free KV memory. No program moves. A baseline: the static placement of agentic
//! frameworks that pin programs to workers (Heddle §7, Verl).

use treadle_plugin::recent::Recent;
use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, Policy, PolicyError, RouteColumns,
    WorkerColumns,
};

/// Maximum number of groups; the oldest are forgotten.
const GROUPS_MAX: usize = 65_536;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Whether a group's cached prompt counts; if not, new programs go where most memory is
        /// free.
        prompts: bool = true;
    }
}

/// The policy. It records which worker got which group first.
#[derive(Debug, Clone)]
pub struct CacheAwarePlacement {
    config: Config,
    /// Number of workers in the last call.
    workers: usize,
    /// The worker that got the first program of a group, and so holds its prompt.
    first_workers: Recent<u64, u32>,
}

impl Default for CacheAwarePlacement {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl CacheAwarePlacement {
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
}

impl Policy for CacheAwarePlacement {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }
}

/// Free KV memory of each worker, in tokens. A worker of unknown size counts as one of
/// the largest known.
fn free(workers: &WorkerColumns<'_>) -> Vec<f64> {
    let largest = workers.capacity_tokens.iter().copied().max().unwrap_or(0);
    let known = |&tokens: &u64| if tokens == 0 { largest } else { tokens };
    let capacities = workers.capacity_tokens.iter().map(known);
    let rows = capacities.zip(workers.used_tokens);
    rows.map(|(capacity, &used)| capacity as f64 - used as f64)
        .collect()
}

impl PlacementPolicy for CacheAwarePlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut free = free(&programs.workers);
        self.set_workers(free.len());
        let mut places = Vec::with_capacity(programs.len());
        for row in 0..programs.len() {
            let group = programs.group[row];
            let last = Some(programs.last_worker[row]).filter(|last| (*last as usize) < free.len());
            let first = self.first_workers.get(&group).copied();
            let known = first.filter(|_| self.config.prompts);
            let emptiest = || {
                let workers = 0..free.len() as u32;
                // The first of equals.
                workers
                    .rev()
                    .max_by(|&left, &right| free[left as usize].total_cmp(&free[right as usize]))
            };
            let worker = last
                .or(known)
                .or_else(emptiest)
                .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))?;
            free[worker as usize] -= programs.tokens[row] as f64;
            if first.is_none() {
                self.first_workers.insert(group, worker);
            }
            places.push(worker);
        }
        Ok(places)
    }

    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let free = free(&workers.workers);
        // The free memory only breaks ties: it counts for less than a token.
        let most = free.iter().copied().fold(1.0, f64::max);
        let rows = workers.cached_tokens.iter().zip(free);
        Ok(rows
            .map(|(&cached, free)| cached as f64 + 0.5 * (free / most).max(0.0))
            .collect())
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(programs.at_worker.to_vec())
    }
}

treadle_plugin::placement_policy!(CacheAwarePlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Assign, Harness, Workers};
    use treadle_plugin::{NO_CLASS, NOWHERE};

    use super::*;

    fn workers() -> Workers {
        Workers {
            used_tokens: vec![600, 100, 200],
            ..Workers::idle(&[1_000; 3])
        }
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"prompts": false}"#] {
            Harness::new(config)
                .by_row()
                .placement::<CacheAwarePlacement>();
        }
    }

    #[test]
    fn a_group_follows_its_prompt_and_a_program_its_cache() {
        let mut programs = Assign {
            group: vec![1, 2, 1, 1],
            tokens: vec![150; 4],
            remaining_tokens: vec![-1.0; 4],
            growth: vec![-1.0; 4],
            tool_us: vec![-1.0; 4],
            preferred_class: vec![NO_CLASS; 4],
            last_worker: vec![NOWHERE, NOWHERE, 0, NOWHERE],
            extra: Vec::new(),
        };
        let mut policy = CacheAwarePlacement::default();
        let places = policy.assign(&programs.columns_with(&workers())).unwrap();
        assert_eq!(places, [1, 2, 0, 1]);
        // The next call still knows the groups.
        programs.group = vec![2; 4];
        programs.last_worker.fill(NOWHERE);
        let places = policy.assign(&programs.columns_with(&workers())).unwrap();
        assert_eq!(places, [2; 4]);
        let mut apart = CacheAwarePlacement::configure(r#"{"prompts": false}"#).unwrap();
        let places = apart.assign(&programs.columns_with(&workers())).unwrap();
        assert_eq!(places, [1, 2, 1, 2]);
    }

    #[test]
    fn a_route_looks_at_cache_then_at_room() {
        let scores = CacheAwarePlacement::default()
            .route(&RouteColumns {
                cached_tokens: &[0, 70, 0],
                tokens: 100,
                workers: workers().columns(),
                extra: &[],
            })
            .unwrap();
        assert!(scores[1] > scores[2] && scores[2] > scores[0], "{scores:?}");
    }
}
