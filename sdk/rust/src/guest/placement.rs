//! Glue between the bindings of the world `placement` and [`PlacementPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{AssignColumns, MigrateColumns, PlacementPolicy, RouteColumns, WorkerColumns};

super::bindings!("guest-placement", "treadle_plugin::guest::placement::raw");

use raw::exports::treadle::policy::placement_policy as world;

/// Exports `placement-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PlacementPolicy> world::Guest for Guest<P> {
    fn assign(
        group: Vec<u64>,
        tokens: Vec<u64>,
        remaining_tokens: Vec<f64>,
        last_worker: Vec<u32>,
        worker_capacity_tokens: Vec<u64>,
        worker_used_tokens: Vec<u64>,
        worker_running: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = AssignColumns {
            group: &group,
            tokens: &tokens,
            remaining_tokens: &remaining_tokens,
            last_worker: &last_worker,
            workers: WorkerColumns {
                capacity_tokens: &worker_capacity_tokens,
                used_tokens: &worker_used_tokens,
                running: &worker_running,
            },
            extra: &extra,
        };
        P::ask(|policy| policy.assign(&columns))
    }

    fn route(
        tokens: u64,
        cached_tokens: Vec<u64>,
        worker_capacity_tokens: Vec<u64>,
        worker_used_tokens: Vec<u64>,
        worker_running: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<f64>, Failure> {
        let columns = RouteColumns {
            tokens,
            cached_tokens: &cached_tokens,
            workers: WorkerColumns {
                capacity_tokens: &worker_capacity_tokens,
                used_tokens: &worker_used_tokens,
                running: &worker_running,
            },
            extra: &extra,
        };
        P::ask(|policy| policy.route(&columns))
    }

    fn migrate(
        at_worker: Vec<u32>,
        tokens: Vec<u64>,
        remaining_tokens: Vec<f64>,
        acting: Vec<u8>,
        worker_capacity_tokens: Vec<u64>,
        worker_used_tokens: Vec<u64>,
        worker_running: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = MigrateColumns {
            at_worker: &at_worker,
            tokens: &tokens,
            remaining_tokens: &remaining_tokens,
            acting: &acting,
            workers: WorkerColumns {
                capacity_tokens: &worker_capacity_tokens,
                used_tokens: &worker_used_tokens,
                running: &worker_running,
            },
            extra: &extra,
        };
        P::ask(|policy| policy.migrate(&columns))
    }
}
