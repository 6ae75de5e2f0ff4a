//! A program leaves a slow engine for a faster one with room, if that is worth computing its context
//! again.

use crate::scenario::Scenario;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::WorkerId;

/// Two engines that differ only in the time per token. The first program to come goes to the slow
/// one, which has more memory.
fn engines(slow_us: u64, fast_us: u64) -> Scenario {
    engines_with(slow_us, fast_us, 0)
}

/// The same, with each further step slowing down all others by `step_us`.
fn engines_with(slow_us: u64, fast_us: u64, step_us: u64) -> Scenario {
    let mut s = Scenario::with_workers(&[200_000, 100_000]);
    for (worker, token_us) in [(0, slow_us), (1, fast_us)] {
        s.handle(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker: WorkerId(worker),
            prefill_tokens_per_s: 10_000,
            token_us,
            step_us,
            declared: true,
        }));
    }
    s
}

/// The worker of the second step of a program whose first one generated `output` tokens.
fn second(s: &mut Scenario, output: u64) -> u32 {
    s.arrive("a", 1, 20_000);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.wait_s(10).finish(1, 20_000, output);
    s.arrive("a", 2, 20_000 + output);
    s.dispatched()[1].1
}

#[test]
fn what_has_long_to_go_leaves_a_slow_engine() {
    // 1,000 tokens more: 20 s less; its context takes 2.1 s.
    assert_eq!(second(&mut engines(30_000, 10_000), 1_000), 1);
    // 200 tokens more: 4 s less, which is not twice 2.02 s.
    assert_eq!(second(&mut engines(30_000, 10_000), 200), 0);
    // Faster by less than half: load alone makes such a difference.
    assert_eq!(second(&mut engines(30_000, 16_000), 1_000), 0);
    // The speed of one is unknown.
    assert_eq!(second(&mut engines(30_000, 0), 1_000), 0);
}

#[test]
fn an_engine_that_is_slow_by_its_load_alone_is_not_left() {
    for (slow_us, expected) in [(10_000, 0), (100_000, 1)] {
        let mut s = engines_with(slow_us, 10_000, 10_000);
        s.arrive("a", 1, 20_000).wait_s(10).finish(1, 20_000, 1_000);
        // Four more steps: 50 ms per token there, and 10 ms on the other.
        for (step, name) in (10..).zip(["b", "c", "d", "e"]) {
            s.arrive(name, step, 100);
        }
        let here = s
            .dispatched()
            .iter()
            .filter(|(_, worker)| *worker == 0)
            .count();
        assert_eq!(here, 5, "{:?}", s.dispatched());
        s.arrive("a", 2, 21_000);
        assert_eq!(s.dispatched().last(), Some(&(2, expected)), "{slow_us}");
    }
}

#[test]
fn it_stays_where_somebody_waits() {
    let mut s = engines(30_000, 10_000);
    s.arrive("a", 1, 20_000).arrive("b", 3, 160_000);
    s.arrive("c", 4, 50_000);
    assert_eq!(s.dispatched(), [(1, 0), (3, 0), (4, 1)]);
    // Neither engine has room for this one; the faster one would have it for the other.
    s.arrive("d", 5, 90_000);
    s.wait_s(10).finish(1, 20_000, 1_000);
    s.arrive("a", 2, 21_000);
    assert_eq!(s.dispatched()[3..], [(2, 0)]);
    // The same without waiting programs.
    s.release("d");
    s.wait_s(10).finish(2, 21_000, 1_000);
    s.arrive("a", 6, 22_000);
    assert_eq!(s.dispatched()[4..], [(6, 1)]);
}

#[test]
fn it_stays_where_the_faster_engine_is_full() {
    let mut s = engines(30_000, 10_000);
    s.arrive("a", 1, 20_000).arrive("b", 3, 170_000);
    s.arrive("c", 4, 95_000);
    let places: Vec<u32> = s
        .dispatched()
        .into_iter()
        .map(|(_, worker)| worker)
        .collect();
    assert_eq!(places[0], 0);
    assert!(places.contains(&1), "{places:?}");
    s.wait_s(10).finish(1, 20_000, 1_000);
    s.arrive("a", 2, 21_000);
    assert_eq!(s.dispatched().last(), Some(&(2, 0)));
}

#[test]
fn what_it_moved_for_is_said() {
    let mut s = engines(30_000, 10_000);
    s.reconfigure(|config| config.explain = true);
    assert_eq!(second(&mut s, 1_000), 1);
    let mut decisions = Vec::new();
    while let Some(decision) = s.core.poll_decision() {
        decisions.push(decision);
    }
    let last = decisions.last().expect("one was made");
    let text = serde_json::to_value(last).expect("it has a JSON form");
    assert_eq!(
        (&text["because"], &text["worker"]),
        (&"faster_worker".into(), &1.into())
    );
}
