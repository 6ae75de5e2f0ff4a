//! Scripted scenarios: short sequences with a known end.

use crate::scenario::Scenario;
use treadle_core::estimates::JOBS_MAX;
use treadle_core::programs::{Alternative, Decision, DecisionKind};
use treadle_core::programs::{ProgramCommand, ProgramEvent, Refusal, StepArrival, StepTokens};
use treadle_core::{Command, Core, Event, Mode};
use treadle_model::{FinishReason, ProgramId, StepId, WorkerId};

#[test]
fn a_new_program_is_placed_where_most_is_free() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("a", 1, 500);
    assert_eq!(s.dispatched(), [(1, 1)]);
}

#[test]
fn a_program_stays_placed_through_its_tool_call() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("at work", 7, 100).arrive("too", 8, 100);
    s.arrive("a", 1, 400).finish(1, 400, 0).wait_s(30);
    s.arrive("b", 2, 500);
    assert_eq!(s.dispatched().len(), 3, "b waits: a stays placed");
    s.arrive("a", 3, 450);
    assert_eq!(s.dispatched().last(), Some(&(3, 0)));
}

#[test]
fn an_engine_does_not_stand_still_for_caches_of_programs_whose_tools_run() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600).finish(1, 600, 0);
    s.arrive("b", 2, 600);
    assert_eq!(s.dispatched().last(), Some(&(2, 0)));
    assert_eq!(s.status("a"), "paused", "both do not fit");
    s.arrive("c", 3, 500);
    assert_eq!(
        s.dispatched().last(),
        Some(&(2, 0)),
        "beside b is no room for c"
    );
    s.finish(2, 600, 0);
    assert_eq!(s.dispatched().last(), Some(&(3, 0)));
}

#[test]
fn waiting_programs_are_placed_when_room_appears() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600).arrive("b", 2, 600);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.finish(1, 600, 0).release("a");
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
}

#[test]
fn growth_pauses_the_shortest_acting_program() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("short", 1, 200).finish(1, 200, 0);
    s.arrive("long", 2, 500).finish(2, 500, 0);
    s.arrive("grows", 3, 200).finish(3, 200, 0);
    s.arrive("grows", 4, 450);
    assert_eq!(s.status("short"), "paused");
    assert_eq!(s.status("long"), "active");
    assert_eq!(s.status("grows"), "active");
}

#[test]
fn a_decision_names_the_programs_that_could_have_been_chosen() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("short", 1, 200).finish(1, 200, 0);
    s.arrive("long", 2, 500).finish(2, 500, 0);
    s.arrive("grows", 3, 200).finish(3, 200, 0);
    s.arrive("grows", 4, 450);
    let decisions: Vec<_> = std::iter::from_fn(|| s.core.poll_decision()).collect();
    let pauses = |one: &&Decision| one.kind == DecisionKind::Pause && &*one.key == "short";
    let pause = decisions.iter().find(pauses).expect("it was paused");
    let others = pause.alternatives.iter().map(|other| other.key.as_deref());
    assert_eq!(others.collect::<Vec<_>>(), [Some("long")]);
    // Records from before keys were stored can be read too.
    let old = r#"{"program": 7, "score": 0.5}"#;
    let old: Alternative = serde_json::from_str(old).expect("it is read");
    assert_eq!((old.key, old.score), (None, 0.5));
}

#[test]
fn growth_while_streaming_pauses_too() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("idle", 1, 400).finish(1, 400, 0);
    s.arrive("busy", 2, 500);
    assert_eq!(s.status("idle"), "active");
    s.progress(2, 200);
    assert_eq!(s.status("idle"), "paused");
}

#[test]
fn shared_prefixes_are_counted_once() {
    let mut s = Scenario::with_workers(&[1_000]);
    for (step, key) in [(1, "a"), (2, "b"), (3, "c")] {
        s.arrive_sharing(key, step, 500, 7, 300);
    }
    assert_eq!(s.dispatched().len(), 3, "300 shared once and 3 x 200");
    s.arrive_sharing("d", 4, 500, 7, 300);
    assert_eq!(s.dispatched().len(), 3, "a fourth does not fit");
}

#[test]
fn a_paused_program_returns_to_another_worker() {
    let mut s = Scenario::with_workers(&[1_000, 900]);
    s.arrive("a", 1, 600).finish(1, 600, 0);
    s.arrive("b", 2, 300).finish(2, 300, 0);
    s.arrive("c", 3, 500).finish(3, 500, 0);
    // On worker 0: a 600; on worker 1: b 300 and c 500. c grows: b must go.
    s.arrive("c", 4, 800);
    assert_eq!(s.status("b"), "paused");
    s.arrive("b", 5, 350);
    assert_eq!(s.dispatched().last(), Some(&(5, 0)));
    assert_eq!(s.core.programs().counters.moves, 1);
}

#[test]
fn a_prompt_that_can_never_fit_is_refused_at_once() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("a", 1, 2_001);
    assert!(matches!(
        s.refusals().as_slice(),
        [(
            1,
            Refusal::ContextTooLong {
                prompt_tokens: 2_001,
                tokens_max: 2_000
            }
        )]
    ));
    assert_eq!(s.core.programs().steps.len(), 0);
}

#[test]
fn a_wait_beyond_its_bound_is_refused_with_its_cause() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.lose(0).arrive("a", 1, 10).wait_s(1_801);
    assert!(matches!(
        s.refusals().as_slice(),
        [(
            1,
            Refusal::QueueWaitExceeded {
                healthy_workers: 0,
                ..
            }
        )]
    ));
}

#[test]
fn programs_of_a_lost_worker_move() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("a", 1, 300).finish(1, 300, 0);
    let home = s.dispatched()[0].1;
    s.lose(home).arrive("a", 2, 320);
    assert_eq!(s.dispatched()[1], (2, 1 - home));
}

#[test]
fn an_unanswered_step_of_a_lost_worker_is_sent_elsewhere() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("a", 1, 300);
    let home = s.dispatched()[0].1;
    s.lose(home);
    assert!(
        s.log
            .iter()
            .any(|c| matches!(c, Command::Program(ProgramCommand::AbortStep { .. })))
    );
    s.fail(1, true);
    assert_eq!(s.dispatched()[1], (1, 1 - home));
}

#[test]
fn a_step_that_keeps_failing_is_refused() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300)
        .fail(1, true)
        .fail(1, true)
        .fail(1, true);
    assert!(matches!(
        s.refusals().as_slice(),
        [(1, Refusal::EngineFailed { attempts: 3, .. })]
    ));
}

#[test]
fn an_idle_program_is_closed() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300).finish(1, 300, 0).wait_s(3_500);
    assert_eq!(s.status("a"), "active");
    s.wait_s(200);
    assert_eq!(s.status("a"), "gone");
    assert_eq!(s.core.next_deadline(), None, "nothing is left to do");
}

#[test]
fn an_inferred_program_holds_no_memory_and_is_soon_forgotten() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive_inferred("auto-1", 1, 900).finish(1, 900, 0);
    s.arrive("named", 2, 900);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
    s.wait_s(130);
    assert_eq!(s.status("auto-1"), "gone");
}

#[test]
fn a_restart_ends_steps_and_keeps_programs() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300)
        .finish(1, 300, 0)
        .arrive("a", 2, 400)
        .arrive("b", 3, 900);
    s.restart();
    assert_eq!(s.core.programs().steps.len(), 0);
    assert_eq!(s.status("a"), "active");
    assert_eq!(s.core.programs().program("a").unwrap().steps_finished, 1);
}

#[test]
fn sticky_never_waits_and_never_moves() {
    let mut s = Scenario::with_mode(Mode::Sticky, &[1_000, 1_000]);
    s.arrive("a", 1, 900)
        .arrive("b", 2, 900)
        .arrive("c", 3, 900);
    s.finish(1, 900, 0)
        .finish(2, 900, 0)
        .finish(3, 900, 0)
        .arrive("c", 4, 950);
    assert_eq!(s.dispatched().len(), 4);
    assert_eq!(s.dispatched()[2].1, s.dispatched()[3].1);
}

#[test]
fn least_load_spreads_steps() {
    let mut s = Scenario::with_mode(Mode::LeastLoad, &[1_000, 1_000]);
    s.arrive("a", 1, 900)
        .arrive("a", 2, 900)
        .arrive("a", 3, 900);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1), (3, 0)]);
}

#[test]
fn slots_are_assigned_once() {
    let mut s = Scenario::with_slots(&[(1_000, 2)]);
    s.arrive("a", 1, 10).arrive("b", 2, 10).arrive("c", 3, 10);
    assert_eq!(s.slots(), [(1, Some(0)), (2, Some(1))]);
    s.finish(1, 10, 0).release("a");
    assert_eq!(s.slots(), [(1, Some(0)), (2, Some(1)), (3, Some(0))]);
}

#[test]
fn a_worker_gets_no_context_that_it_does_not_take() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("big", 1, 1_900).arrive("long", 2, 1_500);
    assert_eq!(s.dispatched(), [(1, 1)], "worker 0 is empty, but too small");
    s.finish(1, 1_900, 0).release("big");
    assert_eq!(s.dispatched(), [(1, 1), (2, 1)]);
}

#[test]
fn a_program_that_outgrows_its_worker_moves_to_a_larger_one() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("big", 1, 1_500);
    s.arrive("grows", 2, 900)
        .finish(2, 900, 50)
        .finish(1, 1_500, 0);
    s.release("big").arrive("grows", 3, 1_100);
    assert_eq!(s.dispatched(), [(1, 1), (2, 0), (3, 1)]);
}

#[test]
fn programs_waiting_for_a_worker_that_shrank_or_left_are_notified() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("holder", 1, 1_900)
        .arrive("a", 2, 1_500)
        .arrive("b", 3, 1_200);
    s.resize(1, 1_300);
    assert!(matches!(
        s.refusals().as_slice(),
        [(
            2,
            Refusal::ContextTooLong {
                tokens_max: 1_300,
                ..
            }
        )]
    ));
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(1),
    }));
    s.fail(1, false);
    assert_eq!(s.refusals().len(), 2, "no other worker takes b");
}

#[test]
fn a_step_that_is_handed_over_twice_is_one_step() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300).arrive("a", 1, 300);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.arrive("b", 2, 900).arrive("b", 2, 900);
    s.finish(1, 300, 0).release("a");
    assert_eq!(s.dispatched(), [(1, 0), (2, 0)]);
    assert_eq!(s.core.programs().counters.steps_arrived, 2);
}

#[test]
fn time_at_an_engine_is_not_waiting() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300).wait_s(1_700).lose(0).fail(1, true);
    s.wait_s(1_790);
    assert_eq!(s.refusals(), [], "it ran for 1700 s and waited for 1790 s");
    s.wait_s(20);
    assert!(matches!(
        s.refusals().as_slice(),
        [(
            1,
            Refusal::QueueWaitExceeded {
                waited_ms: 1_800_000,
                ..
            }
        )]
    ));
}

#[test]
fn a_step_that_is_taken_back_goes_on_waiting_where_it_left_off() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("holder", 1, 900).arrive("a", 2, 800).wait_s(100);
    s.finish(1, 900, 0).release("holder");
    s.wait_s(50).lose(0).fail(2, true).wait_s(1_690);
    assert_eq!(s.refusals(), []);
    s.wait_s(20);
    assert_eq!(s.refusals().len(), 1, "100 s before and 1700 s after");
}

#[test]
fn slots_known_late_are_not_oversubscribed() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.arrive("a", 1, 10).arrive("b", 2, 10);
    s.recount_slots(0, 10_000, 2).arrive("c", 3, 10);
    assert_eq!(s.slots(), [(1, None), (2, None)], "a and b sit somewhere");
    s.finish(1, 10, 0);
    assert_eq!(
        s.status("a"),
        "paused",
        "it comes back to a slot of its own"
    );
    s.arrive("a", 4, 20);
    assert_eq!(s.slots()[2..], [(3, Some(0))]);
    s.finish(2, 10, 0);
    assert_eq!(s.slots()[3..], [(4, Some(1))]);
}

#[test]
fn a_removed_slot_is_vacated_when_its_step_ends() {
    let mut s = Scenario::with_slots(&[(10_000, 2)]);
    s.arrive("a", 1, 10).arrive("b", 2, 10);
    s.recount_slots(0, 10_000, 1);
    s.finish(2, 10, 0).finish(1, 10, 0);
    assert_eq!((s.status("a"), s.status("b")), ("active", "paused"));
}

#[test]
fn a_full_queue_refuses_no_placed_program() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.reconfigure(|config| config.queue_steps_max = 1);
    s.arrive("a", 1, 700).arrive("b", 2, 700);
    for step in 10..14 {
        s.arrive(&format!("at work {step}"), step, 100);
    }
    s.finish(1, 700, 0)
        .arrive("c", 3, 800)
        .lose(1)
        .fail(2, true);
    assert_eq!(s.core.programs().waiting.steps(), 2, "one was taken back");
    s.arrive("a", 4, 750);
    assert_eq!(s.refusals(), []);
    assert_eq!(s.dispatched().last(), Some(&(4, 0)));
}

#[test]
fn a_policy_cannot_keep_memory_above_the_watermark() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("hidden", 1, 500).finish(1, 500, 0);
    s.hidden = Some(ProgramId(0));
    s.arrive("grows", 2, 400).progress(2, 300);
    assert_eq!(s.status("hidden"), "paused");
}

#[test]
fn questions_die_with_the_daemon_that_asked_them() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.mute_policy = true;
    s.arrive("a", 1, 300);
    assert_eq!(s.core.programs().asks.open().len(), 1);
    s.restart();
    s.mute_policy = false;
    s.arrive("a", 2, 300);
    assert_eq!(s.dispatched(), [(2, 0)], "it is asked again, at once");
}

#[test]
fn what_is_learnt_of_jobs_is_bounded_though_each_step_is_of_another() {
    let s = Scenario::with_mode(Mode::LeastLoad, &[1_000]);
    let mut core = s.core;
    for number in 1..=JOBS_MAX as u64 + 100 {
        let step = StepId(number);
        let arrival = StepArrival {
            step,
            program: "one shot".into(),
            job: format!("job-{number}").into(),
            prompt_tokens: 10,
            exact: true,
            prompt_bytes: 40,
            text: None,
            output_tokens_max: None,
            prefix: Vec::new(),
            one_shot: true,
            inferred: false,
            parent: None,
            group: None,
            model: None,
        };
        core.handle(s.now, &Event::Program(ProgramEvent::StepArrived(arrival)));
        let [program, action]: [Box<str>; 2] = ["one shot".into(), "a".into()];
        let called = ProgramEvent::ActionStarted {
            program: program.clone(),
            action: action.clone(),
            tool: "bash".into(),
        };
        let returned = ProgramEvent::ActionFinished {
            program,
            action,
            ok: true,
        };
        core.handle(s.now, &Event::Program(called));
        core.handle(s.now, &Event::Program(returned));
        let tokens = StepTokens {
            prompt: 10,
            output: 5,
            cached: None,
        };
        let finish = FinishReason::Stop;
        let finished = Event::Program(ProgramEvent::StepFinished {
            step,
            tokens,
            finish,
            weights: None,
        });
        core.handle(s.now, &finished);
        while core.poll_command().is_some() {}
    }
    assert_eq!(core.programs().live.len(), 0);
    assert_eq!(core.programs().estimates.jobs().len(), JOBS_MAX);
    let newest = format!("job-{}", JOBS_MAX + 100);
    let tools = core.programs().estimates.tools();
    assert!(tools.len() <= JOBS_MAX && tools.contains_key(&*newest));
    core.assert_invariants();
    let again = Core::with_state(core.config().clone(), core.state().clone());
    assert_eq!(
        again.programs().estimates.jobs(),
        core.programs().estimates.jobs(),
        "as after a restart"
    );
}
