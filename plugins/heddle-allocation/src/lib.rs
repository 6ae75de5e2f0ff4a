//! Heddle's resource manager (§6): degrees of tensor parallelism such that the longest
//! programs get fast workers and the many short ones get many workers.
//!
//! A plan is as good as the best split of the programs over its workers, the fastest
//! first (`heddle-partition`). Where there are few plans all are looked at; else they
//! are searched by annealing (Algorithm 2), which starts from the best plan of one
//! degree, so that none of these is better than the answer.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `objective` | `"paper"`: Formula 2; `"drained"`: batches shrink as programs finish; `"fluid"`: that, and contexts grow and memory bounds the batch, by samples of the lengths | `"paper"` |
//! | `search` | `"auto"`, `"annealing"` or `"exhaustive"` | `"auto"` |
//! | `plans_max` | most plans that `auto` looks at one by one; with more it anneals. `exhaustive` anneals above a million | 4096 |
//! | `cooling` | temperature after a step of annealing, as a share of that before | 0.997 |
//! | `epsilon` | temperature at which annealing ends, as a share of the first | 0.001 |
//! | `seed` | of the annealing; `null` for the host's random stream | `null` |
//! | `prompt_tokens` | KV memory that a program needs beside its expected tokens | 0 |
//! | `growth`, `tool_us` | by how much a context grows with each generated token, and the time in tools for each, in microseconds, for `"fluid"` | 1, 0 |
//! | `classes` | `[{"degree": 1, "token_us": 7000, "interference": [[1, 1], [64, 1.5]]}]`: what was measured for a degree; each key but `degree` may be missing; `"pace"` as in `heddle-placement` is for `"fluid"` | none |
//! | `extra` | names of the extra columns; they are not used | none |
//!
//! Without `interference` a batch of 128 takes twice as long as one program. A worker
//! runs at most as many programs at once as its KV cache holds of mean length; the
//! members of a larger group take turns.
//!
//! The paper does not treat units of actions: each gets the least that it can run with, the one
//! that has waited longest first. Further rollouts are left to the host.

mod anneal;
mod cluster;
mod config;
mod moves;

pub use cluster::Cluster;
pub use config::{Class, Config, Goal, Search};

use treadle_plugin::{
    AllocationPolicy, GrantColumns, ParallelismColumns, Policy, PolicyError, host,
};

/// The policy. It keeps nothing between calls but its configuration.
#[derive(Debug, Clone, Default)]
pub struct HeddleAllocation {
    /// What to do.
    pub config: Config,
}

impl HeddleAllocation {
    /// The best plan that was found and when its latest worker ends, in microseconds.
    pub fn plan(&self, cluster: &Cluster, seed: u64) -> (Vec<u32>, f64) {
        let plans_max = match self.config.search {
            Search::Annealing => 0,
            Search::Auto => self.config.plans_max,
            Search::Exhaustive => config::PLANS_MAX,
        };
        if cluster.plans(plans_max + 1) <= plans_max {
            anneal::exhaustive(cluster)
        } else {
            anneal::anneal(cluster, self.config.cooling, self.config.epsilon, seed)
        }
    }
}

impl Policy for HeddleAllocation {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Ok(Self {
            config: Config::parse(json)?,
        })
    }
}

impl AllocationPolicy for HeddleAllocation {
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        actions.check(self.config.extra.len())?;
        let mut free = actions.free_units.to_vec();
        let mut units = vec![0; actions.len()];
        let mut rows: Vec<usize> = (0..actions.len()).collect();
        rows.sort_by_key(|&row| std::cmp::Reverse(actions.waited_ms[row]));
        for row in rows {
            let least = actions.units_min[row].max(1);
            let left = &mut free[actions.pool[row] as usize];
            if least <= actions.units_max[row] && least <= *left {
                *left -= least;
                units[row] = least;
            }
        }
        Ok(units)
    }

    fn parallelism(&mut self, degrees: &ParallelismColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        degrees.check()?;
        let cluster = Cluster::new(&self.config, degrees);
        let seed = self.config.seed.unwrap_or_else(host::random_u64);
        let (counts, _) = self.plan(&cluster, seed);
        Ok(cluster.counts(&counts))
    }
}

treadle_plugin::allocation_policy!(HeddleAllocation);

#[cfg(test)]
mod tests;
