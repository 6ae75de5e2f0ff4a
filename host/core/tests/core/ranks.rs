//! Ranks of one address step together: the largest load of them stays smallest.

use crate::scenario::{Scenario, arrival};
use std::collections::BTreeMap;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, WorkerState};
use treadle_core::{Event, Mode};
use treadle_model::{EngineKind, WorkerId};

/// Workers with 100,000 tokens at these URLs.
pub(crate) fn workers(urls: &[&str]) -> Scenario {
    let mut s = Scenario::with_mode(Mode::ProgramAware, &[]);
    for (worker, url) in (0..).zip(urls) {
        s.handle(Event::Program(ProgramEvent::WorkerAdded {
            worker: WorkerId(worker),
            url: (*url).into(),
            engine: EngineKind::Vllm,
            capacity: Capacity {
                tokens: Some(100_000),
                ..Capacity::default()
            },
            role: None,
        }));
    }
    s
}

const RANKS: [&str; 4] = ["http://a#0", "http://a#1", "http://a#2", "http://a#3"];

/// As its engine reports one rank more.
#[test]
fn a_rank_that_comes_to_a_cordoned_address_gets_no_step() {
    let mut s = workers(&RANKS[..2]);
    for worker in [WorkerId(0), WorkerId(1)] {
        let state = WorkerState::Cordoned;
        s.handle(Event::Program(ProgramEvent::WorkerStateSet {
            worker,
            state,
        }));
    }
    s.arrive("p", 1, 1_000);
    let add = |worker, url: &str| {
        Event::Program(ProgramEvent::WorkerAdded {
            worker: WorkerId(worker),
            url: url.into(),
            engine: EngineKind::Vllm,
            capacity: Capacity {
                tokens: Some(100_000),
                ..Capacity::default()
            },
            role: None,
        })
    };
    s.handle(add(2, RANKS[2]));
    assert!(
        s.dispatched().is_empty(),
        "its operator cordoned the address"
    );
    s.handle(add(3, ENGINES[1]));
    assert_eq!(s.dispatched(), [(1, 3)]);
}

const ENGINES: [&str; 4] = ["http://a", "http://b", "http://c", "http://d"];

/// Three long programs at each worker but one, and then a group of eight with short prompts.
/// Returns how many of the group each worker got.
fn group_beside_an_empty_worker(urls: &[&str]) -> [usize; 4] {
    let mut s = workers(urls);
    for step in 0..12 {
        s.arrive(&format!("long {step}"), step, 10_000);
    }
    let at_last = s
        .dispatched()
        .into_iter()
        .filter(|(_, worker)| *worker == 3);
    let at_last: Vec<u64> = at_last.map(|(step, _)| step).collect();
    assert_eq!(at_last.len(), 3);
    for step in 0..12 {
        s.finish(step, 10_000, 10);
    }
    for step in at_last {
        s.release(&format!("long {step}"));
    }
    for step in 100..108 {
        let mut arrival = arrival(&format!("member {step}"), step, 100, vec![]);
        arrival.group = Some(7);
        s.handle(Event::Program(ProgramEvent::StepArrived(arrival)));
    }
    let placed: BTreeMap<u64, u32> = s.dispatched().into_iter().collect();
    let of_group = placed.range(100..).map(|(_, worker)| *worker);
    let workers: Vec<u32> = of_group.collect();
    [0, 1, 2, 3].map(|worker| workers.iter().filter(|at| **at == worker).count())
}

#[test]
fn a_group_is_spread_over_ranks_though_one_has_most_room() {
    let spread = group_beside_an_empty_worker(&RANKS);
    assert!(
        spread[3] >= 2 && spread.iter().all(|count| *count >= 1),
        "{spread:?}"
    );
    // Engines of their own do not wait for each other.
    assert_eq!(group_beside_an_empty_worker(&ENGINES), [0, 0, 0, 8]);
}

/// Two ranks of an address and an engine, each with the cache of one program.
pub(crate) fn filled_unequally() -> Scenario {
    let mut s = workers(&["http://a#0", "http://a#1", "http://b"]);
    for (step, tokens) in [(0, 30_000), (1, 20_000), (2, 25_000)] {
        s.arrive(&format!("long {step}"), step, tokens);
    }
    assert_eq!(s.dispatched(), [(0, 0), (1, 1), (2, 2)]);
    for (step, tokens) in [(0, 30_000), (1, 20_000), (2, 25_000)] {
        s.finish(step, tokens, 10);
    }
    s
}

#[test]
fn room_decides_between_endpoints_and_load_between_their_ranks() {
    let mut s = filled_unequally();
    // The second rank has most room, so they go to its endpoint; then to the one with fewer
    // programs.
    for step in 3..7 {
        s.arrive(&format!("short {step}"), step, 10);
    }
    let places: Vec<u32> = s.dispatched().iter().map(|(_, worker)| *worker).collect();
    assert_eq!(places[3..], [1, 0, 1, 0], "{places:?}");
}
