//! Actions that treadle runs: which start, with which resources, and how they end.

use crate::executor::{Answers, Executor, action, devices, quota, units};
use treadle_core::actions::{
    ActionCommand, ActionError, ActionEvent, ActionSpec, Admission, Chunk, Instance, Load, Outcome,
};
use treadle_core::{DaemonEvent, Event};
use treadle_model::{ActionId, Span};

/// The load and chunk of the latest start.
fn latest_start(e: &Executor) -> (Option<Load>, Chunk) {
    let starts = e.log.iter().rev();
    let mut starts = starts.filter_map(|command| match command {
        ActionCommand::StartAction { load, grants, .. } => {
            Some((load.clone(), grants[0].chunk.expect("devices")))
        }
        _ => None,
    });
    starts.next().expect("one was started")
}

fn service(name: &str, options: &[u64]) -> ActionSpec {
    ActionSpec {
        service: Some(name.into()),
        ..action(&[("gpu", options)])
    }
}

#[test]
fn nobody_overtakes_on_what_the_first_needs_and_others_are_not_held_up() {
    let mut e = Executor::new(&[units("cpu", 8), units("memory", 100), units("disk", 4)]);
    let first = e.submit(action(&[("cpu", &[6]), ("memory", &[10])]));
    let large = e.submit(action(&[("cpu", &[4]), ("memory", &[10])]));
    let small = e.submit(action(&[("cpu", &[1])]));
    let memory = e.submit(action(&[("memory", &[1])]));
    let disk = e.submit(action(&[("disk", &[4])]));
    let running = |e: &Executor| e.running.keys().copied().collect::<Vec<_>>();
    assert_eq!(running(&e), [first, disk]);
    e.exit(first);
    assert_eq!(running(&e), [large, small, memory, disk]);
    assert!(e.asked.is_empty(), "nobody has a choice");
    e.run_out();
    assert_eq!(e.answered.len(), 5);
}

#[test]
fn a_policy_gives_more_and_holds_back_the_last() {
    let mut e = Executor::new(&[units("cpu", 8)]);
    let blocker = e.submit(action(&[("cpu", &[8])]));
    let elastic: Vec<_> = (0..3)
        .map(|_| e.submit(action(&[("cpu", &[1, 4, 8])])))
        .collect();
    e.answers = Answers::Most;
    e.exit(blocker);
    // Eight for each of three don't fit: each gets the minimum.
    let (_, question) = e.asked.last().expect("it was asked").clone();
    assert_eq!(question.candidate, [1, 1, 1]);
    assert_eq!(question.option_start, [0, 3, 6, 9]);
    assert_eq!(
        (&*question.free_units, &*question.chunked),
        (&[8][..], &[0][..])
    );
    let units = |e: &Executor, id| e.running.get(&id).map(|a| a.grants[0].units);
    assert!(elastic.iter().all(|id| units(&e, *id) == Some(1)));
    assert_eq!(e.core.actions().counters.corrected, 1);
    // The first of them may not wait; the second is left out and asked about again later.
    let next: Vec<_> = (0..2)
        .map(|_| e.submit(action(&[("cpu", &[2, 4])])))
        .collect();
    assert_eq!(
        units(&e, next[0]),
        Some(4),
        "alone it gets what it was given"
    );
    e.answers = Answers::LastOnly;
    assert_eq!(units(&e, next[1]), None);
    e.exit(elastic[0]);
    assert_eq!(units(&e, next[1]), Some(2));
    e.run_out();
}

#[test]
fn without_an_answer_each_gets_the_least_at_the_deadline() {
    let mut e = Executor::new(&[units("cpu", 8)]);
    e.answers = Answers::Never;
    let id = e.submit(action(&[("cpu", &[2, 4])]));
    let late = e.submit(action(&[("cpu", &[2, 4])]));
    assert!(
        e.running.is_empty() && e.asked.len() == 1,
        "one question at a time"
    );
    e.wait_s(5);
    assert_eq!(e.running[&id].grants[0].units, 2);
    e.wait_s(5);
    assert!(e.running.contains_key(&late));
    assert_eq!(e.core.actions().counters.unanswered, 2);
}

#[test]
fn durations_that_were_said_or_learnt_are_in_the_question() {
    let mut e = Executor::new(&[units("cpu", 8)]);
    let id = e.submit(action(&[("cpu", &[2, 4])]));
    e.begin(id).wait_s(3).exit(id);
    let said = ActionSpec {
        durations: vec![Span(70), Span(40)],
        ..action(&[("cpu", &[2, 4])])
    };
    e.submit(action(&[("cpu", &[2, 4])]));
    assert_eq!(e.asked.last().unwrap().1.option_us, [3_000_000, -1]);
    e.submit(said);
    let question = &e.asked.last().unwrap().1;
    assert_eq!(question.option_us, [70, 40]);
    assert_eq!(
        (&*question.running_units, &*question.running_left_us),
        (&[2][..], &[3_000_000][..])
    );
}

#[test]
fn services_stay_on_devices_until_others_need_them() {
    let mut e = Executor::new(&[devices("gpu", &[4])]);
    e.declare("judge", 20).declare("reward", 10);
    let judge = e.submit(service("judge", &[2]));
    let (load, judge_chunk) = latest_start(&e);
    assert_eq!(load.unwrap().service.as_deref(), Some("judge"));
    e.wait_s(4).begin(judge).exit(judge);
    let learnt = e.core.actions().services["judge"].load_on(2);
    assert_eq!(learnt, Span::from_secs(4));
    // The other half fits as well, and holds no service.
    let reward = e.submit(service("reward", &[2]));
    let (load, reward_chunk) = latest_start(&e);
    assert_eq!(load.unwrap().evicted, []);
    assert_ne!(judge_chunk, reward_chunk);
    e.begin(reward);
    let again = e.submit(service("judge", &[2]));
    assert_eq!(latest_start(&e), (None, judge_chunk));
    e.begin(again).exit(again).exit(reward);
    // Another number of devices is another instance, and everything there is evicted.
    let wide = e.submit(service("judge", &[4]));
    let (load, _) = latest_start(&e);
    let instance = |service: &str, chunk| Instance {
        service: service.into(),
        chunk,
    };
    let mut evicted = load.expect("it loads").evicted;
    evicted.sort();
    let both = [
        instance("judge", judge_chunk),
        instance("reward", reward_chunk),
    ];
    assert_eq!(evicted, both);
    // It was not loaded: the devices' services are unknown.
    e.end(
        wide,
        Outcome::InfrastructureFailure {
            cause: "no memory".into(),
        },
    );
    assert!(
        e.core.actions().pools[0]
            .devices
            .as_ref()
            .unwrap()
            .held
            .is_empty()
    );
}

#[test]
fn chunks_are_split_by_best_fit_and_joined_again() {
    let mut e = Executor::new(&[devices("gpu", &[8, 6])]);
    let counts = |e: &Executor| {
        e.core.actions().pools[0]
            .devices
            .as_ref()
            .unwrap()
            .free
            .counts()
    };
    assert_eq!(counts(&e), [0, 1, 1, 1]);
    let one = e.submit(action(&[("gpu", &[1])]));
    assert_eq!(counts(&e), [1, 0, 1, 1], "of the two of the second node");
    let four = e.submit(action(&[("gpu", &[4])]));
    let eight = e.submit(action(&[("gpu", &[8])]));
    assert_eq!(counts(&e), [1, 0, 0, 0]);
    e.exit(one).exit(eight).exit(four);
    assert_eq!(counts(&e), [0, 1, 1, 1]);
}

#[test]
fn a_refused_request_waits_at_its_place_and_the_pause_doubles() {
    let mut e = Executor::new(&[quota("search", 4, 100, Span::from_secs(60))]);
    let first = e.submit(action(&[("search", &[1])]));
    e.begin(first).refuse(first, "search", Span(0));
    let second = e.submit(action(&[("search", &[1])]));
    assert!(e.running.is_empty());
    e.wait(Span::from_millis(1_250));
    assert_eq!(e.running.len(), 2);
    assert_eq!(e.running[&first].number, 2);
    e.refuse(first, "search", Span::from_secs(30)).exit(second);
    e.wait_s(29);
    assert!(e.running.is_empty());
    e.wait_s(9);
    assert!(e.running.contains_key(&first));
    e.run_out();
    assert_eq!(
        e.core.actions().pools[0].quota.as_ref().unwrap().refusals,
        0
    );
}

#[test]
fn no_period_has_more_requests_than_it_may() {
    let mut e = Executor::new(&[quota("search", 2, 10, Span::from_secs(60))]);
    for _ in 0..25 {
        e.submit(action(&[("search", &[1])]));
    }
    e.run_out();
    let minutes = e.now.0 / 60_000_000;
    assert!((2..=3).contains(&minutes), "{minutes} minutes");
}

#[test]
fn a_quota_is_looked_at_again_when_its_period_is_over() {
    let minute = Span::from_secs(60);
    let mut e = Executor::new(&[units("cpu", 1), quota("search", 2, 1, minute)]);
    let blocker = e.submit(action(&[("cpu", &[1])]));
    e.submit(action(&[("cpu", &[1]), ("search", &[1])]));
    let waits = e.submit(action(&[("search", &[1])]));
    e.exit(blocker);
    assert!(!e.running.contains_key(&waits) && e.running.len() == 1);
    e.wait_s(62);
    assert!(e.running.contains_key(&waits));
}

#[test]
fn what_is_cancelled_or_lasts_too_long_is_stopped_and_has_its_own_end() {
    let mut e = Executor::new(&[units("cpu", 2)]);
    let long = e.submit(action(&[("cpu", &[1])]));
    let withdrawn = e.submit(action(&[("cpu", &[1])]));
    let waits = e.submit(action(&[("cpu", &[1])]));
    let late = e.submit(ActionSpec {
        start_by: Some(e.now + Span::from_secs(7)),
        ..action(&[("cpu", &[1])])
    });
    e.begin(long)
        .begin(withdrawn)
        .cancel(withdrawn)
        .cancel(waits)
        .wait_s(7);
    assert_eq!(e.answered[&waits], Outcome::Cancelled);
    assert_eq!(e.answered[&late], Outcome::Expired);
    assert!(e.stopped.contains(&withdrawn));
    // A program that handles the signal exits with its own code.
    e.end(withdrawn, Outcome::Exited { code: 1 });
    assert_eq!(e.answered[&withdrawn], Outcome::Cancelled);
    e.wait_s(93);
    assert!(e.stopped.contains(&long));
    e.wait_s(30);
    assert_eq!(
        e.answered[&long],
        Outcome::Unknown,
        "it never said that it ended"
    );
    assert_eq!(e.core.actions().pools[0].used, 0);
}

#[test]
fn what_does_not_begin_is_not_a_wrong_answer() {
    let mut e = Executor::new(&[units("cpu", 2)]);
    let id = e.submit(action(&[("cpu", &[1])]));
    e.wait_s(600).end(id, Outcome::Killed { signal: 9 });
    assert!(matches!(
        e.answered[&id],
        Outcome::InfrastructureFailure { .. }
    ));
}

#[test]
fn after_a_restart_only_what_is_heard_of_goes_on() {
    let mut e = Executor::new(&[units("cpu", 4)]);
    let ids: Vec<_> = (0..4)
        .map(|number| {
            e.submit(ActionSpec {
                idempotent: number == 3,
                ..action(&[("cpu", &[1])])
            })
        })
        .collect();
    for id in &ids {
        e.begin(*id);
    }
    let resources = e.resources.clone();
    e.handle(Event::Daemon(DaemonEvent::DaemonRestarted))
        .set(&resources);
    e.begin(ids[0]).exit(ids[1]);
    e.handle(ActionEvent::ActionsRecovered);
    assert!(!e.answered.contains_key(&ids[0]));
    assert_eq!(e.answered[&ids[1]], Outcome::Exited { code: 0 });
    assert_eq!(e.answered[&ids[2]], Outcome::Unknown);
    assert_eq!(e.running[&ids[3]].number, 2, "it may run again");
    e.run_out();
}

#[test]
fn with_less_of_everything_what_cannot_go_on_ends() {
    let mut e = Executor::new(&[units("cpu", 4), devices("gpu", &[4])]);
    let kept = e.submit(action(&[("cpu", &[2])]));
    let gone = e.submit(action(&[("cpu", &[2])]));
    let gpu = e.submit(action(&[("gpu", &[4])]));
    let hopeless = e.submit(action(&[("cpu", &[3])]));
    let waits = e.submit(action(&[("cpu", &[1])]));
    e.set(&[units("cpu", 2)]);
    assert!(matches!(
        e.answered[&hopeless],
        Outcome::InfrastructureFailure { .. }
    ));
    assert_eq!(e.stopped.iter().copied().collect::<Vec<_>>(), [gone, gpu]);
    e.exit(gone).exit(gpu).exit(kept);
    assert!(e.running.contains_key(&waits));
    e.run_out();
}

#[test]
fn devices_hold_what_they_held_though_other_machines_come_and_go() {
    let mut e = Executor::new(&[devices("gpu", &[4])]);
    e.declare("judge", 20);
    let judge = e.submit(service("judge", &[2]));
    let (_, chunk) = latest_start(&e);
    e.begin(judge).exit(judge);
    e.set(&[devices("gpu", &[4]), units("cpu@n", 2)]);
    let again = e.submit(service("judge", &[2]));
    assert_eq!(latest_start(&e), (None, chunk), "it is still there");
    e.begin(again).exit(again);
    // Another daemon has no services yet.
    let resources = e.resources.clone();
    e.handle(Event::Daemon(DaemonEvent::DaemonRestarted))
        .set(&resources);
    let reloaded = e.submit(service("judge", &[2]));
    assert!(latest_start(&e).0.is_some(), "it has to be loaded");
    e.begin(reloaded).exit(reloaded);
}

#[test]
fn a_machine_that_is_lost_takes_with_it_what_it_ran_and_what_waits_for_it() {
    let mut e = Executor::new(&[units("cpu", 2), units("cpu@n", 2)]);
    let ran = e.submit(action(&[("cpu@n", &[2])]));
    let waits = e.submit(action(&[("cpu@n", &[1])]));
    let elsewhere = e.submit(action(&[("cpu", &[2])]));
    let waits_elsewhere = e.submit(action(&[("cpu", &[1])]));
    e.begin(ran).begin(elsewhere);
    e.resources.truncate(1);
    e.handle(ActionEvent::ResourcesLost {
        resources: vec!["cpu@n".into()],
    });
    assert_eq!(e.answered[&ran], Outcome::Unknown);
    let is_over = |id| matches!(&e.answered[id], Outcome::InfrastructureFailure { .. });
    assert!(is_over(&waits), "it never began: {:?}", e.answered[&waits]);
    assert!(!e.running.contains_key(&waits));
    assert!(e.running.contains_key(&elsewhere) && !e.answered.contains_key(&waits_elsewhere));
    e.run_out();

    // An action that may run again could only run there.
    let mut e = Executor::new(&[units("cpu", 2), units("cpu@n", 2)]);
    let again = e.submit(ActionSpec {
        idempotent: true,
        ..action(&[("cpu@n", &[2])])
    });
    e.begin(again);
    e.resources.truncate(1);
    e.handle(ActionEvent::ResourcesLost {
        resources: vec!["cpu@n".into()],
    });
    assert!(matches!(
        e.answered[&again],
        Outcome::InfrastructureFailure { .. }
    ));
    e.run_out();
}

#[test]
fn the_same_key_is_the_same_action_until_it_is_forgotten() {
    let mut e = Executor::with(&[units("cpu", 4)], |config| config.actions.ended_max = 1);
    let keyed = |body: &str| ActionSpec {
        idempotency_key: Some("key".into()),
        body: body.into(),
        ..action(&[("cpu", &[1])])
    };
    let id = e.submit(keyed("a"));
    assert_eq!(e.check(&keyed("a")), Ok(Admission::Known(id)));
    let taken = ActionError::KeyTaken {
        key: "key".into(),
        action: id,
    };
    assert_eq!(e.check(&keyed("b")), Err(taken));
    e.exit(id);
    assert_eq!(e.check(&keyed("a")), Ok(Admission::Known(id)));
    let other = e.submit(action(&[("cpu", &[1])]));
    e.exit(other);
    assert_eq!(e.check(&keyed("b")), Ok(Admission::New(ActionId(3))));
}

#[test]
fn what_cannot_be_is_refused_with_its_field() {
    let mut e = Executor::with(&[units("cpu", 4), devices("gpu", &[4])], |config| {
        config.actions.job_waiting_max = 1;
    });
    let refused = |spec: ActionSpec, says: &str, e: &Executor| {
        let error = e.check(&spec).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(action(&[]), "demands is empty", &e);
    refused(action(&[("tpu", &[1])]), "\"tpu\"", &e);
    refused(action(&[("cpu", &[1]), ("cpu", &[1])]), "twice", &e);
    refused(action(&[("cpu", &[])]), "options of \"cpu\" has 0", &e);
    refused(action(&[("cpu", &[0, 1])]), "above 0", &e);
    refused(action(&[("cpu", &[2, 1])]), "ascend", &e);
    refused(action(&[("cpu", &[5])]), "at least 5 of \"cpu\": 4", &e);
    refused(action(&[("gpu", &[8])]), "at least 8 of \"gpu\": 4", &e);
    refused(action(&[("gpu", &[3])]), "give 1, 2, 4 or 8", &e);
    refused(action(&[("cpu", &[1, 1 << 40])]), "larger units", &e);
    refused(
        action(&[("cpu", &[1, 2]), ("gpu", &[1, 2])]),
        "one may be elastic",
        &e,
    );
    let demand = action(&[("cpu", &[1])]);
    let with = |change: &dyn Fn(&mut ActionSpec)| {
        let mut spec = demand.clone();
        change(&mut spec);
        spec
    };
    refused(
        with(&|s| s.durations = vec![Span(1); 2]),
        "durations has 2",
        &e,
    );
    refused(
        with(&|s| s.service = Some("judge".into())),
        "not declared",
        &e,
    );
    refused(
        with(&|s| s.program = Some("p".into())),
        "program \"p\" is not live",
        &e,
    );
    refused(with(&|s| s.run_max = Span(0)), "run_max", &e);
    e.declare("judge", 1);
    refused(
        with(&|s| s.service = Some("judge".into())),
        "entry of demands with devices",
        &e,
    );
    e.submit(action(&[("cpu", &[4])]));
    e.submit(action(&[("cpu", &[4])]));
    refused(demand.clone(), "1 actions wait, the limit for a job", &e);
}
