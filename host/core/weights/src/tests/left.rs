//! Updates that a trainer leaves unfinished, and the next one.

use super::driven::{PART, PAUSE, end, failed};
use super::*;

#[test]
fn an_update_that_broke_off_is_ended_before_the_next_one_begins() {
    let mut fleet = Fleet::driven(1);
    for step in [PAUSE, TrainerCall::Begin] {
        fleet.trainer(0, &step).expect("goes on");
    }
    fleet.call(WorkerId(0), &PART).expect("has begun");
    fleet.answer(WorkerId(0), &failed());
    let why = fleet.machine.state().why_fenced(WorkerId(0));
    let why = why.expect("is torn");
    assert!(why.contains("no answer within 600 s"), "{why}");
    fleet.trainer(0, &PAUSE).expect("may pause");
    assert!(fleet.holding(0).may_be_open());
}

/// Its trainer died after the first engine had proven the version, and goes on with the next one.
#[test]
fn a_new_pause_lets_an_update_have_another_version() {
    let mut fleet = Fleet::driven(2);
    let load = |name: &str| TrainerCall::Load {
        name: Some(name.into()),
    };
    for step in [PAUSE, load("1")] {
        for worker in [0, 1] {
            fleet.trainer(worker, &step).expect("goes on");
        }
    }
    fleet.trainer(0, &TrainerCall::Resume).expect("is whole");
    fleet.run_until(|fleet| fleet.has(0, "1"));
    let refused = fleet.trainer(1, &load("2"));
    assert_eq!(refused, Err(WeightsError::OtherVersion("1".into())));
    fleet.round("2", false);
    fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
}

/// The same of a trainer that never pauses: treadle does it, once.
#[test]
fn a_trainer_that_never_pauses_goes_on_after_an_update_that_it_left_unfinished() {
    for first in [0, 1] {
        let mut fleet = Fleet::driven(2);
        for worker in [0, 1] {
            let begun = fleet.unpaused(worker, &TrainerCall::Begin);
            begun.expect("is there");
        }
        for step in [end("1"), TrainerCall::Resume] {
            fleet.trainer(0, &step).expect("goes on");
        }
        fleet.run_until(|fleet| fleet.has(0, "1"));
        let mixed = fleet.trainer(1, &end("2"));
        assert_eq!(mixed, Err(WeightsError::OtherVersion("1".into())));
        let load = TrainerCall::Load {
            name: Some("2".into()),
        };
        for worker in [first, 1 - first] {
            fleet.unpaused(worker, &load).expect("goes on");
            let resumed = fleet.trainer(worker, &TrainerCall::Resume);
            resumed.expect("is whole");
        }
        fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
        fleet.run_until(|fleet| fleet.job().update.is_none());
        let last = fleet.job().last.as_ref().expect("ended");
        assert_eq!(&*last.weights.name, "2");
    }
}
