//! Fixed allocation: each action starts with `units` units, strictly in order, whatever that costs
//! later ones; all devices run one degree of tensor parallelism. A baseline.

use treadle_plugin::{
    ActionColumns, AllocationPolicy, Arrangement, ParallelismColumns, Policy, PolicyError,
};

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Units of each action: its largest option up to this, else its smallest.
        units: u32 = 1, 1..=u32::MAX;
        /// Degree of tensor parallelism: the largest available one up to this, else the smallest.
        degree: u32 = 1, 1..=u32::MAX;
    }
}

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct StaticAllocation {
    config: Config,
}

impl Policy for StaticAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for StaticAllocation {
    const FUNCTIONS: &'static [&'static str] = &["arrange", "parallelism"];

    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let mut arrangement = Arrangement::new(actions);
        arrangement.in_order(|row| {
            let options = &actions.option_units[actions.options(row)];
            let up_to = options.partition_point(|units| *units <= self.config.units);
            up_to.saturating_sub(1)
        });
        Ok(arrangement.answer())
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut counts = vec![0; degrees.len()];
        let below = degrees
            .degree
            .iter()
            .rposition(|degree| *degree <= self.config.degree);
        if let Some(count) = counts.get_mut(below.unwrap_or(0)) {
            *count = degrees.gpus / degrees.degree[below.unwrap_or(0)].max(1);
        }
        Ok(counts)
    }
}

treadle_plugin::allocation_policy!(StaticAllocation);

#[cfg(test)]
mod tests {
    use treadle_plugin::PoolColumns;
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"units": 7, "degree": 4}"#] {
            Harness::new(config)
                .by_row()
                .allocation::<StaticAllocation>();
        }
    }

    #[test]
    fn the_first_that_does_not_fit_keeps_those_after_it_waiting() {
        let actions = ActionColumns {
            pool: &[0, 0, 1, 0, 0],
            candidate: &[1, 1, 1, 1, 0],
            waited_us: &[9, 8, 7, 6, 5],
            option_start: &[0, 3, 4, 6, 7, 8],
            option_units: &[1, 4, 8, 6, 1, 2, 1, 1],
            option_us: &[-1.0; 8],
            option_load_us: &[0.0; 8],
            pools: PoolColumns {
                free_units: &[9, 4],
                chunked: &[0, 1],
                free_chunks: &[0, 0, 0, 0, 2, 1, 0, 0],
            },
            ..ActionColumns::default()
        };
        for (units, chosen) in [(4, [1, -1, 1, -1, -1]), (1, [0, 0, 0, 0, -1])] {
            let config = format!("{{\"units\": {units}}}");
            let mut policy = StaticAllocation::configure(&config).unwrap();
            assert_eq!(policy.arrange(&actions), Ok(chosen.to_vec()), "{units}");
        }
    }

    #[test]
    fn all_devices_run_one_degree() {
        let degrees = ParallelismColumns {
            gpus: 9,
            degree: &[1, 2, 8],
            token_us: &[3.0, 2.0, 1.0],
            capacity_tokens: &[1, 2, 8],
            expected_tokens: &[],
            ..ParallelismColumns::default()
        };
        let mut policy = StaticAllocation::configure(r#"{"degree": 4}"#).unwrap();
        assert_eq!(policy.parallelism(&degrees), Ok(vec![0, 4, 0]));
    }
}
