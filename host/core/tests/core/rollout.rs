//! Rollouts: new programs are placed together, policies decide on the worker and priority of each
//! step, caches move while tools run, urgent steps preempt others.

use crate::scenario::Scenario;
use crate::scenario::rollouts::{answer, queued_step, rollout, route};
use treadle_core::bindings::{BUILT_IN, BindingEvent};
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramCommand, ProgramEvent, Purpose};
use treadle_core::{Command, CoreConfig, DaemonEvent, Event, Mode};
use treadle_model::{GatewayId, PolicyRef, ProgramId, Role, Span, StepId, WorkerId, World};

fn asks(scenario: &Scenario) -> Vec<usize> {
    let rows = |c: &Command| match c {
        Command::Program(ProgramCommand::AskPolicy { question, .. }) => {
            Some(question.programs.len())
        }
        _ => None,
    };
    scenario.log.iter().filter_map(rows).collect()
}

#[test]
fn programs_that_come_together_are_asked_about_together() {
    let mut scenario = rollout();
    for program in 0..5 {
        scenario.arrive(&format!("p{program}"), 6 * program, 100);
    }
    assert_eq!((asks(&scenario), scenario.dispatched()), (vec![], vec![]));
    scenario.wait_s(1);
    assert_eq!(asks(&scenario), [5]);
    assert_eq!(
        scenario.dispatched(),
        [(0, 0), (6, 1), (12, 0), (18, 1), (24, 0)]
    );
}

#[test]
fn the_score_of_a_step_is_its_priority_at_the_engine() {
    let mut scenario = rollout();
    scenario.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(1);
    let priority = |c: &Command| match c {
        Command::Program(ProgramCommand::DispatchStep { step, priority, .. }) => {
            Some((step.0, *priority))
        }
        _ => None,
    };
    let priorities: Vec<_> = scenario.log.iter().filter_map(priority).collect();
    assert_eq!(priorities.len(), 2);
    assert!(priorities[0].1 < priorities[1].1, "{priorities:?}");
}

#[test]
fn a_step_goes_where_it_is_routed_and_its_program_with_it() {
    let mut scenario = rollout();
    scenario.arrive("a", 0, 10).wait_s(1).finish(0, 10, 5);
    // The scenario's policy moves the program at every third step.
    scenario.arrive("a", 4, 20);
    assert_eq!(scenario.dispatched(), [(0, 0), (4, 1)]);
    assert_eq!(scenario.core.programs().counters.moves, 1);
}

#[test]
fn without_an_answer_a_placed_step_stays_and_new_ones_go_where_least_is() {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(12);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1)]);
    scenario.finish(0, 10, 5).arrive("a", 9, 20).wait_s(10);
    assert_eq!(scenario.dispatched().last(), Some(&(9, 0)));
}

#[test]
fn a_lost_worker_s_programs_are_placed_again() {
    let mut scenario = rollout();
    scenario
        .arrive("a", 0, 10)
        .wait_s(1)
        .finish(0, 10, 5)
        .lose(0);
    scenario.arrive("a", 1, 20).wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1)]);
}

fn moving() -> Scenario {
    let mut scenario = rollout();
    scenario.reconfigure(|config| {
        config.rollout.migration_interval = Span::from_secs(5);
        config.kv.migration_tokens_per_s = 1_000;
        config.kv.prefill_tokens_per_s = 100;
    });
    scenario
}

fn moves(scenario: &Scenario) -> Vec<(u64, u32, u32)> {
    let begun = |c: &Command| match c {
        Command::Program(ProgramCommand::MigrateProgram {
            program, from, to, ..
        }) => Some((program.0, from.0, to.0)),
        _ => None,
    };
    scenario.log.iter().filter_map(begun).collect()
}

/// Reports to the core that the migration of a program has ended.
fn arrive_at(scenario: &mut Scenario, program: u64, to: u32) {
    let (program, to) = (ProgramId(program), WorkerId(to));
    scenario.handle(Event::Program(ProgramEvent::ProgramMigrated {
        program,
        to,
    }));
}

#[test]
fn caches_move_in_tool_calls_one_at_a_time_and_the_longest_first() {
    let mut scenario = moving();
    for program in 0..3 {
        scenario.arrive(&format!("p{program}"), program, 100);
    }
    scenario.wait_s(1);
    for step in 0..3 {
        scenario.finish(step, 100, 10);
    }
    scenario.wait_s(5);
    // Both workers are ends of the first move, so that the others wait.
    assert_eq!(moves(&scenario), [(2, 0, 1)]);
    arrive_at(&mut scenario, 2, 1);
    assert_eq!(moves(&scenario), [(2, 0, 1), (1, 1, 0)]);
    assert_eq!(scenario.core.programs().counters.migrations, 1);
}

#[test]
fn running_programs_move_once_their_step_has_ended() {
    let mut scenario = moving();
    scenario.arrive("a", 0, 100).wait_s(6);
    assert_eq!(moves(&scenario), []);
    scenario.finish(0, 100, 10);
    assert_eq!(moves(&scenario), [(0, 0, 1)]);
}

#[test]
fn a_step_waits_for_a_move_that_is_quicker_than_computing_again() {
    let mut scenario = moving();
    scenario.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    scenario.arrive("a", 4, 120);
    assert_eq!(scenario.dispatched(), [(0, 0)], "it waits");
    arrive_at(&mut scenario, 0, 1);
    assert_eq!(scenario.dispatched(), [(0, 0), (4, 1)]);
}

#[test]
fn a_move_that_is_slower_than_computing_again_is_given_up() {
    let mut scenario = moving();
    scenario.reconfigure(|config| config.kv.prefill_tokens_per_s = 10_000);
    scenario.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    scenario.arrive("a", 1, 120);
    let program = ProgramId(0);
    assert!(
        scenario
            .log
            .contains(&Command::Program(ProgramCommand::CancelTransfer {
                program
            }))
    );
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0)]);
    arrive_at(&mut scenario, 0, 1);
    assert_eq!(scenario.core.programs().counters.migrations, 0, "too late");
}

#[test]
fn a_move_ends_with_its_worker_and_the_step_goes_on() {
    let mut scenario = moving();
    scenario.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    scenario.arrive("a", 1, 120).lose(1).wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0)]);
}

#[test]
fn an_adopted_step_that_is_preempted_is_queued() {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 1);
    let step = StepId::of(GatewayId(7), 1);
    let worker = WorkerId(0);
    scenario.arrive("a", step.0, 100);
    scenario.handle(Event::Program(ProgramEvent::StepAdopted { step, worker }));
    scenario.arrive("b", 1, 100).arrive("c", 2, 100).wait_s(1);
    assert_eq!(scenario.dispatched(), [(1, 1), (2, 0)]);
    scenario.finish(2, 100, 10);
    assert_eq!(scenario.dispatched().last(), Some(&(step.0, 0)));
}

/// Changes the core's settings, as a restarted daemon does.
fn configure(scenario: &mut Scenario, change: impl FnOnce(&mut CoreConfig)) {
    let mut config = scenario.core.config().clone();
    change(&mut config);
    let config = Box::new(config);
    scenario.handle(Event::Daemon(DaemonEvent::Configured { config }));
}

/// Program 2 waits for its first step, as program 0 will need all of the memory.
fn full() -> Scenario {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    scenario.arrive("a", 0, 90_000).wait_s(1);
    scenario.arrive("other", 1, 10).wait_s(1);
    scenario.arrive("b", 2, 20_000).wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1)]);
    scenario
}

#[test]
fn a_program_begins_once_the_memory_will_do() {
    let mut scenario = full();
    scenario.finish(0, 90_000, 10).release("a");
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1), (2, 0)]);
}

#[test]
fn a_program_that_others_wait_for_goes_on_though_the_queue_is_full() {
    let mut scenario = Scenario::ranked(&[100_000]);
    scenario.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    scenario.arrive("a", 0, 90_000).wait_s(1);
    scenario.arrive("b", 2, 20_000).wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 0)]);
    scenario.reconfigure(|config| config.queue_steps_max = 1);
    scenario.finish(0, 90_000, 10).arrive("a", 4, 91_000);
    assert_eq!(scenario.dispatched(), [(0, 0), (4, 0)]);
    scenario.arrive("c", 5, 100);
    assert_eq!(scenario.refusals().len(), 1, "others are refused");
}

#[test]
fn other_settings_release_queued_steps() {
    let mut scenario = full();
    configure(&mut scenario, |config| {
        config.low_watermark_ppm = 1_200_000;
        config.high_watermark_ppm = 1_200_000;
        config.rollout.memory_ppm = 0;
    });
    scenario.wait_s(1);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
    let mut scenario = full();
    configure(&mut scenario, |config| config.mode = Mode::Sticky);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 1)));
}

#[test]
fn no_program_is_moved_to_a_worker_too_small_for_its_context() {
    let mut scenario = moving();
    let capacity = Capacity {
        context_tokens_max: Some(50),
        ..Capacity::default()
    };
    scenario.add_worker(1, capacity);
    scenario.arrive("a", 0, 100).wait_s(1).finish(0, 100, 10);
    scenario.wait_s(6);
    assert_eq!(moves(&scenario), []);
}

#[test]
fn a_program_that_moves_takes_all_its_waiting_steps_along() {
    let mut scenario = queued_step();
    scenario.arrive("p0", 10, 120).arrive("p0", 11, 120);
    answer(&mut scenario, route(10), &[(0, 1.0, Some(0))]);
    answer(&mut scenario, route(11), &[(0, 0.5, Some(1))]);
    assert_eq!(
        scenario.dispatched()[2..],
        [(10, 1)],
        "the more urgent first"
    );
    scenario.finish(10, 120, 10);
    assert_eq!(scenario.dispatched()[2..], [(10, 1), (11, 1)]);
}

#[test]
fn a_late_answer_leaves_a_step_in_the_run_queue_once() {
    let mut scenario = queued_step();
    scenario.arrive("p0", 10, 120).lose(0);
    // Placed again before the first question is answered.
    let at = scenario.core.next_deadline().expect("it is gathered");
    scenario.now = scenario.now.max(at);
    scenario.handle(Event::Daemon(DaemonEvent::TimerFired));
    scenario.arrive("p2", 12, 100);
    let assign = |purpose| purpose == Purpose::Restore;
    answer(&mut scenario, assign, &[(0, 1.0, Some(1))]);
    assert_eq!(scenario.dispatched()[2..], [(10, 1)]);
    scenario.arrive("p0", 13, 120);
    answer(&mut scenario, route(13), &[(0, 1.0, Some(1))]);
    scenario.lose(1);
    let worker = WorkerId(0);
    scenario.handle(Event::Program(ProgramEvent::WorkerRecovered { worker }));
    assert!(scenario.core.programs().workers[&worker].line.is_empty());
}

#[test]
fn a_program_that_is_placed_takes_all_its_waiting_steps_along() {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.arrive("a", 0, 90_000).wait_s(12);
    scenario.arrive("b", 1, 90_000).wait_s(12);
    // Both workers are full: two steps of one program, and one of another between them.
    scenario.arrive("c", 2, 50_000).arrive("d", 3, 60_000);
    scenario.wait_s(1).arrive("c", 4, 50_000).wait_s(20);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1)]);
    scenario.finish(0, 90_000, 10).release("a").wait_s(12);
    assert_eq!(scenario.dispatched()[2..], [(2, 0), (4, 0)]);
}

#[test]
fn programs_gathered_while_a_question_is_open_are_in_the_next_one() {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.arrive("a", 0, 60_000).wait_s(12);
    scenario.arrive("b", 1, 60_000).wait_s(12);
    // The third fits nowhere, so that there is always a program to ask about.
    scenario.arrive("c", 2, 70_000).arrive("d", 3, 5_000);
    scenario.wait_s(12);
    assert_eq!(scenario.dispatched().last(), Some(&(3, 0)));
    scenario.arrive("e", 4, 2_000).wait_s(20);
    assert_eq!(
        scenario.dispatched().len(),
        4,
        "{:?}",
        scenario.dispatched()
    );
    assert_eq!(scenario.dispatched().last().map(|(step, _)| *step), Some(4));
}

#[test]
fn a_program_that_was_paused_is_placed_by_its_urgency() {
    let mut scenario = rollout();
    scenario.arrive("a", 0, 40_000).arrive("b", 1, 90_000);
    scenario.arrive("c", 2, 40_000).wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 1), (2, 0)]);
    // Growth beyond the memory makes another program between steps leave.
    scenario.finish(0, 40_000, 10).progress(2, 30_000).wait_s(2);
    assert_eq!(scenario.core.programs().counters.pauses, 1);
    scenario.arrive("a", 6, 40_020).wait_s(2);
    assert_eq!(scenario.dispatched().len(), 3, "it waits for memory");
    scenario.finish(2, 40_000, 30_000).release("c").wait_s(1);
    assert_eq!(scenario.dispatched().last(), Some(&(6, 0)));
}

#[test]
fn without_its_policy_a_program_is_scheduled_like_all_others() {
    let mut scenario = full();
    scenario.bind(BindingEvent::PolicyUnbound {
        world: World::Priority,
        scope: "*".into(),
        role: Role::Active,
    });
    assert!(!scenario.core.ranks("story"));
    let wherever = "there is room elsewhere than where the policy wanted it";
    assert_eq!(scenario.dispatched().last(), Some(&(2, 1)), "{wherever}");
    scenario.finish(0, 90_000, 10);
    let asked = asks(&scenario).len();
    scenario.arrive("a", 3, 90_010);
    assert_eq!(scenario.dispatched().last(), Some(&(3, 0)));
    assert_eq!(asks(&scenario).len(), asked, "no step is asked about");
}

#[test]
fn jobs_and_tenants_have_priority_policies_of_their_own() {
    let mut scenario = Scenario::with_workers(&[100]);
    let mut bind = |scope: &str, digest: &str| {
        scenario.bind(BindingEvent::PolicyBound {
            world: World::Priority,
            scope: scope.into(),
            role: Role::Active,
            policy: PolicyRef(digest.into()),
            digest: digest.into(),
            config: "{}".into(),
            share_ppm: 0,
            by_default: false,
        });
        scenario.core.bindings().jobs_of(World::Priority)
    };
    let jobs = bind("math", "x");
    assert!(jobs.contains("math") && !jobs.contains("code"));
    let jobs = bind("\u{1f}acme\u{1f}*", "x");
    assert!(jobs.contains("\u{1f}acme\u{1f}any") && !jobs.contains("\u{1f}other\u{1f}any"));
    let jobs = bind("*", "x");
    assert!(jobs.contains("code"));
    let jobs = bind("math", BUILT_IN);
    assert!(!jobs.contains("math") && jobs.contains("code"));
}

#[test]
fn what_waits_beside_an_adopted_step_waits_its_turn() {
    let mut scenario = queued_step();
    let adopted = StepId::of(GatewayId(7), 1);
    scenario.arrive("p0", 10, 120).arrive("p0", adopted.0, 120);
    scenario.handle(Event::Program(ProgramEvent::StepAdopted {
        step: adopted,
        worker: WorkerId(0),
    }));
    scenario.progress(1, 1);
    answer(&mut scenario, route(10), &[(0, 1.0, Some(0))]);
    assert_eq!(scenario.dispatched().len(), 2, "the engine is full");
}

#[test]
fn a_program_that_fits_no_worker_is_not_asked_about_repeatedly() {
    let mut scenario = Scenario::ranked(&[100, 100_000]);
    scenario.lose(1);
    scenario.arrive("long", 0, 5_000).wait_s(100);
    let asked = asks(&scenario).len();
    assert!(asked <= 103, "once a tick, not {asked} times");
    let worker = WorkerId(1);
    scenario.handle(Event::Program(ProgramEvent::WorkerRecovered { worker }));
    scenario.wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 1)]);
}

#[test]
fn a_worker_that_comes_back_serves_its_run_queue() {
    let mut scenario = Scenario::ranked(&[100_000]);
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 2);
    scenario.arrive("a", 0, 100).wait_s(1);
    scenario.arrive("b", 1, 100).wait_s(1).arrive("a", 2, 110);
    // A program with a running step stays where it is, and so does its other step.
    scenario
        .progress(0, 5)
        .progress(1, 5)
        .lose(0)
        .finish(1, 100, 10);
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0)]);
    scenario.handle(Event::Program(ProgramEvent::WorkerRecovered {
        worker: WorkerId(0),
    }));
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0), (2, 0)]);
}
