//! `retain`, of the world `eviction-retention`.

use treadle_model::World;
use treadle_policy_runtime::{Fate, PolicyFault, PolicyInstance, RetentionColumns};

use crate::fixture::{CONTEXT, engine, resolve};
use crate::scripted::{Reply, list, refused, running, scripted_of, u8s};

const WORLD: &str = "eviction-retention";

fn upload(reply: Reply) -> Vec<u8> {
    let (resolve, package) = resolve(str::to_owned);
    scripted_of(&resolve, package, WORLD, &[("retain", reply)])
}

fn answers(reply: Reply) -> PolicyInstance {
    running(World::Eviction, &upload(reply))
}

fn retain(policy: &mut PolicyInstance) -> Result<Vec<Fate>, PolicyFault> {
    let programs = RetentionColumns {
        tokens: &[1, 2, 3, 4],
        phase_ms: &[5, 6, 7, 8],
        idle_ms: &[9, 10, 11, 12],
        soonest_ms: &[1, 2, 3, 4],
        back_ms: &[u64::MAX; 4],
        moved_ms: &[u64::MAX; 4],
        prefill_ms: &[0; 4],
        steps: &[1; 4],
        extra: &[0.5; 8],
    };
    let policy = policy.as_eviction_mut().unwrap();
    policy.retain(&CONTEXT, 5, -7, 9, &programs)
}

#[test]
fn a_code_for_each_program_gives_its_cache_action() {
    let mut policy = answers(list(u8s(&[3, 0, 2, 1])));
    let fates = [Fate::Drop, Fate::Keep, Fate::Migrate, Fate::Offload];
    assert_eq!(retain(&mut policy), Ok(fates.into()));
    refused(answers(list(u8s(&[0, 1]))), "2 values for 4 rows", retain);
    let unknown = "4 in row 1, expected a code from 0 to 3";
    refused(answers(list(u8s(&[0, 4, 0, 0]))), unknown, retain);
}

#[test]
fn what_is_left_to_the_host_costs_no_restart() {
    let (resolve, package) = resolve(str::to_owned);
    let smaller = scripted_of(&resolve, package, "eviction", &[]);
    for mut policy in [
        answers(Reply::NotSupported),
        running(World::Eviction, &smaller),
    ] {
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
    let fault = policy.retain(&CONTEXT, 0, 0, 0, &programs).unwrap_err();
    assert!(matches!(&fault, PolicyFault::BadInput { detail } if detail.contains("phase_ms")));
}

#[test]
fn an_upload_of_the_larger_world_is_known_under_the_smaller_and_tried_out() {
    let inspection = engine().inspect(&upload(Reply::NotSupported)).unwrap();
    assert_eq!(inspection.world, "eviction");
    let interface = "treadle:policy/retention-policy@1.1.0".to_owned();
    assert!(inspection.exports.contains(&interface));

    let refusal = engine().inspect(&upload(list(u8s(&[0])))).unwrap_err();
    assert_eq!(refusal.code, "smoke-bad-output");
    assert!(refusal.place.contains("call retain"), "{refusal}");
}

#[test]
fn an_interface_of_another_shape_is_refused() {
    let (resolve, package) =
        resolve(|text| text.replace("wanted-tokens: u64", "wanted-tokens: u32"));
    let module = scripted_of(&resolve, package, WORLD, &[]);
    let refusal = engine().inspect(&module).unwrap_err();
    assert_eq!(refusal.code, "world-mismatch");
    assert!(refusal.what.contains(WORLD), "{refusal}");
}
