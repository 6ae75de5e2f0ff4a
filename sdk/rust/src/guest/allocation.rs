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
    fn grant(given: world::GrantColumns) -> Result<Vec<u32>, Failure> {
        let columns = lent!(GrantColumns of given { pool, units_min, units_max, waited_ms, expected_ms, free_units, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.grant(&columns)
        })
    }

    fn parallelism(given: world::ParallelismColumns) -> Result<Vec<u32>, Failure> {
        let columns = lent!(ParallelismColumns of given {
            degree, token_us, step_us, prefill_us, capacity_tokens, expected_tokens
        } beside { gpus, prompt_tokens, growth, tool_us });
        P::ask(columns.check(), |policy| policy.parallelism(&columns))
    }
}
