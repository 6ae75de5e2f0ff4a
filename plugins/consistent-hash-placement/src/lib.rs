//! Consistent hashing: each program stays on the worker that a hash selects, whatever the load.
//! When a worker joins or leaves, only its own programs move. A baseline.
//!
//! A call contains no names of programs, only their groups, so the key is the group and the
//! program's index among those of its group in the call: programs of a group are spread out, and a
//! repeated call gives the same workers. A program that was placed before returns to its worker.

use std::collections::BTreeMap;

use treadle_plugin::random::SplitMix64;
use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, Policy, PolicyError, RouteColumns,
};

treadle_plugin::choice! {
    /// The hashed key.
    pub enum Key {
        /// The group and the program's index in it.
        Program = "program",
        /// Only the group.
        Group = "group",
    }
}

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// The hashed key: the group and the `program`'s index in it, or only the `group`, so that
        /// all its programs are on one worker.
        key: Key = Key::Program;
    }
}

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct ConsistentHashPlacement {
    config: Config,
}

impl Policy for ConsistentHashPlacement {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

/// The worker with the highest hash of group, member and worker (rendezvous hashing).
fn chosen(group: u64, member: u64, workers: usize) -> Option<u32> {
    let key = SplitMix64::new(SplitMix64::new(group).next_u64() ^ member).next_u64();
    (0..workers as u32).max_by_key(|worker| SplitMix64::new(key ^ u64::from(*worker)).next_u64())
}

impl PlacementPolicy for ConsistentHashPlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let workers = programs.workers.len();
        let mut members: BTreeMap<u64, u64> = BTreeMap::new();
        let rows = programs.last_worker.iter().zip(programs.group);
        rows.map(|(&last, &group)| {
            let next = members.entry(group).or_default();
            let member = if self.config.key == Key::Group {
                0
            } else {
                *next
            };
            *next += 1;
            if (last as usize) < workers {
                return Ok(last);
            }
            chosen(group, member, workers)
                .ok_or_else(|| PolicyError::invalid_input("there are no workers; add one first"))
        })
        .collect()
    }

    fn route(&mut self, workers: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        // A program's own worker has its context cached.
        let cached = workers.cached_tokens.iter();
        Ok(cached.map(|&tokens| tokens as f64).collect())
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(programs.at_worker.to_vec())
    }
}

treadle_plugin::placement_policy!(ConsistentHashPlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Assign, Harness, Workers};
    use treadle_plugin::{NO_CLASS, NOWHERE};

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"key": "group"}"#] {
            Harness::new(config)
                .by_row()
                .placement::<ConsistentHashPlacement>();
        }
    }

    #[test]
    fn a_group_is_spread_out_and_goes_back() {
        let workers = Workers::draw(&mut SplitMix64::new(4), 8);
        let mut programs = Assign {
            group: vec![7; 16],
            tokens: vec![1; 16],
            remaining_tokens: vec![-1.0; 16],
            growth: vec![-1.0; 16],
            tool_us: vec![-1.0; 16],
            preferred_class: vec![NO_CLASS; 16],
            last_worker: vec![NOWHERE; 16],
            extra: Vec::new(),
        };
        let ask = |programs: &Assign, config: &str| {
            let mut policy = ConsistentHashPlacement::configure(config).unwrap();
            policy.assign(&programs.columns_with(&workers)).unwrap()
        };
        let places = ask(&programs, "{}");
        let mut distinct = places.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() >= 4, "{places:?}");
        assert_eq!(ask(&programs, "{}"), places);
        let together = ask(&programs, r#"{"key": "group"}"#);
        assert!(together.iter().all(|place| *place == together[0]));
        programs.last_worker.fill(3);
        assert_eq!(ask(&programs, "{}"), [3; 16]);
    }

    #[test]
    fn a_new_worker_takes_its_share_and_moves_no_one_else() {
        let mut taken = 0;
        for group in 0..100 {
            for member in 0..10 {
                let before = chosen(group, member, 4).unwrap();
                let after = chosen(group, member, 5).unwrap();
                assert!(after == before || after == 4, "{before} {after}");
                taken += u32::from(after == 4);
            }
        }
        assert!((150..250).contains(&taken), "{taken}");
    }
}
