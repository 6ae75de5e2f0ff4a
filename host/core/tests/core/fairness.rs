//! Programs that have waited for long, and policies that would keep them waiting.

use crate::scenario::Scenario;
use treadle_core::programs::Purpose;
use treadle_model::{ProgramId, WorkerId};

#[test]
fn a_starved_program_goes_first_and_gets_room() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("holder", 1, 700).finish(1, 700, 0);
    s.arrive("big", 2, 600);
    for round in 0..12 {
        s.wait_s(10);
        s.arrive("small", 100 + round, 200)
            .finish(100 + round, 200, 0);
    }
    s.wait_s(5);
    assert!(
        s.dispatched().contains(&(2, 0)),
        "after 120 s room is made for big"
    );
    assert_eq!(s.status("holder"), "paused");
}

#[test]
fn without_an_answer_those_are_paused_that_can_be_by_then() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("asked", 1, 300).finish(1, 300, 0);
    s.arrive("busy", 2, 300);
    s.arrive("grows", 3, 200).finish(3, 200, 0);
    s.mute_policy = true;
    s.arrive("grows", 4, 450);
    s.arrive("asked", 5, 320).finish(2, 300, 0);
    assert_eq!(s.status("busy"), "active");
    s.wait_s(6);
    assert_eq!(s.status("busy"), "paused");
    assert_eq!(s.status("asked"), "active");
}

#[test]
fn room_is_made_for_what_a_starved_program_lacks_by_then() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("at work", 10, 100).arrive("too", 11, 100);
    for (step, name) in [(1, "a"), (2, "b"), (3, "c")] {
        s.arrive(name, step, 240).finish(step, 240, 0);
    }
    s.arrive("starved", 4, 380).wait_s(119);
    s.mute_policy = true;
    s.wait_s(3);
    let asked = s
        .core
        .programs()
        .asks
        .open()
        .values()
        .map(|ask| ask.purpose);
    let (worker, excess_tokens) = (WorkerId(0), 300);
    let pause = Purpose::Pause {
        worker,
        excess_tokens,
    };
    assert!(asked.into_iter().any(|purpose| purpose == pause));
    s.arrive("a", 5, 280).wait_s(5);
    assert_eq!(s.status("b"), "paused");
    assert_eq!(s.status("c"), "paused");
}

#[test]
fn as_many_starved_programs_get_room_at_once_as_there_are_workers() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    for (step, name) in [(10, "at work"), (11, "too"), (12, "as well"), (13, "also")] {
        s.arrive(name, step, 100);
    }
    for (step, name) in [(1, "holds one"), (2, "holds the other")] {
        s.arrive(name, step, 500).finish(step, 500, 0);
    }
    s.arrive("first", 3, 600).arrive("second", 4, 600);
    s.arrive("third", 5, 600).wait_s(119);
    s.mute_policy = true;
    s.wait_s(3);
    let asked = s
        .core
        .programs()
        .asks
        .open()
        .values()
        .map(|ask| ask.purpose);
    let asked: Vec<Purpose> = asked.collect();
    for worker in [WorkerId(0), WorkerId(1)] {
        let pause = Purpose::Pause {
            worker,
            excess_tokens: 300,
        };
        assert!(asked.contains(&pause), "{asked:?}");
    }
    let holders = s.core.programs().waiting.reservations().values();
    assert!(holders.eq(&[ProgramId(6), ProgramId(7)]));
    s.wait_s(5);
    assert_eq!(s.status("holds one"), "paused");
    assert_eq!(s.status("holds the other"), "paused");
}

#[test]
fn a_policy_cannot_leave_out_a_starved_program() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.hidden = Some(ProgramId(1));
    s.arrive("holder", 1, 900).arrive("hidden", 2, 500);
    s.finish(1, 900, 0).release("holder").wait_s(119);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.wait_s(3);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
}

#[test]
fn a_starved_program_gets_a_slot_where_memory_is_free() {
    let mut s = Scenario::with_slots(&[(10_000, 1)]);
    s.arrive("holder", 1, 100).finish(1, 100, 0);
    s.arrive("waits", 2, 100).wait_s(125);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
    assert_eq!(s.status("holder"), "paused");
}

#[test]
fn a_policy_that_never_answers_delays_but_does_not_stop() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.mute_policy = true;
    s.arrive("a", 1, 300);
    assert_eq!(s.dispatched(), []);
    s.wait_s(6);
    assert_eq!(s.dispatched(), [(1, 0)]);
}
