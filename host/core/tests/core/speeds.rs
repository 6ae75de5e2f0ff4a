//! Speeds of engines, as measured at registration.

use crate::scenario::Scenario;
use treadle_core::estimates::{CLASSES_MAX, EngineClass};
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepTokens};
use treadle_core::{Command, Event};
use treadle_model::{FinishReason, Span, StepId, WorkerId};

fn measured(worker: u32, prefill_tokens_per_s: u64) -> Event {
    Event::Program(ProgramEvent::WorkerSpeedRead {
        worker: WorkerId(worker),
        prefill_tokens_per_s,
        token_us: 20_000,
        step_us: 0,
        declared: false,
    })
}

/// A speed declared at registration: a profile.
fn declared(worker: u32, prefill_tokens_per_s: u64, token_us: u64, step_us: u64) -> Event {
    Event::Program(ProgramEvent::WorkerSpeedRead {
        worker: WorkerId(worker),
        prefill_tokens_per_s,
        token_us,
        step_us,
        declared: true,
    })
}

/// Time per token at a worker, and the increase per further step, in microseconds.
fn token(s: &Scenario, worker: u32) -> Option<(u64, Option<u64>)> {
    let worker = &s.core.programs().workers[&WorkerId(worker)];
    let time = worker.speeds.decode_time()?;
    Some((time.alone.0, time.further.map(Span::micros)))
}

/// Steps of a hundred tokens one after the other, with this time per token.
fn steps(s: &mut Scenario, first: u64, count: u64, token_ms: u64) {
    for step in first..first + count {
        s.arrive("a", step, 100).progress(step, 1);
        s.wait_s(token_ms / 10).finish(step, 100, 101);
        s.release("a");
    }
}

#[test]
fn a_profile_holds_until_the_engines_own_steps_tell() {
    let mut s = Scenario::with_workers(&[100_000]);
    s.handle(declared(0, 9_000, 40_000, 700));
    assert_eq!(token(&s, 0), Some((40_000, Some(700))));
    assert_eq!(speed(&s, 0), Some(9_000));
    assert_eq!(s.core.programs().estimates.prefill_tokens_per_s(), 9_000);
    s.handle(declared(0, 0, 30_000, 0));
    assert_eq!(
        token(&s, 0),
        Some((30_000, None)),
        "another one replaces it"
    );
    assert_eq!(speed(&s, 0), Some(9_000), "of that it says nothing");
    s.handle(declared(0, 0, 40_000, 700));
    steps(&mut s, 1, 8, 20);
    let (alone, further) = token(&s, 0).expect("seen");
    assert!((20_000..=22_500).contains(&alone), "{alone}");
    assert_eq!(further, Some(700), "no step has shown it");
    s.handle(declared(0, 0, 40_000, 700));
    let (alone, _) = token(&s, 0).expect("seen");
    assert!((20_000..=22_500).contains(&alone), "it is learnt: {alone}");
}

fn speed(s: &Scenario, worker: u32) -> Option<u64> {
    let worker = &s.core.programs().workers[&WorkerId(worker)];
    worker.speeds.prefill_tokens_per_s()
}

#[test]
fn a_measured_speed_outlives_a_loss_until_the_engines_own_steps_tell() {
    let mut s = Scenario::with_workers(&[1_000, 2_000, 3_000]);
    s.handle(measured(0, 15_000)).handle(measured(1, 900_000));
    assert_eq!(speed(&s, 0), Some(15_000));
    assert_eq!(s.core.programs().estimates.prefill_tokens_per_s(), 15_000);
    s.handle(measured(2, 0)).handle(measured(7, 1));
    assert_eq!(speed(&s, 2), None, "that is no speed");
    assert_eq!(token(&s, 0), Some((20_000, None)));
    s.lose(1).lose(2);
    steps(&mut s, 1, 20, 10);
    s.lose(0);
    let (alone, _) = token(&s, 0).expect("it was seen");
    assert!(alone < 16_000, "{alone}");
    assert_eq!(speed(&s, 0), Some(15_000));
    s.recover(0);
    assert_eq!(token(&s, 0), Some((alone, None)));
    steps(&mut s, 21, 8, 30);
    let (slower, _) = token(&s, 0).expect("it was seen");
    assert!((29_000..=31_000).contains(&slower), "{slower}");
    s.lose(0).handle(measured(0, 8_000));
    assert_eq!(
        (speed(&s, 0), token(&s, 0)),
        (Some(8_000), Some((20_000, None)))
    );
}

#[test]
fn a_measurement_leaves_what_it_does_not_tell() {
    let mut s = Scenario::with_workers(&[100_000]);
    s.handle(declared(0, 9_000, 40_000, 700)).lose(0);
    s.handle(measured(0, 0)).recover(0);
    assert_eq!(token(&s, 0), Some((20_000, Some(700))));
    assert_eq!(speed(&s, 0), Some(9_000));
}

#[test]
fn another_engine_at_the_same_address_has_its_own_speed() {
    let told = |model: &str| {
        Event::Program(ProgramEvent::WorkerModelRead {
            worker: WorkerId(0),
            model: model.into(),
        })
    };
    let mut s = Scenario::with_workers(&[100_000]);
    s.handle(declared(0, 9_000, 40_000, 700));
    s.handle(told("m"))
        .lose(0)
        .handle(told("m"))
        .handle(told(""));
    assert_eq!(token(&s, 0), Some((40_000, Some(700))));
    s.resize(0, 90_000);
    assert_eq!(speed(&s, 0), Some(9_000), "it holds a little less");
    s.handle(told("n"));
    assert_eq!((token(&s, 0), speed(&s, 0)), (None, None));
    s.handle(declared(0, 9_000, 40_000, 700)).lose(0);
    s.recount_slots(0, 100_000, 4);
    assert_eq!((token(&s, 0), speed(&s, 0)), (None, None));
}

#[test]
fn an_engine_begins_with_what_is_known_of_its_class() {
    let mut s = Scenario::with_workers(&[100_000, 100_000, 50_000]);
    s.handle(declared(0, 9_000, 40_000, 700));
    let of = |s: &Scenario, worker| {
        let state = s.core.programs();
        let worker = &state.workers[&WorkerId(worker)];
        let time = state.decode_time_of(worker).map(|time| time.alone.0);
        (time, state.prefill_speed_of(worker))
    };
    assert_eq!(of(&s, 1), (Some(40_000), Some(9_000)));
    assert_eq!(of(&s, 2), (None, None), "it has other memory");
    s.handle(measured(1, 12_000));
    assert_eq!(of(&s, 1), (Some(20_000), Some(12_000)), "its own");
}

/// The time to compute the first program's context, from the last question.
fn prefill(s: &Scenario) -> Option<Span> {
    let of_question = |command: &Command| match command {
        Command::Program(ProgramCommand::AskPolicy { question, .. }) => {
            question.programs.costs.prefill.first().copied()
        }
        _ => None,
    };
    s.log.iter().rev().find_map(of_question)
}

#[test]
fn what_is_measured_comes_before_what_is_configured() {
    let mut s = Scenario::ranked(&[100_000]);
    s.reconfigure(|config| config.kv.prefill_tokens_per_s = 100);
    s.arrive("a", 1, 490).wait_s(1).finish(1, 490, 10);
    s.arrive("a", 2, 490);
    assert_eq!(prefill(&s), Some(Span::from_secs(5)));
    s.handle(measured(0, 1_000)).finish(2, 490, 10);
    s.arrive("a", 3, 600);
    assert_eq!(prefill(&s), Some(Span::from_millis(500)));
}

#[test]
fn how_contexts_of_a_job_grow_is_learnt() {
    let mut s = Scenario::with_workers(&[100_000]);
    let habits = |s: &Scenario| {
        let p = s.core.programs().live.values().next();
        let job = p.and_then(|p| s.core.programs().estimates.jobs().get(&p.job));
        job.and_then(treadle_core::estimates::JobStatistics::habits)
    };
    for step in 1..=10 {
        let prompt = 1_000 + 300 * step;
        s.arrive("a", step, prompt).finish(step, prompt, 100);
        assert_eq!(habits(&s).is_some(), step >= 8, "after {step}");
        s.wait_s(2);
    }
    let habits = habits(&s).expect("ten steps are enough");
    assert!((habits.growth - 3.0).abs() < 0.01, "{habits:?}");
    assert!((habits.tool_us - 20_000.0).abs() < 200.0, "{habits:?}");
}

#[test]
fn an_answer_in_one_piece_tells_how_long_a_token_takes() {
    let mut s = Scenario::with_workers(&[100_000]);
    let pace = |s: &Scenario| s.core.programs().workers[&WorkerId(0)].speeds.decode_time();
    s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
        worker: WorkerId(0),
        prefill_tokens_per_s: 1_000,
        token_us: 0,
        step_us: 0,
        declared: false,
    }));
    assert_eq!(pace(&s), None);
    for step in 1..=8 {
        // A second for the prompt, and two for a hundred tokens.
        s.arrive("a", step, 1_000).wait_s(3);
        s.handle(Event::Program(ProgramEvent::StepFinished {
            step: StepId(step),
            tokens: StepTokens {
                prompt: 1_000,
                output: 100,
                cached: Some(0),
            },
            finish: FinishReason::Stop,
            weights: None,
        }));
        s.release("a");
    }
    assert_eq!(pace(&s).map(|time| time.alone), Some(Span(20_000)));
}

/// An engine with its model, number of GPUs and speed.
fn engine(s: &mut Scenario, worker: u32, (model, gpus): (&str, u32), token_us: u64) {
    s.add_worker(
        worker,
        Capacity {
            tokens: Some(100_000),
            gpus: Some(gpus),
            ..Capacity::default()
        },
    );
    s.handle(Event::Program(ProgramEvent::WorkerModelRead {
        worker: WorkerId(worker),
        model: model.into(),
    }));
    if token_us > 0 {
        s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker: WorkerId(worker),
            prefill_tokens_per_s: 1_000 * u64::from(gpus),
            token_us,
            step_us: 50,
            declared: false,
        }));
    }
}

fn remove(s: &mut Scenario, worker: u32) {
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(worker),
    }));
}

#[test]
fn what_an_engine_was_like_is_known_when_it_is_gone() {
    let mut s = Scenario::with_workers(&[]);
    engine(&mut s, 0, ("m", 1), 30_000);
    engine(&mut s, 1, ("m", 4), 9_000);
    assert!(
        s.core.programs().estimates.classes().is_empty(),
        "they are there"
    );
    s.wait_s(60);
    remove(&mut s, 1);
    s.wait_s(60);
    remove(&mut s, 0);
    assert!(s.core.programs().workers.is_empty());
    let known = |s: &Scenario| -> Vec<_> {
        let classes = s.core.programs().estimates.classes().iter();
        let of = |class: &EngineClass| (class.gpus, class.time.alone.0, class.capacity_tokens);
        classes.map(of).collect()
    };
    let both = [
        (Some(1), 30_000, Some(100_000)),
        (Some(4), 9_000, Some(100_000)),
    ];
    assert_eq!(known(&s), both, "the last one first");
    let text = treadle_core_json::write_state(&s.core.state()).expect("it has a JSON form");
    let read = treadle_core_json::read_state(&text).expect("it is a state");
    assert_eq!(read, s.core.state());
    // Another engine of the class starts with that speed, one of another class does not.
    engine(&mut s, 2, ("m", 4), 0);
    engine(&mut s, 3, ("n", 4), 0);
    let state = s.core.programs();
    let begins = |worker| {
        let worker = &state.workers[&WorkerId(worker)];
        let time = state.decode_time_of(worker);
        let time = time.map(|time| (time.alone.0, time.further));
        (time, state.prefill_speed_of(worker))
    };
    assert_eq!(begins(2), (Some((9_000, Some(Span(50)))), Some(4_000)));
    assert_eq!(begins(3), (None, None));
    // A declared speed does not replace a measured one.
    s.handle(declared(2, 1, 77_000, 0));
    remove(&mut s, 2);
    assert_eq!(known(&s), both);
}

#[test]
fn no_more_classes_are_known_than_may_be() {
    let mut s = Scenario::with_workers(&[]);
    for gpus in 1..=70 {
        engine(&mut s, gpus, ("m", gpus), 1_000 + u64::from(gpus));
        remove(&mut s, gpus);
    }
    let classes = s.core.programs().estimates.classes();
    assert_eq!(classes.iter().count(), CLASSES_MAX);
    assert_eq!(
        classes.iter().next().map(|class| class.gpus),
        Some(Some(70))
    );
    assert_eq!(classes.iter().last().map(|class| class.gpus), Some(Some(7)));
}
