//! The world `allocation`: how much of a resource each consumer gets.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{ActionColumns, ParallelismColumns, PoolColumns, RunningColumns};

world! {
    /// A running policy of the world `allocation`.
    AllocationInstance: "allocation", Allocation, AllocationPre
}

use raw::exports::treadle::policy::allocation_policy as given;

/// Sizes of chunks of devices.
const SIZES: [u32; 4] = [1, 2, 4, 8];

calls! { AllocationInstance, treadle_policy_allocation_policy:
    /// The option with which each waiting action starts, -1 to let it wait.
    arrange(actions: ActionColumns) -> Vec<i32> {
        admit "arrange" [actions.len(), actions.pools.len(), actions.running.len()]
            |extra| actions.check(extra);
        ask Hot call_arrange(
            record!(given::ActionColumns of actions {
                pool, candidate, waited_us, option_start, option_units, option_us, option_load_us,
                extra,
            }),
            record!(given::PoolColumns of (actions.pools) { free_units, chunked, free_chunks }),
            record!(given::RunningColumns of (actions.running) { pool, units, left_us }),
        );
        check |options| check_arrangement(options, actions);
    }

    /// The number of workers to run for each degree of tensor parallelism.
    parallelism(degrees: ParallelismColumns) -> Vec<u32> {
        admit "parallelism" [degrees.len(), degrees.expected_tokens.len()] |_| degrees.check();
        ask Background call_parallelism(record!(given::ParallelismColumns of degrees {
            gpus, degree, token_us, step_us, prefill_us, capacity_tokens, expected_tokens,
            prompt_tokens, growth, tool_us,
        }));
        check |counts| check_parallelism(counts, degrees);
    }
}

fn check_arrangement(options: &[i32], actions: &ActionColumns<'_>) -> Check {
    let expected = "-1, or an option of the row";
    answers::each(
        "options",
        options,
        actions.len(),
        expected,
        |row, option| {
            option == -1 || usize::try_from(option).is_ok_and(|at| at < actions.options(row).len())
        },
    )?;
    let mut taken = vec![[0_u64; SIZES.len()]; actions.pools.len()];
    for (row, &option) in options.iter().enumerate() {
        let Ok(option) = usize::try_from(option) else {
            continue;
        };
        let pool = actions.pool[row] as usize;
        let units = actions.option_units[actions.options(row).start + option];
        let told = |what: String| Err(format!("options: {what} from pool {pool} by row {row}"));
        let Some(chunks) = actions.pools.chunks(pool) else {
            taken[pool][0] += u64::from(units);
            let (taken, free) = (taken[pool][0], actions.pools.free_units[pool]);
            if taken > u64::from(free) {
                return told(format!("{taken} units of {free}"));
            }
            continue;
        };
        let Some(chunk) = SIZES.into_iter().find(|size| *size >= units) else {
            return told(format!("a chunk of {units}, expected at most 8"));
        };
        if units > 0 && !fits(chunk, &mut taken[pool], chunks) {
            return told(format!("a chunk of {chunk} too many"));
        }
    }
    Ok(())
}

/// Takes a chunk. Chunks are only split in halves, never joined; so for each size, the chunks taken
/// of that size and above must fit into the free ones of that size and above, which is enough
/// because sizes are powers of two.
fn fits(chunk: u32, taken: &mut [u64; SIZES.len()], free: [u32; SIZES.len()]) -> bool {
    let mut there = 0;
    for level in (0..SIZES.len()).rev() {
        there += u64::from(free[level]) * u64::from(SIZES[level]);
        if SIZES[level] <= chunk {
            taken[level] += u64::from(chunk);
            if taken[level] > there {
                return false;
            }
        }
    }
    true
}

fn check_parallelism(counts: &[u32], degrees: &ParallelismColumns<'_>) -> Check {
    answers::length("workers", counts.len(), degrees.len())?;
    let pairs = counts.iter().zip(degrees.degree);
    // Wide enough for any number of rows and counts.
    let gpus: u128 = pairs
        .map(|(&count, &degree)| u128::from(count) * u128::from(degree))
        .sum();
    if gpus > u128::from(degrees.gpus) {
        return Err(format!(
            "workers: they need {gpus} devices, expected at most {}",
            degrees.gpus
        ));
    }
    // A degree of 0 needs no device, so the sum does not limit its count.
    answers::each(
        "workers",
        counts,
        degrees.len(),
        "at most `gpus`",
        |_, n| n <= degrees.gpus,
    )
}
