//! The default placement: a program goes where its cache is, unless that worker is clearly more
//! loaded than the others; otherwise to the least loaded worker, with the programs of a group
//! spread out. A program that prefers a class of hardware goes to workers of that while they have
//! room.
//!
//! Of ranks that step together, a program goes to the one with least to do, so that the largest load
//! of them stays smallest; the programs of a group are spread over them.
//!
//! A worker's load is the used share of its KV cache. Predicted tokens count as used, so that long
//! programs don't end up on the same worker.

mod assign;
mod config;
mod load;
mod migrate;
mod ranks;

pub use config::Config;

use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, Policy, PolicyError, RouteColumns,
};

use load::Load;

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultPlacement {
    /// The configuration.
    pub config: Config,
}

impl Policy for DefaultPlacement {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl PlacementPolicy for DefaultPlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "route", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        assign::assign(&self.config, programs)
    }

    fn route(&mut self, step: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let load = Load::of(&step.workers);
        let context = step.tokens.max(1) as f64;
        let cached = step.cached_tokens.iter().enumerate();
        Ok(cached
            .map(|(worker, &cached)| {
                let share = (cached as f64 / context).min(1.0);
                let room = load.fits(worker, step.tokens.saturating_sub(cached) as f64);
                let affinity = if room {
                    self.config.affinity * share
                } else {
                    0.0
                };
                affinity - load.share(worker)
            })
            .collect())
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(migrate::migrate(&self.config, programs))
    }
}

treadle_plugin::placement_policy!(DefaultPlacement);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in [
            "{}",
            r#"{"load_slack": 0, "spread": 0, "migrate_slack": 0}"#,
        ] {
            Harness::new(config)
                .by_row()
                .placement::<DefaultPlacement>();
        }
    }

    #[test]
    fn a_route_follows_the_cache_until_the_load_outweighs_it() {
        let scores = |used: [u64; 2]| {
            let mut policy = DefaultPlacement::default();
            let workers = treadle_plugin::WorkerColumns {
                capacity_tokens: &[100_000, 100_000],
                used_tokens: &used,
                running: &[1, 1],
                ..treadle_plugin::WorkerColumns::default()
            };
            policy
                .route(&RouteColumns {
                    cached_tokens: &[0, 8_000],
                    tokens: 8_000,
                    workers,
                    extra: &[],
                })
                .unwrap()
        };
        let [balanced, loaded] = [scores([10_000, 40_000]), scores([10_000, 90_000])];
        assert!(balanced[1] > balanced[0], "{balanced:?}");
        assert!(loaded[0] > loaded[1], "{loaded:?}");
    }
}
