//! The policies that new projects begin with, of every world: they compile, and they answer whatever
//! the harness can think of.

#![allow(missing_docs, unreachable_pub, clippy::pedantic)]

use treadle_plugin::harness::Harness;

#[path = "../template/policies/allocation.rs"]
mod allocation;
#[path = "../template/policies/eviction.rs"]
mod eviction;
#[path = "../template/policies/placement.rs"]
mod placement;
#[path = "../template/policies/prediction.rs"]
mod prediction;
#[path = "../template/policies/priority.rs"]
mod priority;
#[path = "../template/policies/reward.rs"]
mod reward;
#[path = "../template/policies/shaping.rs"]
mod shaping;

#[test]
fn templates_answer_whatever_they_are_asked() {
    let harness = Harness::new("{}");
    harness.allocation::<allocation::FirstComeFirstServed>();
    harness.eviction::<eviction::LongestActing>();
    harness.placement::<placement::MostRoom>();
    harness.prediction::<prediction::RunningMean>();
    harness.priority::<priority::ShortestRemaining>();
    harness.reward::<reward::ExactMatch>();
    harness.shaping::<shaping::ShortestOfMore>();
}
