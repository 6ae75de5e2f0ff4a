//! Workers that operators take out of service: a cordoned one gets no programs, a draining one
//! loses its programs between their steps, and programs without another worker wait.

use crate::scenario::Scenario;
use treadle_core::memory::Capacity;
use treadle_core::programs::{Because, DecisionKind, Worker, WorkerState};
use treadle_core::programs::{ProgramCommand, ProgramEvent, Refusal};
use treadle_core::{Command, Core, CoreConfig, Event, Mode};
use treadle_model::{ProgramId, WorkerId};

use WorkerState::{Active, Cordoned, Draining};

fn worker(s: &Scenario, id: u32) -> &Worker {
    &s.core.programs().workers[&WorkerId(id)]
}

/// Workers between which moving a cache is much quicker than computing it.
fn moving(workers: &[u64]) -> Scenario {
    let mut s = Scenario::with_workers(workers);
    s.reconfigure(|config| {
        config.kv.migration_tokens_per_s = 10_000;
        config.kv.prefill_tokens_per_s = 100;
    });
    s
}

fn moves(s: &Scenario) -> Vec<(u64, u32)> {
    let moved = |c: &Command| match c {
        Command::Program(ProgramCommand::MigrateProgram { program, to, .. }) => {
            Some((program.0, to.0))
        }
        _ => None,
    };
    s.log.iter().filter_map(moved).collect()
}

#[test]
fn a_cordoned_worker_is_given_no_program_and_keeps_those_it_has() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("a", 1, 200).set_state(0, Cordoned);
    s.finish(1, 200, 10).arrive("a", 2, 220);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)], "it goes on");
    s.arrive("b", 3, 400)
        .arrive("c", 4, 500)
        .arrive("d", 5, 300);
    assert_eq!(s.dispatched()[2..], [(3, 1), (4, 1)], "the third waits");
    assert_eq!(worker(&s, 0).state_name(), "cordoned");
    s.set_state(0, Active);
    assert_eq!(s.dispatched()[4..], [(5, 0)]);
}

#[test]
fn a_paused_program_comes_back_elsewhere() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("a", 1, 200).lose(0).fail(1, true);
    assert_eq!(s.dispatched(), [(1, 0), (1, 1)]);
    s.set_state(1, Cordoned).fail(1, true);
    assert_eq!(s.dispatched()[2..], [(1, 1)], "it is placed there");
    s.finish(1, 200, 10).lose(1).arrive("a", 2, 220);
    let recovered = |worker| Event::Program(ProgramEvent::WorkerRecovered { worker });
    s.handle(recovered(WorkerId(1)));
    assert_eq!(s.dispatched().len(), 3, "it has no place there any more");
    s.handle(recovered(WorkerId(0)));
    assert_eq!(s.dispatched()[3..], [(2, 0)]);
}

#[test]
fn a_draining_worker_ends_its_steps_and_loses_its_programs() {
    let mut s = Scenario::with_workers(&[1_000, 500]);
    s.arrive("a", 1, 200).arrive("b", 2, 100).finish(2, 100, 10);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
    s.set_state(0, Draining);
    assert_eq!(s.status("b"), "paused", "it leaves at once");
    assert_eq!(s.status("a"), "active", "its step runs");
    assert_eq!(worker(&s, 0).state_name(), "draining");
    s.finish(1, 200, 10);
    assert_eq!(worker(&s, 0).state_name(), "drained");
    s.arrive("a", 4, 220).arrive("b", 5, 120);
    assert_eq!(s.dispatched()[2..], [(4, 1), (5, 1)]);
    let is_cut = |c: &Command| matches!(c, Command::Program(ProgramCommand::AbortStep { .. }));
    assert!(!s.log.iter().any(is_cut));
}

/// Each step of the program arrives before the previous one is over.
fn overlapping(mut s: Scenario) {
    s.arrive("p0", 1, 200);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.arrive("p0", 2, 210).set_state(0, Draining);
    assert_eq!(s.dispatched()[1..], [(2, 0)], "both run");
    s.arrive("p0", 3, 220).finish(1, 200, 10);
    s.arrive("p0", 4, 220);
    assert_eq!(s.dispatched().len(), 2, "others wait until it has left");
    assert_eq!(worker(&s, 0).state_name(), "draining");
    s.finish(2, 210, 10);
    assert_eq!(s.dispatched()[2..], [(3, 1), (4, 1)]);
    assert_eq!(worker(&s, 0).state_name(), "drained");
    assert!(s.refusals().is_empty());
}

#[test]
fn a_program_whose_steps_overlap_leaves_a_draining_worker() {
    overlapping(Scenario::with_workers(&[1_000, 900]));
    overlapping(Scenario::with_mode(Mode::Sticky, &[1_000, 900]));
    let mut bounded = Scenario::with_workers(&[1_000, 900]);
    bounded.reconfigure(|config| config.rollout.engine_steps_max = 3);
    overlapping(bounded);
}

#[test]
fn what_waits_to_leave_goes_on_when_the_worker_is_taken_back() {
    for state in [Active, Cordoned] {
        for mode in [Mode::ProgramAware, Mode::Sticky] {
            for engine_steps_max in [0, 2] {
                let mut s = Scenario::with_mode(mode, &[1_000]);
                s.reconfigure(|config| config.rollout.engine_steps_max = engine_steps_max);
                s.arrive("a", 1, 200).set_state(0, Draining);
                s.arrive("a", 2, 210);
                assert_eq!(s.dispatched(), [(1, 0)]);
                s.set_state(0, state);
                assert_eq!(s.dispatched()[1..], [(2, 0)], "{state:?} {mode:?}");
            }
        }
    }
}

#[test]
fn what_waited_to_leave_a_removed_worker_goes_elsewhere_once_it_is_registered_again() {
    let mut s = Scenario::with_workers(&[1_000, 900]);
    s.arrive("a", 1, 200).progress(1, 1).set_state(0, Draining);
    s.arrive("a", 2, 210);
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(0),
    }));
    assert_eq!(s.dispatched(), [(1, 0)], "the first step is being answered");
    let capacity = worker(&s, 0).capacity;
    s.add_worker(0, capacity);
    assert_eq!(
        s.dispatched()[1..],
        [(2, 1)],
        "it is lost, but not draining"
    );
}

#[test]
fn a_step_that_fails_beside_another_one_leaves_with_it() {
    let mut s = Scenario::with_workers(&[1_000, 900]);
    s.arrive("a", 1, 200).arrive("a", 2, 210);
    s.set_state(0, Draining).fail(1, true);
    assert_eq!(s.dispatched().len(), 2, "it is not tried again there");
    s.finish(2, 210, 10);
    assert_eq!(s.dispatched()[2..], [(1, 1)]);
}

#[test]
fn a_step_that_fails_on_a_draining_worker_goes_elsewhere() {
    let mut s = Scenario::with_workers(&[1_000, 500]);
    s.arrive("a", 1, 200).set_state(0, Draining).fail(1, true);
    assert_eq!(s.dispatched(), [(1, 0), (1, 1)]);
    assert!(worker(&s, 0).is_drained());
}

#[test]
fn programs_without_another_worker_wait_and_are_told_why() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 200)
        .finish(1, 200, 10)
        .set_state(0, Draining);
    assert!(worker(&s, 0).is_drained());
    s.arrive("a", 2, 220).wait_s(1_801);
    assert_eq!(s.dispatched(), [(1, 0)]);
    assert!(matches!(
        s.refusals().as_slice(),
        [(
            2,
            Refusal::QueueWaitExceeded {
                healthy_workers: 1,
                cordoned_workers: 1,
                ..
            }
        )]
    ));
    s.arrive("a", 3, 220).set_state(0, Active);
    assert_eq!(s.dispatched()[1..], [(3, 0)]);
}

#[test]
fn a_cache_is_moved_where_that_is_quicker_than_computing_it() {
    let mut s = moving(&[1_000, 900]);
    s.arrive("a", 1, 200)
        .finish(1, 200, 10)
        .set_state(0, Draining);
    assert_eq!(moves(&s), [(0, 1)]);
    let decision = std::iter::from_fn(|| s.core.poll_decision()).last();
    let decision = decision.expect("it is explained");
    assert_eq!(decision.kind, DecisionKind::Migrate);
    assert_eq!(decision.because, Because::WorkerDraining);
    assert_eq!(worker(&s, 0).state_name(), "draining");
    s.arrive("a", 2, 220);
    assert_eq!(s.dispatched(), [(1, 0)], "it waits for its cache");
    let (program, to) = (ProgramId(0), WorkerId(1));
    s.handle(Event::Program(ProgramEvent::ProgramMigrated {
        program,
        to,
    }));
    assert_eq!(s.dispatched()[1..], [(2, 1)]);
    assert!(worker(&s, 0).is_drained());
}

#[test]
fn a_move_that_fails_is_not_tried_again() {
    let mut s = moving(&[1_000, 900]);
    s.arrive("a", 1, 200)
        .finish(1, 200, 10)
        .set_state(0, Draining);
    let (program, cause) = (ProgramId(0), "not supported".into());
    s.handle(Event::Program(ProgramEvent::MigrationFailed {
        program,
        cause,
    }));
    s.wait_s(20).arrive("a", 2, 220);
    assert_eq!(moves(&s).len(), 1);
    assert_eq!(s.dispatched()[1..], [(2, 1)]);
    assert!(worker(&s, 0).is_drained());
}

#[test]
fn a_cache_goes_to_host_memory_where_no_worker_has_room() {
    let mut s = Scenario::with_workers(&[1_000, 100]);
    s.reconfigure(|config| {
        config.kv.host_tokens_max = 10_000;
        config.kv.host_tokens_per_s = 10_000;
        config.kv.prefill_tokens_per_s = 100;
    });
    s.arrive("a", 1, 200)
        .finish(1, 200, 10)
        .set_state(0, Draining);
    let leaves = |c: &Command| matches!(c, Command::Program(ProgramCommand::OffloadProgram { .. }));
    assert!(s.log.iter().any(leaves));
    let (program, copy) = (ProgramId(0), "copy".into());
    s.handle(Event::Program(ProgramEvent::ProgramOffloaded {
        program,
        copy,
        tokens: 210,
        bytes: 2_100,
    }));
    assert!(worker(&s, 0).is_drained());
    assert!(
        s.core
            .programs()
            .memory
            .offloads()
            .held()
            .contains_key(&program)
    );
}

#[test]
fn a_move_to_a_worker_that_is_cordoned_meanwhile_ends() {
    let mut s = moving(&[1_000, 900, 10]);
    s.arrive("a", 1, 200)
        .finish(1, 200, 10)
        .set_state(0, Draining);
    s.set_state(0, Active).set_state(1, Cordoned);
    let stopped =
        |c: &Command| matches!(c, Command::Program(ProgramCommand::CancelTransfer { .. }));
    assert!(s.log.iter().any(stopped));
    s.arrive("a", 2, 220);
    assert_eq!(s.dispatched()[1..], [(2, 0)]);
}

#[test]
fn plain_modes_obey_too() {
    let mut s = Scenario::with_mode(Mode::Sticky, &[1_000, 900]);
    s.arrive("a", 1, 200)
        .set_state(0, Cordoned)
        .arrive("b", 2, 10);
    s.finish(1, 200, 10).arrive("a", 3, 220);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1), (3, 0)]);
    s.finish(3, 220, 10).set_state(0, Draining);
    assert!(worker(&s, 0).is_drained());
    s.set_state(1, Draining).finish(2, 10, 1);
    s.arrive("a", 4, 240).arrive("b", 5, 20);
    assert_eq!(s.dispatched().len(), 3, "both wait");
    s.set_state(1, Active);
    assert_eq!(s.dispatched()[3..], [(4, 1), (5, 1)]);

    let mut s = Scenario::with_mode(Mode::LeastLoad, &[1_000, 900]);
    s.arrive("a", 1, 200).set_state(0, Cordoned);
    s.arrive("a", 2, 200).arrive("b", 3, 10);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1), (3, 1)]);
    s.set_state(0, Draining).finish(1, 200, 10);
    assert!(worker(&s, 0).is_drained());
}

/// The policy of these scenarios places the first program on the first worker, then on the other.
#[test]
fn what_policies_want_of_a_cordoned_worker_is_refused() {
    let mut s = Scenario::ranked(&[1_000, 1_000]);
    s.set_state(0, Cordoned).arrive("p0", 0, 100).wait_s(1);
    assert_eq!(s.dispatched(), [(0, 1)]);
    s.set_state(0, Active).set_state(1, Cordoned);
    s.finish(0, 100, 10).arrive("p0", 6, 120);
    assert_eq!(s.dispatched()[1..], [(6, 1)], "it stays where it is");
}

#[test]
fn the_state_outlives_a_restart_and_ends_with_the_registration() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.set_state(0, Cordoned).restart();
    let capacity = worker(&s, 0).capacity;
    s.add_worker(0, capacity);
    assert_eq!(worker(&s, 0).state, Cordoned);
    s.set_state(0, Active).arrive("a", 1, 200).progress(1, 1);
    s.set_state(0, Draining);
    let removed = WorkerId(0);
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: removed,
    }));
    s.add_worker(0, capacity);
    assert_eq!(worker(&s, 0).state, Active, "it is registered again");
}

#[test]
fn the_journal_replays_and_older_states_are_read() {
    let mut s = Scenario::with_workers(&[1_000, 900]);
    s.arrive("a", 1, 200)
        .set_state(0, Draining)
        .finish(1, 200, 10);
    s.arrive("a", 2, 220).set_state(0, Cordoned);
    let mut again = Scenario::with_workers(&[]).core;
    for (at, event) in &s.journal {
        let text = treadle_core_json::write_event(event);
        let event = treadle_core_json::read_event(&text).expect("it reads back");
        again.handle(*at, &event);
    }
    assert_eq!(again.state(), s.core.state());

    let event = r#"{"event":"worker_state_set","worker":0,"state":"draining"}"#;
    let event = treadle_core_json::read_event(event).expect("an event");
    let mut core = Core::new(CoreConfig::default());
    core.handle(s.now, &event);
    assert!(core.programs().workers.is_empty(), "it is not known");

    let text = serde_json::to_string(worker(&s, 1)).expect("JSON");
    assert!(!text.contains("\"state\""), "as it was before: {text}");
    let read: Worker = serde_json::from_str(&text).expect("it reads back");
    assert_eq!(read.state, Active);
    assert_eq!(
        read.capacity,
        Capacity {
            tokens: Some(900),
            ..Capacity::default()
        }
    );
}

#[test]
fn a_leaving_worker_does_not_decide_what_is_too_long() {
    let remove = |s: &mut Scenario| {
        let worker = WorkerId(0);
        s.handle(Event::Program(ProgramEvent::WorkerRemoved { worker }));
    };
    let capacity = |tokens| Capacity {
        tokens: Some(tokens),
        ..Capacity::default()
    };
    // It fails with its last step, which another worker may take.
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600).resize(0, 500);
    remove(&mut s);
    s.fail(1, true);
    assert_eq!(s.refusals(), []);
    s.add_worker(1, capacity(1_000));
    assert_eq!(s.dispatched(), [(1, 0), (1, 1)]);
    // No other program takes a waiting step, and none waits for nothing.
    let mut s = Scenario::with_workers(&[1_000, 300]);
    s.arrive("a", 1, 900).progress(1, 1).arrive("b", 2, 800);
    remove(&mut s);
    assert_eq!(s.refusals().len(), 1);
    // It comes back before its last step has ended.
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 900).progress(1, 1);
    remove(&mut s);
    s.arrive("b", 2, 2_000);
    assert_eq!(s.refusals(), []);
    s.add_worker(0, capacity(1_000));
    assert_eq!(s.refusals().len(), 1);
}
