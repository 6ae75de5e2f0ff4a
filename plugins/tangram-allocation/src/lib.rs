//! ARL-Tangram's elastic scheduling of actions (§4.2, Algorithms 1 to 4): which of the waiting
//! actions start now, and with how many units of their key resource, so that the sum of the times
//! from now until each is done becomes short.
//!
//! For each pool on its own:
//!
//! 1. All candidates start at first, with the units that make the sum of their run times least
//!    (`DPArrange`, in [`arrange`](crate)). What the others will take is estimated.
//! 2. The last of them is left to wait if the units that it frees shorten the whole; then the next
//!    to last, up to the first that doesn't. What starts is so always a head of the queue.
//!
//! Where this departs from the paper, and why:
//!
//! - Algorithm 4 as printed cannot take 4 devices of a chunk of 8, and makes 4 of four single ones.
//!   Here devices are handed out as §5.3 says, which is what the host does: the smallest chunk that
//!   has them, split where it is larger, never put together.
//! - One pass over the candidates gives the best arrangement of every head of the queue, so that
//!   letting a further one wait needs no new table.
//! - Algorithm 2 takes one end of a running action for each that waits. One that needs more units
//!   than that frees would start too early, so here as many end as it takes.
//! - Algorithm 2 looks at the whole queue. Here it looks at `horizon_rows` of those that wait; those
//!   behind are as late as the pool's units are on average, which is what the sum is charged for them.
//! - Algorithm 1 knows nothing of actions that are yet to come: whoever waits alone gets all that it
//!   gains a moment from, and those that come while it runs get what is left. Here an action gets at
//!   most its equal share of the pool, unless `share_percent` says otherwise. Devices are shared as in
//!   the paper: models gain from them almost in full.
//! - At least one candidate starts. By Algorithm 1 none might, again and again.
//! - Only the last candidates that all have known run times can be left to wait. One of which nothing
//!   is known starts with its least, and so does what came before it.
//! - Tables above a bound of work are replaced by steps of most time saved per unit, which is exact
//!   only where each step is one unit and saves no more than the step before.
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
