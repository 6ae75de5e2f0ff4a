//! ARL-Tangram's elastic scheduling of actions (§4.2, Algorithms 1 to 4): which of the waiting
//! actions start now, and with how many units of their key resource, so that the sum of their
//! completion times is short.
//!
//! For each pool independently:
//!
//! 1. Initially all candidates start, with the units that minimise the sum of their run times
//!    (`DPArrange`, in [`arrange`](crate)). The completion of the others is estimated.
//! 2. The last candidate is left waiting if the freed units shorten the total; then the next to
//!    last, and so on until it does not. So a prefix of the queue starts.
//!
//! Deviations from the paper, with reasons:
//!
//! - Algorithm 4 as printed can't take 4 devices of a chunk of 8, and makes 4 of four single ones.
//!   Here devices are granted as in §5.3, and by the host: from the smallest sufficient chunk,
//!   which is split if it is larger; chunks are never merged.
//! - One pass over the candidates gives the best arrangement of every prefix of the queue, so
//!   leaving another one waiting needs no new table.
//! - Algorithm 2 uses the end of one running action for each waiting one. One that needs more units
//!   would start too early, so here as many end as it needs.
//! - Algorithm 2 considers the whole queue. Here it considers `horizon_rows` waiting actions; those
//!   behind count with the mean time at which the pool's units become free.
//! - Algorithm 1 ignores future actions: a single one that waits gets all units that it gains anything
//!   from, and those that come while it runs get the rest. Here an action gets at most its equal
//!   share of the pool, as configured by `share_percent`. Devices are shared as in the paper:
//!   models use them almost with full efficiency.
//! - At least one candidate starts. In Algorithm 1 it is possible that none ever does.
//! - Only the last candidates that all have known run times can be left waiting. One with an
//!   unknown time starts with its smallest option, and so do those before it.
//! - Tables beyond a limit are replaced by steps that each save most time per unit, which is exact
//!   only if each step is one unit and saves no more than the step before.
//!
//! Times are whole microseconds, so that the answer is the same on every machine.

mod arrange;
mod config;
mod estimate;
mod evict;
mod queue;

pub use config::Config;

use treadle_plugin::{ActionColumns, AllocationPolicy, Policy, PolicyError};

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct TangramAllocation {
    /// The configuration.
    pub config: Config,
}

impl Policy for TangramAllocation {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl AllocationPolicy for TangramAllocation {
    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let mut chosen = vec![-1; actions.len()];
        for queue in queue::of_pools(actions, &self.config) {
            for (row, option) in evict::start(&self.config, &queue) {
                chosen[row] = option;
            }
        }
        Ok(chosen)
    }
}

treadle_plugin::allocation_policy!(TangramAllocation);

#[cfg(test)]
mod tests;
