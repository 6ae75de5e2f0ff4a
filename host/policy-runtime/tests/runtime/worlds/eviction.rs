//! `retain`; most other tests call the other functions.

use treadle_model::World;
use treadle_policy_runtime::{CacheAction, PolicyFault, PolicyInstance, RetentionColumns};

use crate::fixture::{CONTEXT, engine};
use crate::scripted::{Reply, answering, list, refused, running, scripted, u8s};

fn answers(reply: Reply) -> PolicyInstance {
    answering(World::Eviction, "retain", reply)
}

fn retain(policy: &mut PolicyInstance) -> Result<Vec<CacheAction>, PolicyFault> {
    let programs = RetentionColumns {
        capacity_tokens: 5,
        free_tokens: -7,
        wanted_tokens: 9,
        tokens: &[1, 2, 3, 4],
        phase_ms: &[5, 6, 7, 8],
        idle_ms: &[9, 10, 11, 12],
        soonest_ms: &[1, 2, 3, 4],
        back_ms: &[u64::MAX; 4],
        moved_ms: &[u64::MAX; 4],
        prefill_ms: &[0; 4],
        steps: &[1; 4],
        extra: &[],
    };
    let policy = policy.as_eviction_mut().unwrap();
    policy.retain(&CONTEXT, &programs)
}

#[test]
fn each_program_gets_a_cache_action() {
    let mut policy = answers(list(u8s(&[3, 0, 2, 1])));
    let actions = [
        CacheAction::Drop,
        CacheAction::Keep,
        CacheAction::Migrate,
        CacheAction::Offload,
    ];
    assert_eq!(retain(&mut policy), Ok(actions.into()));
    refused(answers(list(u8s(&[0, 1]))), "2 values for 4 rows", retain);
    refused(answers(list(u8s(&[0, 4, 0, 0]))), "discriminant", retain);
}

#[test]
fn what_is_left_to_the_host_costs_no_restart() {
    let undescribed = running(World::Eviction, &scripted(World::Eviction, &[]));
    for mut policy in [answers(Reply::NotSupported), undescribed] {
        assert_eq!(retain(&mut policy), Err(PolicyFault::NotSupported));
        assert_eq!(policy.restarts(), 0);
    }
}

#[test]
fn columns_of_unequal_length_are_not_put_to_it() {
    let mut policy = answers(list(u8s(&[])));
    let programs = RetentionColumns {
        tokens: &[1],
        ..RetentionColumns::default()
    };
    let policy = policy.as_eviction_mut().unwrap();
    let fault = policy.retain(&CONTEXT, &programs).unwrap_err();
    assert!(matches!(&fault, PolicyFault::BadInput { detail } if detail.contains("phase_ms")));
}

#[test]
fn the_trial_run_asks_what_is_described() {
    let upload = scripted(World::Eviction, &[("retain", list(u8s(&[0])))]);
    let refusal = engine().inspect(&upload).unwrap_err();
    assert_eq!(refusal.code, "smoke-bad-output");
    assert!(refusal.place.contains("call retain"), "{refusal}");
}
