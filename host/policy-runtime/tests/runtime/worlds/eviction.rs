//! `drop-order`; the other functions are asked by most tests here.

use treadle_model::World;
use treadle_policy_runtime::{PolicyFault, PolicyInstance, ServiceColumns};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, f64s, list, refused};

fn drop_order(policy: &mut PolicyInstance) -> Result<Vec<f64>, PolicyFault> {
    let services = ServiceColumns {
        bytes: &[1, 2],
        idle_ms: &[3, 4],
        load_ms: &[5, 6],
        uses: &[7, 8],
        extra: &[0.5, 0.5],
    };
    let policy = policy.as_eviction_mut().unwrap();
    policy.drop_order(&CONTEXT, &services)
}

fn answers(reply: Reply) -> PolicyInstance {
    answering(World::Eviction, "drop-order", reply)
}

#[test]
fn services_are_scored_by_finite_numbers() {
    let mut policy = answers(list(f64s(&[1.5, -2.0])));
    assert_eq!(drop_order(&mut policy), Ok(vec![1.5, -2.0]));
    refused(
        answers(list(f64s(&[1.5]))),
        "1 values for 2 rows",
        drop_order,
    );
    let infinite = f64s(&[1.5, f64::NEG_INFINITY]);
    refused(answers(list(infinite)), "-inf in row 1", drop_order);
}

#[test]
fn what_is_left_to_the_host_costs_no_restart() {
    let mut policy = answers(Reply::NotSupported);
    assert_eq!(drop_order(&mut policy), Err(PolicyFault::NotSupported));
    assert_eq!(policy.restarts(), 0);
}
