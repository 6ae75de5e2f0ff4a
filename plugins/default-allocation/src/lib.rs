//! The default allocation.
//!
//! - **Units of actions**: in order of arrival each action gets the least that it can
//!   run with. One that does not fit is passed over until it has waited `reserve_s`;
//!   then its pool is kept for it. Units left over go where they make the slowest
//!   action end soonest.
//! - **Degrees of parallelism**: a batch ends with its longest program, which a worker
//!   of a high degree runs fastest; the many short ones need throughput. Of all mixes
//!   of two degrees the one is chosen that ends soonest by the given figures.

mod config;
mod grant;
mod parallelism;

pub use config::Config;

use treadle_plugin::{AllocationPolicy, GrantColumns, ParallelismColumns, Policy, PolicyError};

/// The policy. It keeps nothing between calls but its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultAllocation {
    /// What to do.
    pub config: Config,
}

impl Policy for DefaultAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for DefaultAllocation {
    const FUNCTIONS: &'static [&'static str] = &["grant", "parallelism"];

    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(grant::grant(&self.config, actions))
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(parallelism::mix(degrees))
    }
}

treadle_plugin::allocation_policy!(DefaultAllocation);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"reserve_s": 0, "elastic": false}"#] {
            Harness::new(config)
                .by_row()
                .allocation::<DefaultAllocation>();
        }
    }
}
