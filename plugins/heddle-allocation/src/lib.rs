//! Heddle's resource manager (§6): degrees of tensor parallelism such that the longest programs get
//! fast workers and the many short ones get many workers.
//!
//! A plan is as good as the best split of the programs over its workers, the fastest first
//! (`heddle-partition`). If there are few plans, all are evaluated; else they are searched by
//! annealing (Algorithm 2), which starts from the best plan with a single degree, so the answer is
//! never worse than that.
//!
//! Without `interference` a batch of 128 takes twice as long as one program. A worker runs at most
//! as many programs of mean length at once as its KV cache holds; the members of a larger group
//! take turns.
//!
//! The paper does not cover units of actions. They are distributed as in `default-allocation`: each
//! candidate gets its smallest option in order, and remaining units go where they save most time.

mod anneal;
mod cluster;
mod config;
mod moves;

pub use cluster::Cluster;
pub use config::{Class, Config, Goal, Search};

use treadle_plugin::{
    ActionColumns, AllocationPolicy, Arrangement, ParallelismColumns, Policy, PolicyError, host,
};

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct HeddleAllocation {
    /// The configuration.
    pub config: Config,
}

impl HeddleAllocation {
    /// The best plan found, and the end of its latest worker, in microseconds.
    pub fn plan(&self, cluster: &Cluster, seed: u64) -> (Vec<u32>, f64) {
        let plans_max = match self.config.search {
            Search::Annealing => 0,
            Search::Auto => self.config.plans_max,
            Search::Exhaustive => config::PLANS_MAX,
        };
        let plans_max = plans_max as usize;
        if cluster.plans(plans_max + 1) <= plans_max {
            anneal::exhaustive(cluster)
        } else {
            anneal::anneal(cluster, self.config.cooling, self.config.epsilon, seed)
        }
    }
}

impl Policy for HeddleAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for HeddleAllocation {
    const FUNCTIONS: &'static [&'static str] = &["arrange", "parallelism"];

    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let mut arrangement = Arrangement::new(actions);
        arrangement.in_order(|_| 0);
        arrangement.share_out();
        Ok(arrangement.answer())
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let cluster = Cluster::new(&self.config, degrees);
        let seed = self.config.seed.unwrap_or_else(host::random_u64);
        let (counts, _) = self.plan(&cluster, seed);
        Ok(cluster.counts(&counts))
    }
}

treadle_plugin::allocation_policy!(HeddleAllocation);

#[cfg(test)]
mod tests;
