//! Single updates, call by call.

use super::*;

pub(super) fn updated(engines: u32, number: u64) -> Fleet {
    let mut fleet = Fleet::new(engines, Faults::None, 7);
    fleet
        .publish(number, UpdatePlan::default())
        .expect("is new");
    fleet.run_until(|fleet| fleet.serves_everywhere(number));
    fleet
}

/// Answers the pending calls of this kind; returns how many there were.
pub(super) fn answer(fleet: &mut Fleet, kind: Call, answer: &Answer) -> usize {
    let is_kind = |command: &WeightsCommand| {
        let WeightsCommand::Call { call, .. } = command;
        *call == kind
    };
    let (these, others) = fleet.pending.drain(..).partition(is_kind);
    fleet.pending = others;
    let these: VecDeque<WeightsCommand> = these;
    for WeightsCommand::Call {
        job,
        worker,
        number,
        ..
    } in these.clone()
    {
        fleet.event(&WeightsEvent::WeightsCallEnded {
            job,
            worker,
            number,
            answer: answer.clone(),
        });
    }
    these.len()
}

#[test]
fn engines_serve_until_enough_are_ready() {
    let mut fleet = Fleet::new(3, Faults::None, 1);
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    assert_eq!(fleet.pending.len(), 3, "all prepare");
    assert!(fleet.fenced.is_empty(), "and serve meanwhile");
    let first = fleet.pending.pop_front();
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    assert!(
        fleet.fenced.is_empty(),
        "the time to become ready is not over"
    );
    fleet.now = fleet.job().update.as_ref().expect("runs").ready_by();
    fleet.pending.clear();
    fleet.go_on();
    assert_eq!(fleet.fenced.len(), 2, "two of three are enough");
    let update = fleet.job().update.as_ref().expect("runs");
    assert_eq!((update.stage, update.behind.len()), (Stage::Loading, 1));
    drop(first);
}

#[test]
fn too_few_ready_engines_change_nothing() {
    let mut fleet = Fleet::new(3, Faults::None, 1);
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    let cause = "no room on the disk";
    let refused = Answer::Refused {
        cause: cause.into(),
    };
    answer(&mut fleet, Call::Prepare, &refused);
    let last = fleet.job().last.as_ref().expect("ended");
    assert_eq!((last.held, last.behind.len()), (0, 3));
    assert!(last.behind.values().all(|why| why.contains(cause)));
    assert!(fleet.fenced.is_empty());
    assert!(fleet.served.is_empty());
}

/// As if the folder were wrong: all were paused, and none has loaded anything.
#[test]
fn engines_that_could_not_load_a_first_version_generate_again() {
    let mut fleet = Fleet::new(2, Faults::None, 1);
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    for call in [Call::Prepare, Call::Pause] {
        assert_eq!(answer(&mut fleet, call, &Answer::Done), 2);
    }
    let refused = Answer::Refused {
        cause: "there is no such folder".into(),
    };
    assert_eq!(answer(&mut fleet, Call::Apply, &refused), 2);
    assert_eq!(answer(&mut fleet, Call::Resume, &Answer::Done), 2);
    assert!(fleet.fenced.values().all(|is_fenced| !is_fenced));
    assert!(fleet.holding(0).serves(None), "what it came with");
    assert!(fleet.job().update.is_none() && fleet.job().serving.is_none());
}

#[test]
fn steps_that_were_cut_end_before_the_pause() {
    let mut fleet = Fleet::new(2, Faults::None, 1);
    fleet.engines.get_mut(&WorkerId(1)).expect("is there").cut = 1;
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    assert_eq!(fleet.fenced.values().filter(|fenced| **fenced).count(), 2);
    assert!(fleet.pending.is_empty(), "none is paused yet");
    fleet.engines.get_mut(&WorkerId(1)).expect("is there").cut = 0;
    fleet.settle();
    assert_eq!(fleet.pending.len(), 2, "now they are");
}

#[test]
fn a_lost_answer_is_believed_only_with_a_checksum_that_others_have() {
    for (real, expected) in [("v2", Phase::Held), ("v1", Phase::Torn)] {
        let mut fleet = updated(3, 1);
        fleet.publish(2, UpdatePlan::default()).expect("is new");
        for call in [Call::Prepare, Call::Pause] {
            answer(&mut fleet, call, &Answer::Done);
        }
        for (worker, engine) in &mut fleet.engines {
            let name: Box<str> = if *worker == WorkerId(0) {
                real.into()
            } else {
                "v2".into()
            };
            engine.content = Content::Whole(name);
            engine.name = "v2".into();
            engine.paused = true;
        }
        let lost = fleet.pending.pop_front().expect("three load");
        answer(&mut fleet, Call::Apply, &Answer::Done);
        fleet.pending.push_back(lost);
        let cause = "no answer within 600 s".into();
        answer(&mut fleet, Call::Apply, &Answer::Failed { cause });
        fleet.run_until(|fleet| fleet.job().update.is_none());
        assert_eq!(fleet.holding(0).phase, expected, "it has {real}");
        let cause = fleet.holding(0).cause.clone().unwrap_or_default();
        let says_so = cause.contains("apply failed: no answer within 600 s; its checksum differs");
        assert_eq!(says_so, expected == Phase::Torn, "{cause}");
        assert_eq!(
            fleet.job().last.as_ref().map(|last| last.held),
            Some(if real == "v2" { 3 } else { 2 })
        );
        fleet.run_until(|fleet| fleet.serves_everywhere(2));
    }
}

#[test]
fn an_engine_that_reports_the_old_name_after_a_lost_answer_is_loaded_again() {
    let mut fleet = updated(2, 1);
    fleet.publish(2, UpdatePlan::default()).expect("is new");
    for call in [Call::Prepare, Call::Pause] {
        answer(&mut fleet, call, &Answer::Done);
    }
    for engine in fleet.engines.values_mut() {
        (engine.content, engine.paused) = (Content::Whole("v2".into()), true);
    }
    let cause = "the connection broke".into();
    answer(&mut fleet, Call::Apply, &Answer::Failed { cause });
    fleet.run_until(|fleet| fleet.job().update.is_none());
    assert_eq!(fleet.job().last.as_ref().map(|last| last.held), Some(0));
    assert_eq!(fleet.job().serving, Some(version(1)), "nothing else serves");
    assert!(fleet.fenced.values().all(|fenced| *fenced));
    fleet.run_until(|fleet| fleet.serves_everywhere(1));
}

#[test]
fn software_that_names_only_what_it_has_as_a_whole_needs_no_checksum() {
    for (name, expected) in [("v2", Phase::Clearing), ("v1", Phase::Torn)] {
        let mut fleet = updated(2, 1);
        fleet.publish(2, UpdatePlan::default()).expect("is new");
        for call in [Call::Prepare, Call::Pause] {
            answer(&mut fleet, call, &Answer::Done);
        }
        let cause = "the connection broke".into();
        answer(&mut fleet, Call::Apply, &Answer::Failed { cause });
        let reports = Answer::Reports {
            name: Some(name.into()),
            checksum: None,
            whole: true,
        };
        answer(&mut fleet, Call::Verify, &reports);
        assert_eq!(fleet.holding(0).phase, expected, "it names {name}");
    }
}

#[test]
fn an_answer_of_another_version_fences_its_engine_at_once() {
    let mut fleet = updated(2, 1);
    let worker = WorkerId(1);
    let before = fleet.holding(1).since;
    let early = Timestamp(before.0 - 1);
    let named = |sent, name: &str| Notice::WeightsNamed {
        worker,
        sent,
        name: name.into(),
    };
    fleet.notice(&named(early, "base"));
    fleet.notice(&named(fleet.now, "v1"));
    assert!(!fleet.is_fenced(1), "sent before it had them, or right");
    fleet.engines.insert(worker, Engine::fresh());
    fleet.notice(&named(fleet.now, "base"));
    assert!(fleet.is_fenced(1));
    let cause = fleet.holding(1).cause.clone().unwrap_or_default();
    assert!(cause.contains("`base` instead of `v1`"), "{cause}");
    fleet.run_until(|fleet| fleet.serves_everywhere(1));
}

#[test]
fn engines_that_come_later_load_before_they_serve() {
    let mut fleet = updated(2, 1);
    fleet.engines.insert(WorkerId(2), Engine::fresh());
    fleet.notice(&Notice::WorkersChanged);
    assert!(fleet.is_fenced(2));
    fleet.run_until(|fleet| fleet.serves_everywhere(1));
    fleet.engines.remove(&WorkerId(0));
    fleet.notice(&Notice::WorkersChanged);
    assert!(fleet.machine.state().holding(WorkerId(0)).is_none());
}

#[test]
fn a_rolling_update_keeps_all_but_one_serving() {
    let mut fleet = updated(3, 1);
    let plan = UpdatePlan {
        rolling: true,
        ..UpdatePlan::default()
    };
    fleet.publish(2, plan).expect("is new");
    while fleet.job().update.is_some() {
        assert!(fleet.machine.state().fenced.len() <= 1);
        assert!(!fleet.served.contains(&2));
        fleet.go_on();
    }
    assert!(fleet.serves_everywhere(2));
    assert_eq!(fleet.served, [1, 2]);
}

#[test]
fn a_run_that_went_back_waits_for_its_version() {
    let mut fleet = updated(2, 3);
    fleet.notice(&Notice::RunWentBack { job: "job".into() });
    assert_eq!(fleet.machine.state().fenced.len(), 2);
    let back = Weights {
        lineage: 1,
        ..version(2)
    };
    let event = WeightsEvent::WeightsPublished {
        job: "job".into(),
        weights: back.clone(),
        workers: Vec::new(),
        plan: UpdatePlan::default(),
    };
    fleet
        .machine
        .check(&event, &fleet.engines)
        .expect("a new lineage");
    fleet.event(&event);
    fleet.run_until(|fleet| fleet.job().update.is_none());
    assert_eq!(fleet.job().serving, Some(back));
    assert!(fleet.machine.state().fenced.is_empty());
}

#[test]
fn released_engines_serve_whatever_they_have() {
    let mut fleet = updated(2, 1);
    fleet.engines.insert(WorkerId(2), Engine::fresh());
    fleet.notice(&Notice::WorkersChanged);
    fleet.event(&WeightsEvent::WeightsReleased { job: "job".into() });
    assert!(
        !fleet.is_fenced(0) && !fleet.is_fenced(1),
        "they had proven it"
    );
    assert!(fleet.is_fenced(2), "it has not");
    fleet.engines.get_mut(&WorkerId(2)).expect("is there").up = false;
    fleet.notice(&Notice::WorkersChanged);
    assert!(
        fleet.machine.state().holdings.is_empty(),
        "the next process is another one"
    );
    assert!(fleet.fenced.values().all(|fenced| !fenced));
}

#[test]
fn engines_that_are_being_loaded_are_not_released() {
    let mut fleet = updated(2, 1);
    let release = WeightsEvent::WeightsReleased { job: "job".into() };
    fleet.publish(2, UpdatePlan::default()).expect("is new");
    let busy = fleet.machine.check(&release, &fleet.engines);
    assert_eq!(busy, Err(WeightsError::Busy(2)));
    fleet.run_until(|fleet| fleet.serves_everywhere(2));
    assert_eq!(fleet.machine.check(&release, &fleet.engines), Ok(()));
}

#[test]
fn steps_that_were_cut_are_not_waited_for_without_end() {
    let mut fleet = Fleet::new(2, Faults::None, 1);
    fleet.engines.get_mut(&WorkerId(1)).expect("is there").cut = 1;
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    assert!(fleet.pending.is_empty(), "none is paused yet");
    let due = fleet.machine.next_deadline().expect("it waits for a time");
    fleet.now = due;
    fleet.daemon(&DaemonEvent::TimerFired);
    assert_eq!(fleet.pending.len(), 2, "then they are");
}

#[test]
fn what_can_not_be_published_is_refused_with_a_reason() {
    let mut fleet = updated(2, 2);
    let plan = UpdatePlan::default();
    let falls = WeightsError::Falls {
        version: 1,
        serving: 2,
    };
    assert_eq!(fleet.publish(1, plan), Err(falls));
    assert_eq!(
        fleet.publish(2, plan),
        Ok(()),
        "the same again changes nothing"
    );
    assert!(fleet.job().update.is_none());
    let (quorum, engines) = (3, 2);
    let too_many = WeightsError::Quorum { quorum, engines };
    assert_eq!(
        fleet.publish(3, UpdatePlan { quorum, ..plan }),
        Err(too_many)
    );
    let event = WeightsEvent::WeightsPublished {
        job: "job".into(),
        weights: version(3),
        workers: vec![WorkerId(0)],
        plan,
    };
    let other = fleet.machine.check(&event, &fleet.engines);
    assert_eq!(other, Err(WeightsError::OtherEngines));
    let quorum = QUORUM_MAX + 1;
    assert_eq!(
        fleet.publish(3, UpdatePlan { quorum, ..plan }),
        Err(WeightsError::Plan)
    );
    fleet.publish(3, plan).expect("is new");
    assert_eq!(fleet.publish(4, plan), Err(WeightsError::Busy(3)));
    let mut event = WeightsEvent::WeightsPublished {
        job: "other".into(),
        weights: version(1),
        workers: vec![WorkerId(0)],
        plan,
    };
    let other = WeightsError::OtherJob {
        worker: WorkerId(0),
        job: "job".into(),
    };
    assert_eq!(fleet.machine.check(&event, &fleet.engines), Err(other));
    if let WeightsEvent::WeightsPublished { workers, .. } = &mut event {
        workers.clear();
    }
    assert_eq!(
        fleet.machine.check(&event, &fleet.engines),
        Err(WeightsError::NoEngines)
    );
}

#[test]
fn each_engine_of_a_rolling_update_ends_its_cut_steps_before_its_pause() {
    let mut fleet = updated(2, 1);
    let plan = UpdatePlan {
        rolling: true,
        ..UpdatePlan::default()
    };
    fleet.publish(2, plan).expect("is new");
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    fleet.engines.get_mut(&WorkerId(1)).expect("is there").cut = 1;
    let is_rolled = |fleet: &Fleet| fleet.holding(0).serves(Some(&version(2)));
    while !is_rolled(&fleet) {
        fleet.go_on();
    }
    let pauses = |fleet: &Fleet| fleet.holding(1).call.map(|pending| pending.call);
    assert!(fleet.is_fenced(1), "it is its turn");
    assert_eq!(pauses(&fleet), None, "a step that was cut has not ended");
    fleet.engines.get_mut(&WorkerId(1)).expect("is there").cut = 0;
    fleet.settle();
    assert_eq!(pauses(&fleet), Some(Call::Pause));
    fleet.run_until(|fleet| fleet.serves_everywhere(2));
}

/// It was only out of reach, so it generates while it is asked what it has.
#[test]
fn an_engine_that_is_asked_what_it_has_is_paused_before_it_loads() {
    let mut fleet = updated(1, 1);
    for up in [false, true] {
        fleet.engines.get_mut(&WorkerId(0)).expect("is there").up = up;
        fleet.notice(&Notice::WorkersChanged);
    }
    fleet.go_on();
    assert_eq!(fleet.holding(0).phase, Phase::Clearing);
    fleet.publish(2, UpdatePlan::default()).expect("is new");
    for call in [Call::Clear, Call::Prepare] {
        assert_eq!(answer(&mut fleet, call, &Answer::Done), 1);
    }
    let WeightsCommand::Call { call, .. } = fleet.pending.front().expect("it goes on");
    assert_eq!(*call, Call::Pause);
    fleet.run_until(|fleet| fleet.serves_everywhere(2));
}

/// It has proven nothing since its first loss, and is prepared for the next version.
#[test]
fn an_engine_that_is_lost_twice_does_not_hold_up_an_update() {
    let mut fleet = Fleet::new(2, Faults::None, 1);
    let worker = WorkerId(0);
    fleet.publish(1, UpdatePlan::default()).expect("is new");
    for up in [false, true] {
        fleet.engines.get_mut(&worker).expect("is there").up = up;
        fleet.notice(&Notice::WorkersChanged);
    }
    let of_other = |command: &WeightsCommand| {
        let WeightsCommand::Call { worker: of, .. } = command;
        *of != worker
    };
    let late: Vec<WeightsCommand> = fleet.pending.drain(..).filter(of_other).collect();
    fleet.now = fleet.job().update.as_ref().expect("runs").ready_by();
    fleet.daemon(&DaemonEvent::TimerFired);
    assert_eq!(fleet.holding(0).phase, Phase::Unknown);
    fleet.publish(1, UpdatePlan::default()).expect("has failed");
    fleet.pending.extend(late);
    answer(&mut fleet, Call::Prepare, &Answer::Done);
    assert_eq!(
        fleet.job().update.as_ref().expect("runs").stage,
        Stage::Loading
    );
    fleet.engines.get_mut(&worker).expect("is there").up = false;
    fleet.notice(&Notice::WorkersChanged);
    let update = fleet.job().update.as_ref().expect("runs");
    assert_eq!((update.workers.len(), update.behind.len()), (1, 1));
    fleet.run_until(|fleet| fleet.job().serving.is_some());
}
