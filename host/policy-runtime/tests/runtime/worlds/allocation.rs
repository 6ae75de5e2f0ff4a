//! `grant` and `parallelism`.

use treadle_model::World;
use treadle_policy_runtime::{GrantColumns, ParallelismColumns, PolicyFault, PolicyInstance};

use crate::fixture::CONTEXT;
use crate::scripted::{answering, list, refused, u32s};

fn grant(policy: &mut PolicyInstance) -> Result<Vec<u32>, PolicyFault> {
    let actions = GrantColumns {
        pool: &[0, 1, 1],
        units_min: &[2, 1, 1],
        units_max: &[4, 9, 9],
        waited_ms: &[0, 0, 0],
        expected_ms: &[-1.0, 5.0, 5.0],
        free_units: &[8, 10],
        extra: &[],
    };
    let policy = policy.as_allocation_mut().unwrap();
    policy.grant(&CONTEXT, &actions)
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

#[test]
fn grants_keep_to_the_actions_bounds_and_to_what_is_free() {
    for good in [[4, 9, 1], [0, 0, 0], [2, 5, 5]] {
        assert_eq!(grant(&mut answers("grant", &good)), Ok(good.to_vec()));
    }
    refused(answers("grant", &[1, 0, 0]), "1 in row 0", grant);
    refused(answers("grant", &[5, 0, 0]), "5 in row 0", grant);
    refused(
        answers("grant", &[2, 9, 2]),
        "11 from pool 1 by row 2",
        grant,
    );
    refused(answers("grant", &[2, 2]), "2 values for 3 rows", grant);
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
