//! The default allocation.
//!
//! - **Units of actions**: the candidates of each pool start in order, each with its smallest
//!   option. Remaining units go, step by step, where each saves most time.
//! - **Degrees of parallelism**: a batch ends with its longest program, which runs fastest on a
//!   worker with a high degree; the many short ones need throughput. Of all mixes of two degrees
//!   the one with the earliest end by the given figures is chosen.

mod config;
mod parallelism;

pub use config::Config;

use treadle_plugin::{
    ActionColumns, AllocationPolicy, Arrangement, ParallelismColumns, Policy, PolicyError,
};

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultAllocation {
    /// The configuration.
    pub config: Config,
}

impl Policy for DefaultAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for DefaultAllocation {
    const FUNCTIONS: &'static [&'static str] = &["arrange", "parallelism"];

    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let mut arrangement = Arrangement::new(actions);
        arrangement.in_order(|_| 0);
        if self.config.elastic {
            arrangement.share_out();
        }
        Ok(arrangement.answer())
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(parallelism::mix(degrees))
    }
}

treadle_plugin::allocation_policy!(DefaultAllocation);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Actions, Harness};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"elastic": false}"#] {
            Harness::new(config)
                .by_row()
                .allocation::<DefaultAllocation>();
        }
    }

    #[test]
    fn candidates_start_with_their_least_and_never_with_less_time_for_more() {
        let mut random = SplitMix64::new(6);
        for _ in 0..300 {
            let table = Actions::draw(&mut random, 12, 0, 2);
            let actions = table.columns();
            let elastic = DefaultAllocation::default().arrange(&actions).unwrap();
            let mut rigid = DefaultAllocation::configure(r#"{"elastic": false}"#).unwrap();
            let rigid = rigid.arrange(&actions).unwrap();
            for row in 0..actions.len() {
                let started = i32::from(actions.is_candidate(row)) - 1;
                assert_eq!(rigid[row], started, "{table:?}");
                assert!(elastic[row] >= started, "{table:?}");
                if elastic[row] > 0 {
                    let options = actions.options(row).start;
                    let time_us = |option: i32| actions.option_time_us(options + option as usize);
                    assert!(time_us(elastic[row]) < time_us(0), "{table:?}");
                }
            }
        }
    }
}
