//! Groups of training runs, shaped by bound policies.

use super::*;
use treadle_core::training::{
    Curtailed, GroupSize, ShapedGroups, ShapedMembers, ShapingAnswer, ShapingPurpose,
    ShapingQuestion,
};

/// Policies, built by `make guests`.
const DARTS: &[u8] = include_bytes!("../../../../../target/guests/darts_shaping.wasm");
const UNIFORM: &[u8] = include_bytes!("../../../../../target/guests/uniform_shaping.wasm");

fn bind(evaluator: &mut PolicyEvaluator, scope: &Scope, policy: BoundPolicy) {
    evaluator
        .change(World::Shaping, scope, Change::Activate(Some(policy)), 0)
        .expect("it can be changed");
}

/// A group of two that samples three. Two of its members have ended.
fn question(purpose: ShapingPurpose) -> ShapingQuestion {
    ShapingQuestion {
        job: "run".into(),
        purpose,
        groups: ShapedGroups {
            key: vec!["a".into()],
            prompt: vec![7],
            domain: vec![0],
            size: vec![2],
            size_max: vec![4],
            sampled: vec![3],
            postponed: vec![0],
        },
        members: ShapedMembers {
            program: ["p1", "p2", "p3"].map(Box::from).into(),
            group: vec![0; 3],
            state: vec![1, 0, 1],
            tokens: vec![10, 20, 30],
            turns: vec![1, 2, 3],
            elapsed_ms: vec![100; 3],
            lag: vec![0; 3],
            batch_groups: 1,
            ready_groups: 0,
        },
    }
}

#[test]
fn the_policy_of_the_job_shapes_its_groups() {
    let mut evaluator = unhurried();
    let size = question(ShapingPurpose::Size);
    assert_eq!(evaluator.shape(&size, 5), None);
    bind(&mut evaluator, &Scope::of("other"), loaded("other", DARTS));
    assert_eq!(evaluator.shape(&size, 5), None);
    bind(
        &mut evaluator,
        &Scope::of("run"),
        loaded("uniform", UNIFORM),
    );
    let (policy, answer) = evaluator.shape(&size, 5).expect("an answer");
    assert_eq!(&*policy.0, "uniform");
    let group = Box::from("a");
    let sizes = vec![GroupSize { group, members: 3 }];
    assert_eq!(answer, ShapingAnswer::Sizes(sizes));
    let curtail = question(ShapingPurpose::Curtail);
    let (_, answer) = evaluator.shape(&curtail, 5).expect("an answer");
    let ended = vec![Curtailed {
        group: "a".into(),
        program: "p2".into(),
        tokens: 20,
        turns: 2,
        again: false,
    }];
    assert_eq!(answer, ShapingAnswer::Curtailed(ended));
    let select = question(ShapingPurpose::Select);
    assert_eq!(evaluator.shape(&select, 5), None, "it does not select");
    assert_eq!(evaluator.statistics().faults, 0);
}

#[test]
fn the_selected_members_are_named() {
    let mut evaluator = unhurried();
    bind(&mut evaluator, &Scope::Everyone, loaded("darts", DARTS));
    let select = question(ShapingPurpose::Select);
    let (_, answer) = evaluator.shape(&select, 5).expect("an answer");
    let ShapingAnswer::Selected(groups) = answer else {
        panic!("{answer:?}");
    };
    let programs: Vec<&str> = groups[0]
        .programs
        .iter()
        .map(|program| &**program)
        .collect();
    assert_eq!((&*groups[0].group, programs), ("a", vec!["p1", "p3"]));
}
