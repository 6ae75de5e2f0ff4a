//! The world `allocation`: how much of a resource each consumer gets.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{record, world};
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{GrantColumns, ParallelismColumns};

world! {
    /// A running policy of the world `allocation`.
    AllocationInstance: "allocation", Allocation, AllocationPre
}

use raw::exports::treadle::policy::allocation_policy as given;

impl AllocationInstance {
    /// Units for each queued action, 0 to let it wait.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn grant(
        &mut self,
        context: &CallContext,
        actions: &GrantColumns<'_>,
    ) -> Result<Vec<u32>, PolicyFault> {
        self.0.admit(
            "grant",
            &[actions.len(), actions.free_units.len()],
            |extra| actions.check(extra),
        )?;
        let columns = record!(given::GrantColumns of actions {
            pool, units_min, units_max, waited_ms, expected_ms, free_units, extra,
        });
        self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_allocation_policy()
                    .call_grant(store, columns)
            },
            |units| check_grant(units, actions),
        )
    }

    /// How many workers of each degree of tensor parallelism to run.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn parallelism(
        &mut self,
        context: &CallContext,
        degrees: &ParallelismColumns<'_>,
    ) -> Result<Vec<u32>, PolicyFault> {
        self.0.admit(
            "parallelism",
            &[degrees.len(), degrees.expected_tokens.len()],
            |_| degrees.check(),
        )?;
        let columns = record!(given::ParallelismColumns of degrees {
            gpus, degree, token_us, step_us, prefill_us, capacity_tokens, expected_tokens,
            prompt_tokens, growth, tool_us,
        });
        self.0.ask(
            context,
            Urgency::Background,
            |guest, store| {
                guest
                    .treadle_policy_allocation_policy()
                    .call_parallelism(store, columns)
            },
            |counts| check_parallelism(counts, degrees),
        )
    }
}

fn check_grant(units: &[u32], actions: &GrantColumns<'_>) -> Check {
    let expected = "0, or from units_min to units_max";
    answers::each("units", units, actions.len(), expected, |row, units| {
        units == 0 || (actions.units_min[row]..=actions.units_max[row]).contains(&units)
    })?;
    let mut granted = vec![0_u64; actions.free_units.len()];
    for (row, &units) in units.iter().enumerate() {
        let pool = actions.pool[row] as usize;
        granted[pool] += u64::from(units);
        let free = actions.free_units[pool];
        if granted[pool] > u64::from(free) {
            return Err(format!(
                "units: {} from pool {pool} by row {row}, expected at most its {free}",
                granted[pool]
            ));
        }
    }
    Ok(())
}

fn check_parallelism(counts: &[u32], degrees: &ParallelismColumns<'_>) -> Check {
    answers::length("workers", counts.len(), degrees.len())?;
    let pairs = counts.iter().zip(degrees.degree);
    // Wide enough for any number of rows of any counts.
    let gpus: u128 = pairs
        .map(|(&count, &degree)| u128::from(count) * u128::from(degree))
        .sum();
    if gpus > u128::from(degrees.gpus) {
        return Err(format!(
            "workers: they need {gpus} devices, expected at most {}",
            degrees.gpus
        ));
    }
    // A degree of 0 needs no device, so the sum does not bound its count.
    answers::each(
        "workers",
        counts,
        degrees.len(),
        "at most `gpus`",
        |_, n| n <= degrees.gpus,
    )
}
