//! The world `placement`: which worker a program goes to. Workers are rows of the worker
//! columns of the same call.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{record, world};
use super::host::phases;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{AssignColumns, MigrateColumns, NOWHERE, RouteColumns, WorkerColumns};

world! {
    /// A running policy of the world `placement`.
    PlacementInstance: "placement", Placement, PlacementPre
}

use raw::exports::treadle::policy::placement_policy as given;

impl PlacementInstance {
    /// A worker for each program that is about to be placed.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn assign(
        &mut self,
        context: &CallContext,
        programs: &AssignColumns<'_>,
    ) -> Result<Vec<u32>, PolicyFault> {
        check_workers("last_worker", programs.last_worker, &programs.workers, true)?;
        self.0.admit(
            "assign",
            &[programs.len(), programs.workers.len()],
            |extra| programs.check(extra),
        )?;
        let columns = given::AssignColumns {
            group: programs.group,
            tokens: programs.tokens,
            remaining_tokens: programs.remaining_tokens,
            last_worker: programs.last_worker,
            growth: programs.growth,
            tool_us: programs.tool_us,
            workers: workers(&programs.workers),
            extra: programs.extra,
        };
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_placement_policy()
                    .call_assign(store, columns)
            },
            |workers| answers::rows_of("workers", workers, programs.len(), programs.workers.len()),
        )
    }

    /// A score of each worker for one step; the highest that has room takes it.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn route(
        &mut self,
        context: &CallContext,
        workers: &RouteColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit("route", &[workers.len()], |extra| workers.check(extra))?;
        let columns = given::RouteColumns {
            cached_tokens: workers.cached_tokens,
            tokens: workers.tokens,
            workers: self::workers(&workers.workers),
            extra: workers.extra,
        };
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_placement_policy()
                    .call_route(store, columns)
            },
            |scores| answers::finite("scores", scores, workers.len()),
        )
    }

    /// The worker on which each placed program should be; its own to stay.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn migrate(
        &mut self,
        context: &CallContext,
        programs: &MigrateColumns<'_>,
    ) -> Result<Vec<u32>, PolicyFault> {
        check_workers("at_worker", programs.at_worker, &programs.workers, false)?;
        self.0.admit(
            "migrate",
            &[programs.len(), programs.workers.len()],
            |extra| programs.check(extra),
        )?;
        let columns = given::MigrateColumns {
            at_worker: programs.at_worker,
            tokens: programs.tokens,
            remaining_tokens: programs.remaining_tokens,
            phase: &phases(programs.phase),
            growth: programs.growth,
            tool_us: programs.tool_us,
            workers: workers(&programs.workers),
            extra: programs.extra,
        };
        self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_placement_policy()
                    .call_migrate(store, columns)
            },
            |workers| answers::rows_of("workers", workers, programs.len(), programs.workers.len()),
        )
    }
}

fn workers<'a>(workers: &WorkerColumns<'a>) -> given::WorkerColumns<'a> {
    record!(given::WorkerColumns of workers { capacity_tokens, used_tokens, running, token_us, step_us, prefill_us })
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
