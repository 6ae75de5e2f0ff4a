//! Engines that report that they offload caches to host memory of their own: they have room for all
//! programs until a cache is lost, and programs wait for a shorter time there.

use crate::scenario::Scenario;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, StepTokens};
use treadle_core::{Core, DaemonEvent, Event};
use treadle_model::{EngineKind, FinishReason, Span, StepId, WorkerId};

/// One worker with 10,000 tokens of KV memory, which computes 100,000 per second.
pub(crate) fn engine(offloads: bool) -> Scenario {
    let mut s = Scenario::with_workers(&[]);
    s.reconfigure(|config| {
        config.kv.retention = true;
        config.kv.prefill_tokens_per_s = 100_000;
        config.deferral_min = Span::from_secs(1);
    });
    s.add_worker(0, capacity(offloads));
    s
}

fn capacity(offloads: bool) -> Capacity {
    Capacity {
        tokens: Some(10_000),
        offloads,
        ..Capacity::default()
    }
}

/// Four programs arrive at once with a step each, numbered from `first`; returns how many are sent.
pub(crate) fn round(s: &mut Scenario, first: u64) -> usize {
    for (step, program) in (first..).zip(["a", "b", "c", "d"]) {
        s.arrive(program, step, 4_000);
    }
    let sent = s.dispatched();
    sent.iter().filter(|(step, _)| *step >= first).count()
}

/// The engine finishes a step, and reports `cached` tokens of its prompt.
pub(crate) fn finish(s: &mut Scenario, step: u64, cached: impl Into<Option<u64>>) {
    s.wait_s(1).progress(step, 1);
    let tokens = StepTokens {
        prompt: 4_000,
        output: 10,
        cached: cached.into(),
    };
    s.handle(Event::Program(ProgramEvent::StepFinished {
        step: StepId(step),
        tokens,
        finish: FinishReason::Stop,
        weights: None,
    }));
}

fn offloads(s: &Scenario) -> bool {
    s.core.programs().workers[&WorkerId(0)].offloads_itself()
}

fn host_tokens(s: &Scenario) -> u64 {
    s.core.programs().workers[&WorkerId(0)].host_tokens()
}

#[test]
fn nobody_waits_until_a_cache_is_lost() {
    let mut s = engine(true);
    assert_eq!(round(&mut s, 1), 4);
    (1..5).for_each(|step| finish(&mut s, step, 0));
    assert_eq!(host_tokens(&s), 4 * 4_010 - 10_000);
    // It still has all four caches; later it does not.
    assert_eq!(round(&mut s, 5), 4);
    (5..9).for_each(|step| finish(&mut s, step, 4_000));
    assert_eq!(round(&mut s, 9), 4);
    (9..13).for_each(|step| finish(&mut s, step, 0));
    round(&mut s, 13);
    s.arrive("e", 17, 4_000);
    let sent = |step| s.dispatched().iter().any(|(sent, _)| *sent == step);
    assert!(sent(13) && !sent(17), "it is full, by what is known now");
}

#[test]
fn an_engine_that_does_not_tell_what_it_finds_is_not_believed() {
    let mut s = engine(true);
    assert_eq!(round(&mut s, 1), 4);
    (1..5).for_each(|step| finish(&mut s, step, None));
    assert!(offloads(&s), "first steps have nothing to find");
    assert_eq!(round(&mut s, 5), 4);
    finish(&mut s, 5, None);
    assert!(!offloads(&s));
}

#[test]
fn a_count_that_is_left_out_is_nothing_where_one_was_given_before() {
    let mut s = engine(true);
    assert_eq!(round(&mut s, 1), 4);
    (1..5).for_each(|step| finish(&mut s, step, None));
    assert_eq!(round(&mut s, 5), 4);
    (5..9).for_each(|step| finish(&mut s, step, 4_000));
    assert_eq!(round(&mut s, 9), 4);
    assert!(
        s.core.programs().workers[&WorkerId(0)]
            .ledger
            .engine()
            .is_unbounded()
    );
    finish(&mut s, 9, None);
    let reuse = s.core.programs().workers[&WorkerId(0)].ledger.engine();
    assert!(!reuse.is_unbounded(), "a cache was lost");
    assert!(reuse.beyond_tokens() > 0, "of which something is learnt");
}

#[test]
fn others_are_full_when_their_kv_memory_is() {
    assert_eq!(round(&mut engine(false), 1), 2);
}

#[test]
fn what_it_says_holds_from_when_it_says_so_and_after_it_was_lost() {
    let mut s = engine(false);
    assert!(!offloads(&s));
    s.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
        worker: WorkerId(0),
        engine: EngineKind::Vllm,
        capacity: capacity(true),
    }));
    assert!(offloads(&s));
    s.handle(Event::Program(ProgramEvent::WorkerLost {
        worker: WorkerId(0),
        cause: "gone".into(),
    }));
    s.handle(Event::Program(ProgramEvent::WorkerRecovered {
        worker: WorkerId(0),
    }));
    assert!(offloads(&s));
    // If treadle offloads by itself, or retention is off, the report is ignored.
    for off in [true, false] {
        let mut config = s.core.config().clone();
        config.kv.retention = !off;
        config.kv.host_tokens_max = if off { 0 } else { 10_000 };
        s.handle(Event::Daemon(DaemonEvent::Configured {
            config: Box::new(config),
        }));
        assert!(!offloads(&s));
    }
}

#[test]
fn a_snapshot_has_what_it_says_before_it_is_used() {
    let s = engine(true);
    let text = treadle_core_json::write_state(&s.core.state()).expect("JSON");
    let state = treadle_core_json::read_state(&text).expect("it reads back");
    let again = Core::with_state(s.core.config().clone(), state);
    assert_eq!(again.state(), s.core.state());
}

#[test]
fn the_starvation_bound_is_shorter() {
    for (offloads, expected_ms) in [(false, 80_200), (true, 60_150)] {
        let mut s = engine(offloads);
        s.reconfigure(|config| config.kv.prefill_tokens_per_s = 100);
        s.arrive("a", 1, 4_000);
        finish(&mut s, 1, 0);
        let bound = s.core.starvation_bound();
        assert_eq!(bound, Span::from_millis(expected_ms));
    }
}
