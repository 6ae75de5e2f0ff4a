//! Every world: answers that are accepted and answers that are refused.

mod allocation;
mod eviction;
mod placement;
mod prediction;
mod priority;
mod reward;
mod shaping;

use treadle_model::World;
use treadle_policy_runtime::{InstanceOptions, PolicyFault};

use crate::fixture::{CONTEXT, engine};
use crate::scripted::scripted;

#[test]
fn a_policy_that_leaves_all_to_the_host_is_accepted_in_every_world() {
    let engine = engine();
    for &world in World::ALL {
        let inspection = engine.inspect(&scripted(world, &[])).unwrap();
        assert_eq!(inspection.world, world.as_str());
        assert!(inspection.smoke.is_empty(), "{world}");
        let module = engine.compile(&inspection.component).unwrap();
        assert_eq!(module.world(), world);
        let mut policy = module.instance(&InstanceOptions::default()).unwrap();
        assert_eq!(policy.description().name, "scripted");
        assert_eq!(policy.snapshot(&CONTEXT), Ok(Vec::new()));
        assert_eq!(policy.restore(&CONTEXT, b"learnt"), Ok(()));
        assert_eq!(policy.as_eviction_mut().is_some(), world == World::Eviction);
        assert_eq!(policy.as_reward_mut().is_some(), world == World::Reward);
        assert_eq!(policy.as_shaping_mut().is_some(), world == World::Shaping);
    }
}

#[test]
fn not_supported_is_no_fault_and_costs_no_restart() {
    let fault = PolicyFault::NotSupported;
    assert!(!fault.is_policys_fault());
    assert_eq!(fault.cause(), "not_supported");
}
