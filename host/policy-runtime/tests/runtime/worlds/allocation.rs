//! `arrange` and `parallelism`.

use treadle_model::World;
use treadle_policy_runtime::{
    ActionColumns, ParallelismColumns, PolicyFault, PolicyInstance, PoolColumns, RunningColumns,
};

use crate::fixture::CONTEXT;
use crate::scripted::{answering, list, refused, u32s};

/// Two rows for four plain units, three for a chunk of 4, one of 2 and two of 1.
const ACTIONS: ActionColumns<'_> = ActionColumns {
    pool: &[0, 0, 1, 1, 1],
    candidate: &[1, 1, 1, 1, 0],
    waited_us: &[5, 4, 3, 2, 1],
    option_start: &[0, 2, 4, 7, 10, 11],
    option_units: &[1, 3, 1, 2, 1, 3, 8, 1, 2, 9, 2],
    option_us: &[-1.0; 11],
    option_load_us: &[0.0; 11],
    pools: PoolColumns {
        free_units: &[4, 8],
        chunked: &[0, 1],
        free_chunks: &[0, 0, 0, 0, 2, 1, 1, 0],
    },
    running: RunningColumns {
        pool: &[1],
        units: &[8],
        left_us: &[7],
    },
    extra: &[],
};

fn arrange(policy: &mut PolicyInstance) -> Result<Vec<i32>, PolicyFault> {
    let policy = policy.as_allocation_mut().unwrap();
    policy.arrange(&CONTEXT, &ACTIONS)
}

fn parallelism(policy: &mut PolicyInstance) -> Result<Vec<u32>, PolicyFault> {
    let degrees = ParallelismColumns {
        gpus: 8,
        degree: &[0, 1, 4],
        token_us: &[1.0, 9.0, 4.0],
        step_us: &[-1.0; 3],
        prefill_us: &[-1.0; 3],
        capacity_tokens: &[0, 100, 500],
        expected_tokens: &[50; 7],
        prompt_tokens: 10,
        growth: 1.0,
        tool_us: -1.0,
    };
    let policy = policy.as_allocation_mut().unwrap();
    policy.parallelism(&CONTEXT, &degrees)
}

fn answers(function: &'static str, counts: &[u32]) -> PolicyInstance {
    answering(World::Allocation, function, list(u32s(counts)))
}

fn arranges(options: &[i32]) -> PolicyInstance {
    let options: Vec<u32> = options
        .iter()
        .map(|option| option.cast_unsigned())
        .collect();
    answers("arrange", &options)
}

#[test]
fn what_starts_is_an_option_and_fits_into_what_is_free() {
    for good in [
        [1, 0, 0, 1, 0],
        [-1; 5],
        // Three devices take the chunk of 4, two the one of 2.
        [0, 1, 1, 0, 0],
        [0, 1, 1, 1, -1],
    ] {
        assert_eq!(arrange(&mut arranges(&good)), Ok(good.to_vec()));
    }
    for (wrong, told) in [
        ([2, 0, 0, 0, 0], "2 in row 0"),
        ([-2, 0, 0, 0, 0], "-2 in row 0"),
        ([0, 0, 0, 0, 1], "1 in row 4"),
        ([1, 1, 0, 0, 0], "5 units of 4 from pool 0 by row 1"),
        // Two chunks of 1 do not make one of 2.
        (
            [0, 0, 1, 1, 0],
            "a chunk of 2 too many from pool 1 by row 4",
        ),
        (
            [0, 0, 2, 0, 0],
            "a chunk of 8 too many from pool 1 by row 2",
        ),
        (
            [0, 0, 0, 2, 0],
            "a chunk of 9, expected at most 8 from pool 1",
        ),
    ] {
        refused(arranges(&wrong), told, arrange);
    }
    refused(arranges(&[0, 0]), "2 values for 5 rows", arrange);
}

#[test]
fn columns_that_contradict_each_other_are_not_asked_about() {
    for (wrong, column) in [
        (
            ActionColumns {
                pool: &[0, 0, 1, 1, 2],
                ..ACTIONS
            },
            "pool",
        ),
        (
            ActionColumns {
                option_start: &[0, 2, 4, 7, 11],
                ..ACTIONS
            },
            "option_start",
        ),
        (
            ActionColumns {
                option_start: &[0, 2, 4, 7, 10, 12],
                ..ACTIONS
            },
            "option_start",
        ),
        (
            ActionColumns {
                option_start: &[0, 4, 2, 7, 10, 11],
                ..ACTIONS
            },
            "option_start",
        ),
        (
            ActionColumns {
                option_start: &[0, 3, 4, 7, 10, 11],
                ..ACTIONS
            },
            "option_units",
        ),
        (
            ActionColumns {
                option_us: &[0.0; 10],
                ..ACTIONS
            },
            "option_us",
        ),
        (
            ActionColumns {
                running: RunningColumns {
                    pool: &[2],
                    ..ACTIONS.running
                },
                ..ACTIONS
            },
            "running_pool",
        ),
        (
            ActionColumns {
                pools: PoolColumns {
                    free_chunks: &[0; 4],
                    ..ACTIONS.pools
                },
                ..ACTIONS
            },
            "free_chunks",
        ),
    ] {
        refused_column(&wrong, column);
    }
}

/// The error names the column, and the policy is not called.
fn refused_column(wrong: &ActionColumns<'_>, column: &str) {
    let mut policy = arranges(&[-1; 5]);
    let policy = policy.as_allocation_mut().unwrap();
    let Err(PolicyFault::BadInput { detail }) = policy.arrange(&CONTEXT, wrong) else {
        panic!("{column} is not refused");
    };
    assert!(detail.contains(&format!("column {column} ")), "{detail}");
}

#[test]
fn workers_of_all_degrees_fit_the_devices() {
    let parallel = |counts: &[u32]| answers("parallelism", counts);
    assert_eq!(parallelism(&mut parallel(&[0, 4, 1])), Ok(vec![0, 4, 1]));
    refused(parallel(&[0, 5, 1]), "9 devices", parallelism);
    refused(parallel(&[0, u32::MAX, u32::MAX]), "devices", parallelism);
    refused(parallel(&[9, 0, 0]), "9 in row 0", parallelism);
    refused(parallel(&[1]), "1 values for 3 rows", parallelism);
}
