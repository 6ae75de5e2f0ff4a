//! The world `placement`: which worker a program goes to. Workers are rows of the worker
//! columns of the same call.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
use super::host::phases;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{
    AssignColumns, MigrateColumns, NO_CLASS, NO_GROUP, NOWHERE, RouteColumns, WorkerColumns,
};

world! {
    /// A running policy of the world `placement`.
    PlacementInstance: "placement", Placement, PlacementPre
}

use raw::exports::treadle::policy::placement_policy as given;

calls! { PlacementInstance, treadle_policy_placement_policy:
    /// A worker for each program that is about to be placed.
    assign(programs: AssignColumns) -> Vec<u32> {
        before check_workers("last_worker", programs.last_worker, &programs.workers, true);
        admit "assign" [programs.len(), programs.workers.len()] |extra| programs.check(extra);
        ask Hot call_assign(record!(given::AssignColumns of programs {
            group, tokens, remaining_tokens, last_worker, growth, tool_us, preferred_class, extra;
            workers: workers(&programs.workers)
        }));
        check |places| answers::rows_of("workers", places, programs.len(), programs.workers.len());
    }

    /// A score of each worker for one step; the highest that has room takes it.
    route(step: RouteColumns) -> Vec<f64> {
        admit "route" [step.len()] |extra| step.check(extra);
        ask Hot call_route(record!(given::RouteColumns of step {
            cached_tokens, tokens, extra; workers: workers(&step.workers)
        }));
        check |scores| answers::finite("scores", scores, step.len());
    }

    /// The worker on which each placed program should be; its own to stay.
    migrate(programs: MigrateColumns) -> Vec<u32> {
        before check_workers("at_worker", programs.at_worker, &programs.workers, false);
        admit "migrate" [programs.len(), programs.workers.len()] |extra| programs.check(extra);
        ask Background call_migrate(record!(given::MigrateColumns of programs {
            at_worker, tokens, remaining_tokens, growth, tool_us, preferred_class, extra;
            phase: &phases(programs.phase), workers: workers(&programs.workers)
        }));
        check |places| answers::rows_of("workers", places, programs.len(), programs.workers.len());
    }
}

fn workers<'a>(workers: &WorkerColumns<'a>) -> given::WorkerColumns<'a> {
    record!(given::WorkerColumns of workers {
        capacity_tokens, used_tokens, running, token_us, step_us, prefill_us, hardware_class,
        lockstep_group
    })
}

/// Checks the caller's rows of workers: there is at least one, and all named rows exist.
fn check_workers(
    column: &str,
    rows: &[u32],
    workers: &WorkerColumns<'_>,
    or_nowhere: bool,
) -> Result<(), PolicyFault> {
    let known = |&row: &u32| (row as usize) < workers.len() || (or_nowhere && row == NOWHERE);
    let detail = if workers.is_empty() && !rows.is_empty() {
        "no worker to choose from; retry once there is one".to_owned()
    } else if let Some(at) = rows.iter().position(|row| !known(row)) {
        format!(
            "column {column} names worker {} of {} in row {at}",
            rows[at],
            workers.len()
        )
    } else {
        return Ok(());
    };
    Err(PolicyFault::BadInput { detail })
}
