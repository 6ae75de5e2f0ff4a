//! Glue between the bindings of the world `allocation` and [`AllocationPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{AllocationPolicy, GrantColumns, ParallelismColumns, RedundancyColumns};

super::bindings!("guest-allocation", "treadle_plugin::guest::allocation::raw");

use raw::exports::treadle::policy::allocation_policy as world;

/// Exports `allocation-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + AllocationPolicy> world::Guest for Guest<P> {
    fn grant(
        pool: Vec<u32>,
        units_min: Vec<u32>,
        units_max: Vec<u32>,
        waited_ms: Vec<u64>,
        expected_ms: Vec<f64>,
        free_units: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = GrantColumns {
            pool: &pool,
            units_min: &units_min,
            units_max: &units_max,
            waited_ms: &waited_ms,
            expected_ms: &expected_ms,
            free_units: &free_units,
            extra: &extra,
        };
        P::ask(|policy| policy.grant(&columns))
    }

    fn parallelism(
        gpus: u32,
        degree: Vec<u32>,
        token_us: Vec<f64>,
        capacity_tokens: Vec<u64>,
        expected_tokens: Vec<u64>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = ParallelismColumns {
            gpus,
            degree: &degree,
            token_us: &token_us,
            capacity_tokens: &capacity_tokens,
            expected_tokens: &expected_tokens,
        };
        P::ask(|policy| policy.parallelism(&columns))
    }

    fn redundancy(
        wanted: Vec<u32>,
        finished: Vec<u32>,
        running: Vec<u32>,
        failed: Vec<u32>,
        running_ms: Vec<u64>,
        extra: Vec<f32>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = RedundancyColumns {
            wanted: &wanted,
            finished: &finished,
            running: &running,
            failed: &failed,
            running_ms: &running_ms,
            extra: &extra,
        };
        P::ask(|policy| policy.redundancy(&columns))
    }
}
