//! Sticky placement: a program returns to its last worker, a new one goes to the worker that its
//! group's number selects, and none moves. So programs with the same prompt share its cache,
//! whatever the load. A baseline.

use treadle_plugin::random::SplitMix64;
use treadle_plugin::{
    AssignColumns, MigrateColumns, NoConfig, PlacementPolicy, Policy, PolicyError, RouteColumns,
};

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct StickyPlacement;

impl Policy for StickyPlacement {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

/// The worker with the highest hash of group and worker: when a worker is added or removed at the
/// end of the table, only its own groups move.
fn chosen(group: u64, workers: usize) -> Option<u32> {
    let mixed = |worker: &u32| {
        SplitMix64::new(SplitMix64::new(group).next_u64() ^ u64::from(*worker)).next_u64()
    };
    (0..workers as u32).max_by_key(mixed)
}

impl PlacementPolicy for StickyPlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let workers = programs.workers.len();
        let rows = programs.last_worker.iter().zip(programs.group);
        rows.map(|(&last, &group)| {
            if (last as usize) < workers {
                return Ok(last);
            }
            chosen(group, workers)
                .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))
        })
        .collect()
    }

    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let cached = workers.cached_tokens.iter();
        Ok(cached.map(|&tokens| tokens as f64).collect())
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(programs.at_worker.to_vec())
    }
}

treadle_plugin::placement_policy!(StickyPlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Assign, Harness, Workers};
    use treadle_plugin::{NO_CLASS, NOWHERE};

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().placement::<StickyPlacement>();
    }

    #[test]
    fn who_was_somewhere_goes_back_and_groups_stay_together() {
        let workers = Workers::draw(&mut SplitMix64::new(4), 5);
        let programs = Assign {
            group: vec![7, 7, 7],
            tokens: vec![1; 3],
            remaining_tokens: vec![-1.0; 3],
            growth: vec![-1.0; 3],
            tool_us: vec![-1.0; 3],
            preferred_class: vec![NO_CLASS; 3],
            last_worker: vec![NOWHERE, 3, NOWHERE],
            extra: Vec::new(),
        };
        let places = StickyPlacement
            .assign(&programs.columns_with(&workers))
            .unwrap();
        assert_eq!(places[1], 3);
        assert_eq!(places[0], places[2]);
    }

    #[test]
    fn a_new_worker_takes_its_share_and_moves_no_one_else() {
        let mut taken = 0;
        for group in 0..1_000 {
            let (before, after) = (chosen(group, 4).unwrap(), chosen(group, 5).unwrap());
            assert!(after == before || after == 4, "{group}: {before} {after}");
            taken += u32::from(after == 4);
        }
        assert!((150..250).contains(&taken), "{taken}");
    }
}
