//! `assign`, `route` and `migrate`.

use treadle_model::World;
use treadle_plugin::Phase;
use treadle_policy_runtime::{
    AssignColumns, MigrateColumns, NO_CLASS, NOWHERE, PolicyFault, PolicyInstance, RouteColumns,
    WorkerColumns,
};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, f64s, list, refused, u32s};

const WORKERS: WorkerColumns<'_> = WorkerColumns {
    capacity_tokens: &[10, 20],
    used_tokens: &[5, 5],
    running: &[1, 2],
    token_us: &[-1.0, 20_000.0],
    step_us: &[-1.0, 60.0],
    prefill_us: &[-1.0, 66.0],
    hardware_class: &[0, NO_CLASS],
    lockstep_group: &[0, 0],
};
const PROGRAMS: AssignColumns<'_> = AssignColumns {
    group: &[1, 1, 2],
    tokens: &[5, 6, 7],
    remaining_tokens: &[-1.0, 3.0, 4.0],
    last_worker: &[NOWHERE, 0, 1],
    growth: &[-1.0, 1.5, 2.0],
    tool_us: &[-1.0, 0.0, 9_000.0],
    preferred_class: &[NO_CLASS, 0, 1],
    workers: WORKERS,
    extra: &[],
};
const PLACED: MigrateColumns<'_> = MigrateColumns {
    at_worker: &[0, 1],
    tokens: &[5, 6],
    remaining_tokens: &[-1.0, 3.0],
    phase: &[Phase::Reasoning, Phase::Acting],
    growth: &[-1.0, 1.5],
    tool_us: &[-1.0, 0.0],
    preferred_class: &[0, NO_CLASS],
    workers: WORKERS,
    extra: &[],
};

fn assign(policy: &mut PolicyInstance) -> Result<Vec<u32>, PolicyFault> {
    let policy = policy.as_placement_mut().unwrap();
    policy.assign(&CONTEXT, &PROGRAMS)
}

fn route(policy: &mut PolicyInstance) -> Result<Vec<f64>, PolicyFault> {
    let step = RouteColumns {
        tokens: 100,
        cached_tokens: &[0, 50],
        workers: WORKERS,
        extra: &[],
    };
    policy.as_placement_mut().unwrap().route(&CONTEXT, &step)
}

fn migrate(policy: &mut PolicyInstance) -> Result<Vec<u32>, PolicyFault> {
    let policy = policy.as_placement_mut().unwrap();
    policy.migrate(&CONTEXT, &PLACED)
}

fn answers(function: &'static str, workers: &[u32]) -> PolicyInstance {
    answering(World::Placement, function, list(u32s(workers)))
}

#[test]
fn programs_go_to_workers_that_there_are() {
    let mut policy = answers("assign", &[1, 0, 1]);
    assert_eq!(assign(&mut policy), Ok(vec![1, 0, 1]));
    refused(answers("assign", &[1, 2, 0]), "2 in row 1", assign);
    refused(answers("assign", &[1]), "1 values for 3 rows", assign);
    assert_eq!(migrate(&mut answers("migrate", &[1, 1])), Ok(vec![1, 1]));
    refused(answers("migrate", &[0, NOWHERE]), "in row 1", migrate);
}

#[test]
fn workers_are_scored_by_finite_numbers() {
    let routes = |scores: &[f64]| answering(World::Placement, "route", list(f64s(scores)));
    assert_eq!(route(&mut routes(&[0.5, 0.25])), Ok(vec![0.5, 0.25]));
    refused(routes(&[f64::INFINITY, 0.0]), "inf in row 0", route);
}

#[test]
fn the_caller_names_workers_that_there_are() {
    let mut policy = answering(World::Placement, "assign", Reply::NotSupported);
    let placement = policy.as_placement_mut().unwrap();
    let mut told = Vec::new();
    let mut note = |asked: Result<Vec<u32>, PolicyFault>| match asked {
        Err(PolicyFault::BadInput { detail }) => told.push(detail),
        other => panic!("{other:?}"),
    };
    note(placement.assign(
        &CONTEXT,
        &AssignColumns {
            workers: WorkerColumns::default(),
            ..PROGRAMS
        },
    ));
    note(placement.migrate(
        &CONTEXT,
        &MigrateColumns {
            at_worker: &[0, NOWHERE],
            ..PLACED
        },
    ));
    note(placement.assign(
        &CONTEXT,
        &AssignColumns {
            workers: WorkerColumns {
                running: &[1],
                ..WORKERS
            },
            ..PROGRAMS
        },
    ));
    for (detail, word) in told
        .iter()
        .zip(["no worker", "at_worker", "worker_running"])
    {
        assert!(detail.contains(word), "{detail}");
    }
}
