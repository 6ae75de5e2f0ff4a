//! Updates that a trainer drives: calls fail, tear, lose answers and stop in the middle.

use super::trainer::{Form, PART, PAUSE, end, failed};
use super::*;

fn survive(seed: u64) {
    let mut fleet = Fleet::new(2 + u32::try_from(seed % 3).expect("few"), Faults::Any, seed);
    fleet.never_pauses = seed % 4 == 3;
    let mut next = 1;
    for _ in 0..60 {
        if fleet.below(8) == 0 {
            let form = fleet.form();
            fleet.round(&format!("v{next}"), form);
            next += 1;
        }
        if fleet.below(8) == 0 {
            fleet.disturb();
        }
        fleet.go_on();
    }
    fleet.faults = Faults::None;
    for engine in fleet.engines.values_mut().filter(|engine| !engine.up) {
        *engine = Engine::fresh();
    }
    fleet.notice(&Notice::WorkersChanged);
    // Engines may have restarted, and nobody noticed yet.
    let first = if seed.is_multiple_of(2) {
        Form::Begun
    } else {
        Form::Whole
    };
    let second = if seed.is_multiple_of(3) && !fleet.never_pauses {
        Form::Buckets
    } else {
        first
    };
    for form in [first, second] {
        (0..40).for_each(|_| fleet.go_on());
        fleet.round(&format!("v{next}"), form);
        next += 1;
    }
    let name = format!("v{}", next - 1);
    fleet.run_until(|fleet| (0..fleet.engines.len()).all(|w| fleet.has(w as u32, &name)));
}

#[test]
fn no_engine_serves_what_a_trainer_tore() {
    (0..5_000).for_each(survive);
}

#[test]
fn an_engine_is_fenced_from_the_pause_to_the_proof() {
    let mut fleet = Fleet::driven(2);
    fleet.trainer(0, &PAUSE).expect("may pause");
    assert!(fleet.is_fenced(0) && !fleet.is_fenced(1));
    for step in [TrainerCall::Begin, PART, end("7")] {
        fleet.trainer(0, &step).expect("goes on");
    }
    assert_eq!(fleet.holding(0).phase, Phase::Verifying);
    fleet.run_until(|fleet| fleet.holding(0).phase == Phase::Resuming);
    assert!(fleet.pending.is_empty(), "the trainer has not resumed it");
    fleet.trainer(0, &TrainerCall::Resume).expect("is proven");
    fleet.run_until(|fleet| fleet.has(0, "7"));
    let serving = fleet.job().serving.clone().expect("serves");
    assert_eq!((serving.version, &*serving.name), (7, "7"));
    assert!(fleet.is_fenced(1), "it has an older version");
    assert!(fleet.served.is_empty(), "the trainer reports its versions");
    for step in [
        PAUSE,
        TrainerCall::Begin,
        PART,
        end("7"),
        TrainerCall::Resume,
    ] {
        fleet.trainer(1, &step).expect("the same version again");
    }
    fleet.run_until(|fleet| fleet.has(0, "7") && fleet.has(1, "7"));
}

#[test]
fn a_torn_engine_does_not_resume_and_the_others_do() {
    let mut fleet = Fleet::driven(2);
    for worker in [0, 1] {
        fleet.trainer(worker, &PAUSE).expect("may pause");
        fleet
            .trainer(worker, &TrainerCall::Begin)
            .expect("is paused");
    }
    fleet.trainer(0, &PART).expect("has begun");
    fleet
        .engines
        .get_mut(&WorkerId(1))
        .expect("is there")
        .content = Content::Whole("x".into());
    let answer = fleet.trainer(1, &PART).expect("may be tried");
    assert!(matches!(answer, Answer::Failed { .. }));
    let refused = fleet.trainer(0, &TrainerCall::Resume);
    assert_eq!(refused, Err(WeightsError::Unfinished(WorkerId(0))));
    let refused = fleet.trainer(1, &TrainerCall::Resume).unwrap_err();
    assert!(refused.to_string().contains("as scripted"), "{refused}");
    assert!(matches!(
        fleet.trainer(1, &end("1")),
        Err(WeightsError::Torn { .. })
    ));
    fleet.trainer(0, &end("1")).expect("goes on");
    fleet.trainer(0, &TrainerCall::Resume).expect("is whole");
    fleet.run_until(|fleet| fleet.has(0, "1"));
    assert!(fleet.is_fenced(1) && fleet.job().update.is_none());
    let last = fleet.job().last.as_ref().expect("ended");
    assert_eq!((last.held, last.behind.len()), (1, 1));
    fleet.round("2", Form::Begun);
    fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
}

#[test]
fn an_update_that_lacks_a_part_that_was_refused_does_not_end() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    let begun = [PAUSE, TrainerCall::Begin, PART];
    for step in &begun {
        fleet.trainer(0, step).expect("goes on");
    }
    fleet.call(worker, &PART).expect("has begun");
    let cause = "does not know the call".into();
    fleet.answer(worker, &Answer::Refused { cause });
    for step in [end("1"), TrainerCall::Resume] {
        assert_eq!(fleet.trainer(0, &step), Err(WeightsError::Left(worker)));
    }
    for step in begun.iter().chain(&[end("1"), TrainerCall::Resume]) {
        fleet.trainer(0, step).expect("begins anew");
    }
    fleet.run_until(|fleet| fleet.has(0, "1"));
}

#[test]
fn what_is_out_of_order_is_refused() {
    let mut fleet = Fleet::driven(2);
    let refused = fleet.trainer(0, &PART);
    assert_eq!(refused, Err(WeightsError::NotPaused(WorkerId(0))));
    fleet.trainer(0, &PAUSE).expect("may pause");
    let refused = fleet.trainer(0, &end("1"));
    assert_eq!(refused, Err(WeightsError::NotBegun(WorkerId(0))));
    let long = "v".repeat(65);
    assert_eq!(fleet.trainer(0, &end(&long)), Err(WeightsError::Name));
    let unknown = fleet.trainer(9, &PAUSE);
    assert_eq!(unknown, Err(WeightsError::UnknownWorker(WorkerId(9))));
    let published = fleet.publish(1, UpdatePlan::default());
    assert_eq!(published, Err(WeightsError::Driven));
    let loads = WeightsEvent::WeightsRelayed {
        job: "other".into(),
        worker: WorkerId(0),
        lineage: 0,
        all: false,
        call: PAUSE,
    };
    let refused = fleet.machine.check(&loads, &fleet.engines);
    assert!(matches!(refused, Err(WeightsError::OtherJob { .. })));
    // It was paused and nothing else.
    fleet.trainer(0, &TrainerCall::Resume).expect("is whole");
    fleet.run_until(|fleet| !fleet.is_fenced(0));
    assert_eq!((&fleet.job().update, &fleet.job().last), (&None, &None));
    for step in [PAUSE, TrainerCall::Begin, end("1"), TrainerCall::Resume] {
        fleet.trainer(0, &step).expect("goes on");
    }
    fleet.trainer(1, &PAUSE).expect("may pause");
    fleet.trainer(1, &TrainerCall::Begin).expect("is paused");
    let refused = fleet.trainer(1, &end("2"));
    assert_eq!(refused, Err(WeightsError::OtherVersion("1".into())));
}

#[test]
fn a_version_without_a_name_has_the_one_that_engines_report() {
    let mut fleet = Fleet::driven(2);
    let nameless = TrainerCall::Load { name: None };
    for number in 1..3 {
        for worker in [0, 1] {
            fleet.trainer(worker, &PAUSE).expect("may pause");
            fleet.trainer(worker, &nameless).expect("is paused");
        }
        for worker in [0, 1] {
            fleet
                .trainer(worker, &TrainerCall::Resume)
                .expect("is whole");
        }
        fleet.run_until(|fleet| fleet.has(0, "base") && fleet.has(1, "base"));
        fleet.run_until(|fleet| fleet.job().update.is_none());
        assert_eq!(
            fleet.job().serving.as_ref().expect("serves").version,
            number
        );
    }
}

#[test]
fn an_engine_that_restarts_waits_for_its_trainer() {
    let mut fleet = Fleet::driven(2);
    fleet.round("1", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "1") && fleet.has(1, "1"));
    let engine = fleet.engines.get_mut(&WorkerId(0)).expect("is there");
    engine.up = false;
    fleet.notice(&Notice::WorkersChanged);
    fleet.engines.insert(WorkerId(0), Engine::fresh());
    fleet.notice(&Notice::WorkersChanged);
    fleet.run_until(|fleet| fleet.holding(0).phase == Phase::Torn);
    assert!(fleet.is_fenced(0) && !fleet.is_fenced(1));
    let cause = fleet.holding(0).cause.clone().expect("says why");
    assert!(cause.contains("`base` instead of `1`"), "{cause}");
    // One that was only out of reach has what it had.
    for up in [false, true] {
        fleet.engines.get_mut(&WorkerId(1)).expect("is there").up = up;
        fleet.notice(&Notice::WorkersChanged);
    }
    fleet.run_until(|fleet| fleet.has(1, "1"));
    fleet.round("2", Form::Begun);
    fleet.run_until(|fleet| fleet.has(0, "2") && fleet.has(1, "2"));
}

/// Some engines crash if a request is aborted while they are paused.
#[test]
fn a_trainers_pause_waits_for_steps_that_were_cut() {
    let mut fleet = Fleet::driven(2);
    let (worker, other) = (WorkerId(0), WorkerId(1));
    fleet.engines.get_mut(&worker).expect("is there").cut = 1;
    for worker in [worker, other] {
        fleet.call(worker, &PAUSE).expect("may pause");
    }
    assert!(fleet.is_fenced(0), "no step begins meanwhile");
    let until = fleet.holding(0).cuts_until.expect("it waits");
    assert_eq!(fleet.holding(1).cuts_until, None, "nothing was cut");
    assert_eq!(fleet.machine.next_deadline(), Some(until));
    fleet.engines.get_mut(&worker).expect("is there").cut = 0;
    fleet.settle();
    assert_eq!(fleet.holding(0).cuts_until, None, "they have ended");
    // They may never end.
    let mut fleet = Fleet::driven(1);
    fleet.engines.get_mut(&worker).expect("is there").cut = 1;
    fleet.call(worker, &PAUSE).expect("may pause");
    fleet.now = fleet.machine.next_deadline().expect("it waits for a time");
    fleet.daemon(&DaemonEvent::TimerFired);
    assert_eq!(fleet.holding(0).cuts_until, None);
}

#[test]
fn an_engine_that_treadle_could_not_pause_for_its_trainer_generates_again() {
    let mut fleet = Fleet::driven(2);
    let worker = WorkerId(0);
    let pause = TrainerCall::Pause { own: true };
    fleet.call(worker, &pause).expect("may pause");
    fleet.answer(worker, &failed());
    let why = fleet.machine.state().why_fenced(worker).expect("is fenced");
    assert!(why.contains("no answer within 600 s"), "{why}");
    fleet.run_until(|fleet| !fleet.is_fenced(0));
    assert!(fleet.holding(0).serves(None), "what it came with");
    assert!(fleet.job().update.is_none());
}

/// Its job was released while it was to generate again, and a trainer drives the next one.
#[test]
fn an_engine_resumes_before_any_version_is_in_service() {
    let mut fleet = Fleet::new(2, Faults::None, 7);
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    let refused = Answer::Refused {
        cause: "as scripted".into(),
    };
    for (call, answer) in [
        (Call::Prepare, &Answer::Done),
        (Call::Pause, &refused),
        (Call::Resume, &failed()),
    ] {
        super::edges::answer(&mut fleet, call, answer);
    }
    assert_eq!(fleet.holding(0).phase, Phase::Resuming);
    fleet.event(&WeightsEvent::WeightsReleased { job: "job".into() });
    fleet.pending.clear();
    for step in [PAUSE, TrainerCall::Resume] {
        fleet.trainer(1, &step).expect("is whole");
    }
    fleet.run_until(|fleet| !fleet.is_fenced(0) && !fleet.is_fenced(1));
}

#[test]
fn a_call_that_outlives_its_update_ends_before_the_next_one_begins() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    fleet.trainer(0, &PAUSE).expect("may pause");
    let load = TrainerCall::Load { name: None };
    fleet.call(worker, &load).expect("is paused");
    fleet.notice(&Notice::RunWentBack { job: "job".into() });
    let refused = fleet.call(worker, &PAUSE);
    assert_eq!(refused, Err(WeightsError::Calls(worker)));
    fleet.answer(worker, &Answer::Done);
    assert_eq!(fleet.holding(0).phase, Phase::Torn);
    fleet.round("2", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "2"));
}

#[test]
fn a_call_that_outlives_its_job_leaves_no_engine_waiting_for_its_answer() {
    let mut fleet = Fleet::driven(1);
    let worker = WorkerId(0);
    fleet.trainer(0, &PAUSE).expect("may pause");
    let load = TrainerCall::Load {
        name: Some("1".into()),
    };
    fleet.call(worker, &load).expect("is paused");
    fleet.event(&WeightsEvent::WeightsReleased { job: "job".into() });
    fleet.answer(worker, &Answer::Done);
    fleet.round("2", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "2"));
}

/// A run may go back to where it began.
#[test]
fn a_trainer_can_load_the_version_that_its_run_begins_with() {
    let mut fleet = Fleet::driven(1);
    fleet.round("0", Form::Whole);
    fleet.run_until(|fleet| fleet.has(0, "0"));
    assert_eq!(fleet.job().serving.as_ref().expect("serves").version, 0);
}

/// The first engine that answers may be the one that lies.
#[test]
fn engines_of_one_update_are_compared_once_all_have_answered() {
    let mut fleet = Fleet::driven(3);
    for step in [PAUSE, TrainerCall::Begin, PART] {
        for worker in 0..3 {
            fleet.trainer(worker, &step).expect("goes on");
        }
    }
    for worker in 0..3 {
        let ends = fleet.call(WorkerId(worker), &end("1"));
        ends.expect("has begun");
        let engine = fleet.engines.get_mut(&WorkerId(worker));
        let engine = engine.expect("is there");
        engine.name = "1".into();
        engine.content = match worker {
            0 => Content::Torn(7),
            _ => Content::Whole("1".into()),
        };
    }
    for worker in 0..3 {
        fleet.answer(WorkerId(worker), &Answer::Done);
        while !fleet.pending.is_empty() {
            fleet.go_on();
        }
    }
    assert_eq!(fleet.holding(0).phase, Phase::Torn);
    for worker in 1..3 {
        let resumed = fleet.trainer(worker, &TrainerCall::Resume);
        resumed.expect("is whole");
    }
    fleet.run_until(|fleet| fleet.has(1, "1") && fleet.has(2, "1"));
}
