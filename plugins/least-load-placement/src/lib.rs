//! Always chooses the least loaded worker: the one with the smallest used share of its KV cache,
//! then the one with the fewest running steps. Ignores caches and moves no program. A baseline.

use treadle_plugin::{
    AssignColumns, NoConfig, PlacementPolicy, Policy, PolicyError, RouteColumns, WorkerColumns,
};

/// Load of a running step in a route, as a share of a worker: so small that it only breaks ties.
const STEP_LOAD: f64 = 1e-9;

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct LeastLoadPlacement;

impl Policy for LeastLoadPlacement {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

/// The capacity of each worker, in tokens; an unknown one counts as the largest known one.
fn capacities(workers: &WorkerColumns<'_>) -> Vec<f64> {
    let largest = workers.capacity_tokens.iter().copied().max().unwrap_or(0);
    let known = |&tokens: &u64| if tokens == 0 { largest } else { tokens };
    let capacities = workers.capacity_tokens.iter().map(known);
    capacities.map(|tokens| tokens.max(1) as f64).collect()
}

impl PlacementPolicy for LeastLoadPlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let workers = programs.workers;
        let capacities = capacities(&workers);
        let mut used: Vec<f64> = workers
            .used_tokens
            .iter()
            .map(|&used| used as f64)
            .collect();
        let mut running = workers.running.to_vec();
        let mut places = Vec::with_capacity(programs.len());
        for &tokens in programs.tokens {
            let load = |worker: &usize| used[*worker] / capacities[*worker];
            let least = (0..workers.len()).min_by(|left, right| {
                load(left)
                    .total_cmp(&load(right))
                    .then(running[*left].cmp(&running[*right]))
            });
            let worker = least
                .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))?;
            used[worker] += tokens as f64;
            running[worker] = running[worker].saturating_add(1);
            places.push(worker as u32);
        }
        Ok(places)
    }

    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let capacities = capacities(&workers.workers);
        let rows = workers.workers.used_tokens.iter().zip(&capacities);
        let loads = rows.map(|(&used, capacity)| used as f64 / capacity);
        let rows = loads.zip(workers.workers.running);
        Ok(rows
            .map(|(load, &running)| -(load + f64::from(running) * STEP_LOAD))
            .collect())
    }
}

treadle_plugin::placement_policy!(LeastLoadPlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::NO_CLASS;
    use treadle_plugin::harness::{Assign, Harness, Workers};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}")
            .by_row()
            .placement::<LeastLoadPlacement>();
    }

    #[test]
    fn equal_programs_are_shared_out_evenly() {
        let workers = Workers::idle(&[100_000; 4]);
        let mut programs = Assign::draw(&mut SplitMix64::new(3), 40, 0);
        programs.tokens.fill(500);
        let places = LeastLoadPlacement
            .assign(&programs.columns_with(&workers))
            .unwrap();
        for worker in 0..4 {
            assert_eq!(places.iter().filter(|place| **place == worker).count(), 10);
        }
    }

    #[test]
    fn load_is_a_share_of_what_a_worker_holds() {
        let workers = Workers {
            used_tokens: vec![500, 600],
            running: vec![0, 9],
            ..Workers::idle(&[1_000, 100_000])
        };
        let programs = Assign {
            group: vec![1],
            tokens: vec![10],
            remaining_tokens: vec![-1.0],
            growth: vec![-1.0],
            tool_us: vec![-1.0],
            preferred_class: vec![NO_CLASS],
            last_worker: vec![0],
            extra: Vec::new(),
        };
        let places = LeastLoadPlacement.assign(&programs.columns_with(&workers));
        assert_eq!(places, Ok(vec![1]));
    }
}
