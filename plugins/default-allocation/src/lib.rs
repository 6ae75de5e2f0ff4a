//! The default allocation.
//!
//! - **Units of actions**: in order of arrival each action gets the least that it can
//!   run with. One that does not fit is passed over until it has waited `reserve_s`;
//!   then its pool is kept for it. Units left over go where they make the slowest
//!   action end soonest.
//! - **Degrees of parallelism**: a batch ends with its longest program, which a worker
//!   of a high degree runs fastest; the many short ones need throughput. Of all mixes
//!   of two degrees the one is chosen that ends soonest by the given figures.
//! - **Rollouts**: what failed is started again, unless a prompt fails over and over;
//!   where the last ones take long, `surplus` more are started and the first to finish
//!   count.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `reserve_s` | wait from which a pool is kept for an action, in seconds | 30 |
//! | `elastic` | whether units left over are shared out | true |
//! | `surplus` | rollouts started beyond those wanted for a late prompt | 1 |
//! | `late_s` | run time of the oldest rollout from which a prompt is late, in seconds | never |
//! | `failed_max` | prompts with more failed rollouts get no further ones | 16 |
//! | `extra` | names of the extra columns; they are not used | none |

mod config;
mod grant;
mod parallelism;
mod rollouts;

pub use config::Config;

use treadle_plugin::{
    AllocationPolicy, GrantColumns, ParallelismColumns, Policy, PolicyError, RedundancyColumns,
};

/// The policy. It keeps nothing between calls but its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultAllocation {
    /// What to do.
    pub config: Config,
}

impl Policy for DefaultAllocation {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Ok(Self {
            config: Config::parse(json)?,
        })
    }
}

impl AllocationPolicy for DefaultAllocation {
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        actions.check(self.config.extra.len())?;
        Ok(grant::grant(&self.config, actions))
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        degrees.check()?;
        Ok(parallelism::mix(degrees))
    }

    fn redundancy(&mut self, prompts: &RedundancyColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        prompts.check(self.config.extra.len())?;
        Ok(rollouts::further(&self.config, prompts))
    }
}

treadle_plugin::allocation_policy!(DefaultAllocation);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"reserve_s": 0, "late_s": 1, "surplus": 3}"#] {
            Harness::new(config)
                .by_row()
                .allocation::<DefaultAllocation>();
        }
    }
}
