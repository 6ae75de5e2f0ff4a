//! Glue between the bindings of the world `placement` and [`PlacementPolicy`].

use std::marker::PhantomData;

use super::plugin::{Failure, phases};
use super::{Exported, lent};
use crate::{AssignColumns, MigrateColumns, PlacementPolicy, RouteColumns, WorkerColumns};

super::bindings!("guest-placement", "treadle_plugin::guest::placement::raw");

use raw::exports::treadle::policy::placement_policy as world;

/// Exports `placement-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PlacementPolicy> world::Guest for Guest<P> {
    fn assign(given: world::AssignColumns) -> Result<Vec<u32>, Failure> {
        let columns = AssignColumns {
            group: &given.group,
            tokens: &given.tokens,
            remaining_tokens: &given.remaining_tokens,
            last_worker: &given.last_worker,
            growth: &given.growth,
            tool_us: &given.tool_us,
            preferred_class: &given.preferred_class,
            workers: workers(&given.workers),
            extra: &given.extra,
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.assign(&columns)
        })
    }

    fn route(given: world::RouteColumns) -> Result<Vec<f64>, Failure> {
        let columns = RouteColumns {
            tokens: given.tokens,
            cached_tokens: &given.cached_tokens,
            workers: workers(&given.workers),
            extra: &given.extra,
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.route(&columns)
        })
    }

    fn migrate(given: world::MigrateColumns) -> Result<Vec<u32>, Failure> {
        let columns = MigrateColumns {
            phase: &phases(given.phase),
            at_worker: &given.at_worker,
            tokens: &given.tokens,
            remaining_tokens: &given.remaining_tokens,
            growth: &given.growth,
            tool_us: &given.tool_us,
            preferred_class: &given.preferred_class,
            extra: &given.extra,
            workers: workers(&given.workers),
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.migrate(&columns)
        })
    }
}

fn workers(given: &world::WorkerColumns) -> WorkerColumns<'_> {
    lent!(WorkerColumns of given {
        capacity_tokens, used_tokens, running, token_us, step_us, prefill_us, hardware_class,
        lockstep_group
    })
}
