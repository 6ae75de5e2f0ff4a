//! Process groups: who joined, and who is another process since.

use super::trainer::{Form, failed};
use super::*;

const JOIN: TrainerCall = TrainerCall::Join;

fn joined() -> Fleet {
    let mut fleet = Fleet::driven(2);
    for worker in [0, 1] {
        fleet.trainer(worker, &JOIN).expect("is there");
    }
    fleet
}

fn set_up(fleet: &mut Fleet, worker: u32, up: bool) {
    let engine = fleet.engines.get_mut(&WorkerId(worker));
    engine.expect("is there").up = up;
    fleet.notice(&Notice::WorkersChanged);
}

#[test]
fn an_engine_serves_again_once_it_has_joined() {
    let mut fleet = Fleet::driven(2);
    let worker = WorkerId(0);
    fleet.call(worker, &JOIN).expect("is there");
    assert!(fleet.is_fenced(0), "it waits for the others");
    let why = fleet.machine.state().why_fenced(worker).expect("is fenced");
    assert!(why.contains("process group"), "{why}");
    assert_eq!(fleet.holding(0).unanswered().expect("waits").call, "join");
    let twice = fleet.call(worker, &JOIN);
    assert_eq!(twice, Err(WeightsError::Calls(worker)));
    fleet.answer(worker, &Answer::Done);
    assert!(!fleet.is_fenced(0) && fleet.job().update.is_none());
    assert_eq!(fleet.job().group.members, BTreeSet::from([worker]));
    let cause = "404 Not Found".into();
    fleet.call(WorkerId(1), &JOIN).expect("is there");
    fleet.answer(WorkerId(1), &Answer::Refused { cause });
    assert!(!fleet.is_fenced(1) && fleet.job().group.members.len() == 1);
}

#[test]
fn an_engine_that_hangs_in_a_group_gets_no_steps_until_it_has_proven_itself() {
    let mut fleet = Fleet::driven(2);
    fleet.round("1", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "1") && fleet.has(1, "1"));
    fleet.call(WorkerId(0), &JOIN).expect("is there");
    fleet.answer(WorkerId(0), &failed());
    assert!(fleet.is_fenced(0) && !fleet.is_fenced(1));
    let why = fleet.machine.state().why_fenced(WorkerId(0));
    let why = why.expect("is fenced");
    assert!(why.contains("for ever: no answer within 600 s"), "{why}");
    fleet.run_until(|fleet| fleet.has(0, "1"));
}

#[test]
fn a_group_is_broken_by_an_engine_that_is_another_process() {
    let mut fleet = joined();
    assert_eq!(fleet.job().group.why_broken(), None);
    fleet.round("1", Form::Begun);
    fleet.run_until(|fleet| fleet.has(0, "1") && fleet.has(1, "1"));
    assert_eq!(fleet.job().group.why_broken(), None);
    // One that was only out of reach is still in it.
    set_up(&mut fleet, 1, false);
    let why = fleet.job().group.why_broken().expect("it is not there");
    assert!(why.contains("did not answer"), "{why}");
    set_up(&mut fleet, 1, true);
    fleet.run_until(|fleet| fleet.has(1, "1"));
    assert_eq!(fleet.job().group.why_broken(), None);
    set_up(&mut fleet, 1, false);
    fleet.engines.insert(WorkerId(1), Engine::fresh());
    fleet.notice(&Notice::WorkersChanged);
    fleet.run_until(|fleet| fleet.holding(1).phase == Phase::Torn);
    assert!(fleet.job().group.why_broken().is_some());
    // Also once it has loaded the version, until all have joined a new one.
    fleet.round("2", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
    assert!(fleet.job().group.why_broken().is_some());
    for worker in [0, 1] {
        fleet.trainer(worker, &JOIN).expect("is there");
    }
    let group = &fleet.job().group;
    assert_eq!((group.why_broken(), group.members.len()), (None, 2));
}

#[test]
fn an_answer_of_another_process_breaks_its_group() {
    let mut fleet = joined();
    fleet.round("1", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "1") && fleet.has(1, "1"));
    let engine = fleet.engines.get_mut(&WorkerId(0)).expect("is there");
    *engine = Engine::fresh();
    engine.restarted = true;
    fleet.go_on();
    let why = fleet.job().group.why_broken().expect("is broken");
    assert!(why.contains("is another process"), "{why}");
}
