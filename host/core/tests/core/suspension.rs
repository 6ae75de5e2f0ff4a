//! Waits stop while engines are fenced for an update of weights.

use crate::scenario::Scenario;
use treadle_core::programs::{ProgramEvent, Refusal};
use treadle_core::programs::{Rest, WorkerState};
use treadle_core::weights::{Answer, Call, UpdatePlan, Weights, WeightsCommand, WeightsEvent};
use treadle_core::{Command, Core, Event, Mode};
use treadle_model::{StepId, WorkerId};

const MODES: [Mode; 3] = [Mode::ProgramAware, Mode::Sticky, Mode::LeastLoad];

pub(crate) fn publish(s: &mut Scenario, version: u64, workers: &[u32]) {
    s.handle(Event::Weights(WeightsEvent::WeightsPublished {
        job: "math".into(),
        weights: Weights {
            lineage: 0,
            version,
            name: format!("0.{version}").into(),
            folder: format!("/weights/{version}").into(),
        },
        workers: workers.iter().map(|worker| WorkerId(*worker)).collect(),
        plan: UpdatePlan::default(),
    }));
}

/// Answers the calls that were made until none is open, or only calls of this kind are.
pub(crate) fn answer_until(s: &mut Scenario, last: Option<Call>) {
    let mut answered = 0;
    while let Some(command) = s.log.get(answered).cloned() {
        answered += 1;
        let Command::Weights(WeightsCommand::Call {
            job,
            worker,
            number,
            call,
            weights,
        }) = command
        else {
            continue;
        };
        let holding = s.core.weights().holding(worker);
        let is_open = holding
            .and_then(|h| h.call)
            .is_some_and(|c| c.number == number);
        if !is_open || Some(call) == last {
            continue;
        }
        let answer = match call {
            Call::Verify => Answer::Reports {
                name: Some(weights.name),
                checksum: None,
                whole: true,
            },
            _ => Answer::Done,
        };
        s.handle(Event::Weights(WeightsEvent::WeightsCallEnded {
            job,
            worker,
            number,
            answer,
        }));
    }
}

/// An update of these engines that has come to where they load.
pub(crate) fn suspend(s: &mut Scenario, version: u64, workers: &[u32]) {
    publish(s, version, workers);
    answer_until(s, Some(Call::Apply));
    for worker in workers {
        assert!(s.core.programs().workers[&WorkerId(*worker)].fenced);
    }
}

fn rest(s: &mut Scenario, worker: u32, rest: Option<Rest>) {
    let worker = WorkerId(worker);
    s.handle(Event::Program(ProgramEvent::WorkerRestRead {
        worker,
        rest,
    }));
}

/// How long a step has waited by now, in seconds.
fn waited(s: &Scenario, step: u64) -> u64 {
    let step = &s.core.programs().steps[&StepId(step)];
    step.waited(s.now).millis() / 1_000
}

/// The waits of refused steps in seconds, each with how long it was suspended at the end.
fn refused(s: &Scenario) -> Vec<(u64, u64, u64)> {
    let waits = s.refusals().into_iter().map(|(step, refusal)| {
        let Refusal::QueueWaitExceeded {
            waited_ms,
            suspended_ms,
            ..
        } = refusal
        else {
            panic!("{refusal:?}");
        };
        (step, waited_ms / 1_000, suspended_ms / 1_000)
    });
    waits.collect()
}

#[test]
fn time_of_an_update_is_not_waiting() {
    for mode in MODES {
        let mut s = Scenario::with_mode(mode, &[1_000, 1_000]);
        // Both are paused, which counts, and then updated.
        rest(&mut s, 0, Some(Rest::Paused));
        rest(&mut s, 1, Some(Rest::Paused));
        s.arrive("a", 1, 300).wait_s(1_000);
        suspend(&mut s, 1, &[0, 1]);
        s.wait_s(500).arrive("b", 2, 300).wait_s(1_200);
        assert_eq!((waited(&s, 1), waited(&s, 2)), (1_000, 0), "{mode:?}");
        answer_until(&mut s, None);
        s.wait_s(700);
        assert_eq!((waited(&s, 1), waited(&s, 2)), (1_700, 700), "{mode:?}");
        s.wait_s(150);
        assert_eq!(refused(&s), [(1, 1_800, 0)], "{mode:?}");
        rest(&mut s, 1, None);
        assert_eq!(s.dispatched(), [(2, 1)], "{mode:?}");
    }
}

#[test]
fn a_suspension_is_bounded_too() {
    let mut s = Scenario::with_workers(&[1_000]);
    suspend(&mut s, 1, &[0]);
    s.arrive("a", 1, 300).wait_s(1_700).arrive("b", 2, 300);
    s.wait_s(200);
    let told = s.refusals()[0].1.to_string();
    assert_eq!(refused(&s), [(1, 0, 1_800)]);
    assert!(
        told.contains("1800 s more while all workers were fenced"),
        "{told}"
    );
    assert_eq!(waited(&s, 2), 0);
    s.lose(0).wait_s(50);
    assert_eq!(waited(&s, 2), 50, "an engine that is gone updates nothing");
}

#[test]
fn one_engine_that_could_take_steps_makes_the_time_count() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.serves(0, &["m"]).serves(1, &["other"]);
    s.arrive_for(Some("other"), "full", 1, 1_000);
    suspend(&mut s, 1, &[0]);
    s.arrive_for(Some("m"), "a", 2, 300);
    s.arrive_for(Some("other"), "b", 3, 300).wait_s(100);
    assert_eq!((waited(&s, 2), waited(&s, 3)), (0, 100));
    // Another engine comes, which is full, and is cordoned later.
    s.serves(1, &["other", "m"]).wait_s(10);
    assert_eq!(waited(&s, 2), 10);
    s.set_state(1, WorkerState::Cordoned).wait_s(50);
    assert_eq!((waited(&s, 2), waited(&s, 3)), (10, 160));
    s.set_state(1, WorkerState::Active).lose(1).wait_s(50);
    assert_eq!((waited(&s, 2), waited(&s, 3)), (10, 210));
    s.recover(1);
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(0),
    }));
    s.wait_s(5);
    assert_eq!(waited(&s, 2), 15, "there is nothing to update any more");
}

/// Time at engines, in a suspension and in the queue: only the last counts.
#[test]
fn a_step_that_comes_back_during_an_update_goes_on_where_it_left_off() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("holder", 1, 900).arrive("a", 2, 800).wait_s(100);
    s.finish(1, 900, 0).release("holder").wait_s(50);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
    suspend(&mut s, 1, &[0]);
    s.wait_s(30).fail(2, true).wait_s(600);
    assert_eq!(waited(&s, 2), 100);
    answer_until(&mut s, None);
    assert_eq!(s.dispatched()[2..], [(2, 0)]);
    let p = s.core.programs().program("a").expect("lives");
    assert_eq!(p.waited_total.millis(), 100_000);
    // What waited_total counts is taken off again when it comes back.
    s.lose(0).fail(2, true).wait_s(20);
    assert_eq!(waited(&s, 2), 120);
}

/// Programs beyond the starvation bound go first, and others may not join them by an update.
#[test]
fn no_program_starves_because_of_an_update() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.serves(0, &["m"]).serves(1, &["other"]);
    suspend(&mut s, 1, &[0]);
    s.arrive_for(Some("m"), "long", 1, 900);
    s.arrive_for(Some("other"), "full", 2, 900);
    s.wait_s(10).arrive_for(Some("other"), "next", 3, 900);
    s.wait_s(500);
    let starved = s.core.programs().waiting.reservations().clone();
    let next = s.core.programs().program("next").expect("lives").id;
    assert_eq!(
        starved.into_iter().collect::<Vec<_>>(),
        [(WorkerId(1), next)]
    );
    s.arrive_for(Some("m"), "short", 4, 200);
    answer_until(&mut s, None);
    assert_eq!(
        s.dispatched()[1..],
        [(4, 0)],
        "the shortest goes first, as the policy wants"
    );
}

#[test]
fn suspensions_survive_a_snapshot() {
    let mut s = Scenario::with_workers(&[1_000]);
    suspend(&mut s, 1, &[0]);
    s.arrive("a", 1, 300).wait_s(1_000);
    let snapshot = serde_json::to_string(&s.core.state()).expect("serializes");
    let state = serde_json::from_str(&snapshot).expect("parses");
    s.core = Core::with_state(s.core.config().clone(), state);
    rest(&mut s, 0, Some(Rest::Paused));
    s.wait_s(500);
    answer_until(&mut s, None);
    s.wait_s(7);
    assert_eq!(waited(&s, 1), 7);
    let mut replayed = Core::new(s.core.config().clone());
    for (at, event) in &s.journal {
        replayed.handle(*at, event);
        while replayed.poll_command().is_some() {}
    }
    assert_eq!(replayed.state(), s.core.state());
}
