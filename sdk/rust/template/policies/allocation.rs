//! Shares out resources.

use treadle_plugin::{ActionColumns, AllocationPolicy, Arrangement, Policy, PolicyError};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Units of each pool that no action is started with.
        reserve_units: u32 = 0, 0..=1_000_000;
    }
}

/// The actions that came first start with the least that they can do with.
#[derive(Debug, Clone, Default)]
pub struct FirstComeFirstServed {
    config: Config,
}

impl Policy for FirstComeFirstServed {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for FirstComeFirstServed {
    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let reserve = u64::from(self.config.reserve_units);
        let mut arrangement = Arrangement::new(actions);
        let mut ended = vec![false; actions.pools.len()];
        for row in 0..actions.len() {
            let pool = actions.pool[row] as usize;
            if !actions.is_candidate(row) || ended[pool] {
                continue;
            }
            let least = actions.option_units[actions.options(row).start];
            let is_there = arrangement.free(pool).units() >= u64::from(least) + reserve;
            // The first that does not fit keeps those after it waiting.
            ended[pool] = !(is_there && arrangement.start(row, 0));
        }
        Ok(arrangement.answer())
    }
}

treadle_plugin::allocation_policy!(FirstComeFirstServed);
