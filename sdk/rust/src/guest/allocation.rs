//! Glue between the bindings of the world `allocation` and [`AllocationPolicy`].

use std::marker::PhantomData;

use super::plugin::Failure;
use super::{Exported, lent};
use crate::AllocationPolicy;

super::bindings!("guest-allocation", "treadle_plugin::guest::allocation::raw");

use raw::exports::treadle::policy::allocation_policy as world;

/// Exports `allocation-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + AllocationPolicy> world::Guest for Guest<P> {
    fn arrange(
        given: world::ActionColumns,
        pools: world::PoolColumns,
        running: world::RunningColumns,
    ) -> Result<Vec<i32>, Failure> {
        let columns = crate::ActionColumns {
            pool: &given.pool,
            candidate: &given.candidate,
            waited_us: &given.waited_us,
            option_start: &given.option_start,
            option_units: &given.option_units,
            option_us: &given.option_us,
            option_load_us: &given.option_load_us,
            pools: lent!(PoolColumns of pools { free_units, chunked, free_chunks }),
            running: lent!(RunningColumns of running { pool, units, left_us }),
            extra: &given.extra,
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.arrange(&columns)
        })
    }

    fn parallelism(given: world::ParallelismColumns) -> Result<Vec<u32>, Failure> {
        let columns = lent!(ParallelismColumns of given {
            degree, token_us, step_us, prefill_us, capacity_tokens, expected_tokens
        } beside { gpus, prompt_tokens, growth, tool_us });
        P::ask(columns.check(), |policy| policy.parallelism(&columns))
    }
}
