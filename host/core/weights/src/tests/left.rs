//! Updates that a trainer leaves unfinished, and the next one.

use super::trainer::{Form, PART, PAUSE, end, failed};
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
    fleet.round("2", Form::Whole);
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

/// Engines that got the same first bucket have equal checksums, and no call shows the end.
#[test]
fn a_trainer_that_died_between_buckets_can_not_resume_a_half() {
    let mut fleet = Fleet::driven(2);
    fleet.round("1", Form::Buckets);
    fleet.run_until(|fleet| fleet.has(0, "1") && fleet.has(1, "1"));
    (fleet.rounds, fleet.in_buckets) = (2, true);
    let last = |name: &str| TrainerCall::Part {
        name: Some(name.into()),
    };
    let both = |fleet: &mut Fleet, call: &TrainerCall| {
        [0, 1].map(|worker| fleet.trainer(worker, call).map(|_| ()))
    };
    for step in [PAUSE, PART, PAUSE] {
        assert_eq!(both(&mut fleet, &step), [Ok(()), Ok(())]);
    }
    let left = [0, 1].map(|worker| Err(WeightsError::Left(WorkerId(worker))));
    assert_eq!(both(&mut fleet, &TrainerCall::Resume), left);
    assert_eq!(both(&mut fleet, &end("2")), left, "it has not begun one");
    // Another pause does not make it whole, and neither does a call that changed nothing.
    assert_eq!(both(&mut fleet, &PAUSE), [Ok(()), Ok(())]);
    let refused = Answer::Refused {
        cause: "404 Not Found".into(),
    };
    fleet.call(WorkerId(0), &PART).expect("may be tried");
    fleet.answer(WorkerId(0), &refused);
    assert_eq!(both(&mut fleet, &TrainerCall::Resume), left);
    for step in [PART, last("2"), TrainerCall::Resume] {
        assert_eq!(both(&mut fleet, &step), [Ok(()), Ok(())], "all of them");
    }
    fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
    // A resume says that it was complete, also if the trainer pauses again before it has ended.
    (fleet.rounds, fleet.in_buckets) = (3, true);
    for step in [PAUSE, PART, last("3"), TrainerCall::Resume] {
        assert_eq!(both(&mut fleet, &step), [Ok(()), Ok(())]);
    }
    for step in [PAUSE, TrainerCall::Resume] {
        assert_eq!(both(&mut fleet, &step), [Ok(()), Ok(())]);
    }
    fleet.run_until(|fleet| fleet.has(0, "3") && fleet.has(1, "3"));
}

/// Its server wants a begin and an end, and the trainer makes neither.
#[test]
fn an_update_that_treadle_began_is_ended_before_the_resume() {
    let mut fleet = Fleet::driven(1);
    let begin = TrainerCall::BeginOwn;
    for step in [&PAUSE, &begin, &PART] {
        fleet.trainer(0, step).expect("goes on");
    }
    assert!(fleet.holding(0).may_be_open());
    let refused = fleet.trainer(0, &TrainerCall::Resume);
    assert_eq!(refused, Err(WeightsError::Unfinished(WorkerId(0))));
    fleet.trainer(0, &PAUSE).expect("may pause");
    let refused = fleet.trainer(0, &end("1"));
    assert_eq!(refused, Err(WeightsError::Left(WorkerId(0))));
    for step in [&begin, &PART, &end("1"), &TrainerCall::Resume] {
        fleet.trainer(0, step).expect("goes on");
    }
    fleet.run_until(|fleet| fleet.has(0, "1"));
    // An older server has no such call, and nothing has changed.
    fleet.trainer(0, &PAUSE).expect("may pause");
    fleet.call(WorkerId(0), &begin).expect("is paused");
    let cause = "404 Not Found".into();
    fleet.answer(WorkerId(0), &Answer::Refused { cause });
    fleet.trainer(0, &TrainerCall::Resume).expect("is whole");
    fleet.run_until(|fleet| fleet.has(0, "1"));
}

#[test]
fn a_call_that_hangs_is_named_with_its_time() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    let asked = |fleet: &Fleet| {
        let waits = fleet.holding(0).unanswered().expect("is called");
        (waits.call, waits.since)
    };
    fleet.call(worker, &PAUSE).expect("may pause");
    let first = fleet.now;
    assert_eq!(asked(&fleet), ("pause", first));
    fleet.answer(worker, &Answer::Done);
    assert_eq!(fleet.holding(0).unanswered(), None);
    fleet.now = first + Span::from_secs(1);
    let load = TrainerCall::Load { name: None };
    fleet.call(worker, &load).expect("is paused");
    let second = fleet.now;
    // Also once its update is over.
    fleet.now = second + Span::from_secs(60);
    fleet.notice(&Notice::RunWentBack { job: "job".into() });
    assert_eq!(asked(&fleet), ("load", second));
    fleet.answer(worker, &Answer::Done);
    for step in [PAUSE, load, TrainerCall::Resume] {
        fleet.trainer(0, &step).expect("goes on");
    }
    assert_eq!(asked(&fleet), ("verify", fleet.now), "treadle's own");
}

/// It generates on, also while its resume is not answered as it should be.
#[test]
fn an_engine_that_treadle_could_not_pause_is_not_loaded() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    let own = TrainerCall::Pause { own: true };
    fleet.call(worker, &own).expect("may pause");
    fleet.answer(worker, &failed());
    let cause = "400 Bad Request".into();
    let refused = Answer::Refused { cause };
    assert_eq!(super::edges::answer(&mut fleet, Call::Resume, &refused), 1);
    let load = TrainerCall::Load {
        name: Some("1".into()),
    };
    let refused = fleet.call(worker, &load);
    assert_eq!(refused, Err(WeightsError::NotPaused(worker)));
}

/// It has all, proved it, and was to generate again: perhaps it does.
#[test]
fn an_engine_whose_resume_failed_is_paused_before_it_loads() {
    let mut fleet = Fleet::driven(1);
    let load = |name: &str| TrainerCall::Load {
        name: Some(name.into()),
    };
    for step in [PAUSE, load("1"), TrainerCall::Resume] {
        fleet.trainer(0, &step).expect("goes on");
    }
    let is_resumed = |fleet: &Fleet| {
        let mut calls = fleet.pending.iter();
        calls.any(|WeightsCommand::Call { call, .. }| *call == Call::Resume)
    };
    fleet.run_until(is_resumed);
    let answered = super::edges::answer(&mut fleet, Call::Resume, &failed());
    assert_eq!(answered, 1);
    let refused = fleet.call(WorkerId(0), &load("1"));
    assert_eq!(refused, Err(WeightsError::NotPaused(WorkerId(0))));
    for step in [PAUSE, load("1"), TrainerCall::Resume] {
        fleet.trainer(0, &step).expect("goes on");
    }
    fleet.run_until(|fleet| fleet.has(0, "1"));
}

/// Its pause failed, and nobody knows whether it was paused.
#[test]
fn an_engine_whose_pause_failed_is_paused_before_it_loads() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    let load = TrainerCall::Load {
        name: Some("1".into()),
    };
    fleet.call(worker, &PAUSE).expect("may pause");
    fleet.answer(worker, &failed());
    let refused = fleet.trainer(0, &load);
    assert_eq!(refused, Err(WeightsError::NotPaused(worker)));
    for step in [PAUSE, load, TrainerCall::Resume] {
        fleet.trainer(0, &step).expect("goes on");
    }
    fleet.run_until(|fleet| fleet.has(0, "1"));
}
