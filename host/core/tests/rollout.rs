//! Rollouts: new programs are placed together, steps go where and as urgently as policies decide,
//! caches move while tools run, urgent steps preempt others.

mod scenario;

use scenario::Scenario;
use treadle_core::explain::DecisionKind;
use treadle_core::step::GivesWay;
use treadle_core::{
    Attribution, Capacity, Command, CoreConfig, Event, Mode, PolicyAnswer, ProgramEvent, Purpose,
};
use treadle_model::{GatewayId, PolicyRef, ProgramId, Span, StepId, WorkerId};

fn rollout() -> Scenario {
    Scenario::with_mode(Mode::Rollout, &[100_000, 100_000])
}

fn asks(scenario: &Scenario) -> Vec<usize> {
    let rows = |c: &Command| match c {
        Command::AskPolicy { question, .. } => Some(question.programs.len()),
        _ => None,
    };
    scenario.log.iter().filter_map(rows).collect()
}

#[test]
fn programs_that_come_together_are_asked_about_together() {
    let mut scenario = rollout();
    for program in 0..5 {
        scenario.arrive(&format!("p{program}"), program, 100);
    }
    assert_eq!((asks(&scenario), scenario.dispatched()), (vec![], vec![]));
    scenario.wait_s(1);
    assert_eq!(asks(&scenario), [5]);
    assert_eq!(
        scenario.dispatched(),
        [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]
    );
}

#[test]
fn the_score_of_a_step_is_its_priority_at_the_engine() {
    let mut scenario = rollout();
    scenario.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(1);
    let priority = |c: &Command| match c {
        Command::DispatchStep { step, priority, .. } => Some((step.0, *priority)),
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
    // The scenario's policy turns every third step.
    scenario.arrive("a", 4, 20);
    assert_eq!(scenario.dispatched(), [(0, 0), (4, 1)]);
    assert_eq!(scenario.core.programs().counters.moves, 1);
}

#[test]
fn without_an_answer_a_placed_step_stays_and_new_ones_go_where_least_is() {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(10);
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
        config.rollout.migration_tokens_per_s = 1_000;
        config.rollout.prefill_tokens_per_s = 100;
    });
    scenario
}

fn moves(scenario: &Scenario) -> Vec<(u64, u32, u32)> {
    let begun = |c: &Command| match c {
        Command::MigrateProgram {
            program, from, to, ..
        } => Some((program.0, from.0, to.0)),
        _ => None,
    };
    scenario.log.iter().filter_map(begun).collect()
}

/// Reports to the core that the move of a program has ended.
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
    scenario.reconfigure(|config| config.rollout.prefill_tokens_per_s = 10_000);
    scenario.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    scenario.arrive("a", 1, 120);
    let program = ProgramId(0);
    assert!(scenario.log.contains(&Command::CancelTransfer { program }));
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
fn beyond_an_engines_bound_the_most_urgent_goes_first_and_the_least_urgent_gives_way() {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 1);
    // Even programs are on worker 0; the later ones are the more urgent.
    for program in [0, 2, 4] {
        scenario
            .arrive(&format!("p{program}"), program, 100)
            .wait_s(1);
        scenario.arrive(&format!("p{}", program + 1), program + 1, 100);
        scenario.wait_s(1);
    }
    let preempted = |c: &Command| match c {
        Command::PreemptStep { step } => Some(step.0),
        _ => None,
    };
    let preempted: Vec<_> = scenario.log.iter().filter_map(preempted).collect();
    assert_eq!(preempted, [0, 1, 2, 3]);
    assert_eq!(scenario.core.programs().counters.preemptions, 4);
    scenario.log.clear();
    scenario
        .finish(4, 100, 10)
        .finish(2, 100, 10)
        .finish(0, 100, 10);
    assert_eq!(
        scenario.dispatched(),
        [(2, 0), (0, 0)],
        "the most urgent first"
    );
    let step = &scenario.core.programs().steps[&StepId(5)];
    assert_eq!(step.state.worker(), Some(WorkerId(1)));
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

/// Gives the core other settings, as a restarted daemon does.
fn configure(scenario: &mut Scenario, change: impl FnOnce(&mut CoreConfig)) {
    let mut config = scenario.core.config().clone();
    change(&mut config);
    let config = Box::new(config);
    scenario.handle(Event::Configured { config });
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
    let mut scenario = Scenario::with_mode(Mode::Rollout, &[100_000]);
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
    configure(&mut scenario, |config| config.rollout.memory_ppm = 0);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
    let mut scenario = full();
    configure(&mut scenario, |config| config.mode = Mode::Sticky);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
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

/// Answers an open question.
fn answer(
    scenario: &mut Scenario,
    is_it: impl Fn(Purpose) -> bool,
    rows: &[(u64, f64, Option<u32>)],
) {
    let mut asks = scenario.core.programs().asks.iter();
    let ask = *asks.find(|(_, a)| is_it(a.purpose)).expect("it is asked").0;
    let answer = PolicyAnswer::Order {
        programs: rows.iter().map(|row| ProgramId(row.0)).collect(),
        scores: rows.iter().map(|row| row.1).collect(),
        workers: rows.iter().map(|row| row.2.map(WorkerId)).collect(),
        remaining_tokens: Vec::new(),
    };
    scenario.handle(Event::Program(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer,
        attribution: Attribution::default(),
    }));
}

/// Which question is it?
fn route(step: u64) -> impl Fn(Purpose) -> bool {
    move |purpose| matches!(purpose, Purpose::Route { step: of } if of == StepId(step))
}

/// One step at an engine at once; program 0 has begun at worker 0, and program 1 runs there. Only
/// the test answers.
fn queued_step() -> Scenario {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 1);
    for program in 0..2 {
        scenario.arrive(&format!("p{program}"), program, 100);
        // By the time that the rest of the second runs out the first is asked about.
        scenario.handle(Event::TimerFired);
        let at = scenario.core.next_deadline().expect("it is gathered");
        scenario.now = scenario.now.max(at);
        scenario.handle(Event::TimerFired);
        let assign = |purpose| purpose == Purpose::Assign;
        answer(&mut scenario, assign, &[(program, 1.0, Some(0))]);
        if program == 0 {
            scenario.finish(0, 100, 10);
        }
    }
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0)]);
    scenario
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
    scenario.handle(Event::TimerFired);
    scenario.arrive("p2", 12, 100);
    let assign = |purpose| purpose == Purpose::Assign;
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
fn giving_way_is_not_counted_as_a_failure() {
    let mut scenario = queued_step();
    scenario.reconfigure(|config| config.attempts_max = 1);
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().steps[&StepId(1)].attempts, 0);
    scenario.finish(10, 120, 10);
    assert_eq!(scenario.dispatched().last(), Some(&(1, 0)));
    assert_eq!(scenario.core.programs().steps[&StepId(1)].attempts, 1);
}

/// Steps at the first engine.
fn running(scenario: &Scenario) -> u32 {
    scenario.core.programs().workers[&WorkerId(0)].running_steps
}

#[test]
fn a_step_that_is_to_give_way_runs_until_it_has() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().counters.preemptions, 1);
    assert_eq!(scenario.dispatched().len(), 2, "the engine is full");
    assert_eq!(running(&scenario), 1);
    let step = StepId(1);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    assert_eq!(scenario.dispatched()[2..], [(10, 0)]);
    assert_eq!(running(&scenario), 1);
    scenario.finish(10, 120, 10);
    assert_eq!(scenario.dispatched()[3..], [(1, 0)]);
}

#[test]
fn a_step_that_cannot_be_interrupted_never_counts_as_waiting() {
    for is_known_before in [false, true] {
        let mut scenario = queued_step();
        scenario.mute_gateway = true;
        let step = StepId(1);
        let runs_on = Event::Program(ProgramEvent::StepRunsOn { step });
        if is_known_before {
            scenario.handle(runs_on.clone());
        }
        scenario.arrive("p0", 10, 120);
        answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
        let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
        if !is_known_before {
            answer(&mut scenario, preempt, &[(1, 0.0, None)]);
            scenario.handle(runs_on);
        }
        let programs = scenario.core.programs();
        let is_asked = programs.asks.values().any(|ask| preempt(ask.purpose));
        assert!(!is_asked, "nobody else could give way");
        assert_eq!(programs.counters.preemptions, u64::from(!is_known_before));
        assert_eq!(programs.steps[&step].state.worker(), Some(WorkerId(0)));
        assert_eq!((running(&scenario), scenario.dispatched().len()), (1, 2));
        scenario.finish(1, 100, 10);
        assert_eq!(scenario.dispatched()[2..], [(10, 0)]);
    }
}

#[test]
fn another_step_gives_way_where_the_first_cannot() {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 2);
    scenario.mute_gateway = true;
    // Even programs are on worker 0; the later ones are the more urgent.
    for program in [0, 2, 4] {
        scenario
            .arrive(&format!("p{program}"), program, 100)
            .wait_s(1);
        scenario.arrive(&format!("p{}", program + 1), program + 1, 100);
        scenario.wait_s(1);
    }
    let step = StepId(0);
    scenario.handle(Event::Program(ProgramEvent::StepRunsOn { step }));
    let preempted = |c: &Command| match c {
        Command::PreemptStep { step } if step.0 % 2 == 0 => Some(step.0),
        _ => None,
    };
    let preempted: Vec<_> = scenario.log.iter().filter_map(preempted).collect();
    assert_eq!(preempted, [0, 2]);
    let step = StepId(2);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    assert_eq!(scenario.dispatched().last(), Some(&(4, 0)));
}

#[test]
fn another_scheduler_asks_again_which_steps_give_way() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    let step = StepId::of(GatewayId(7), 1);
    scenario.finish(1, 100, 10).arrive("p1", step.0, 120);
    answer(&mut scenario, route(step.0), &[(1, 1.0, Some(0))]);
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(
        scenario.core.programs().steps[&step].gives_way,
        GivesWay::Asked
    );
    // The gateway's steps outlive the scheduler, whose message may have been lost.
    scenario.handle(Event::DaemonRestarted);
    assert_eq!(
        scenario.core.programs().steps[&step].gives_way,
        GivesWay::Unasked
    );
    scenario.arrive("p0", 11, 120);
    answer(&mut scenario, route(11), &[(0, 5.0, Some(0))]);
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().counters.preemptions, 2);
}

#[test]
fn a_step_taken_back_from_a_lost_engine_waits_for_another() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    // It has begun to answer, so that it is not taken from the engine that is lost.
    scenario.progress(1, 1).arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    scenario.lose(0);
    let step = StepId(1);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    let programs = scenario.core.programs();
    assert_eq!(programs.live[&ProgramId(1)].placement, None);
    assert_eq!(running(&scenario), 0);
}

#[test]
fn a_program_that_begins_takes_all_its_waiting_steps_along() {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    scenario.arrive("a", 0, 90_000).wait_s(6);
    scenario.arrive("b", 1, 90_000).wait_s(6);
    // Both workers are full: two steps of one program, and one of another between them.
    scenario.arrive("c", 2, 50_000).arrive("d", 3, 60_000);
    scenario.wait_s(1).arrive("c", 4, 50_000).wait_s(20);
    assert_eq!(scenario.dispatched().len(), 2);
    let at = scenario.core.programs().live[&ProgramId(2)]
        .placement
        .expect("placed")
        .worker;
    let first = if at == WorkerId(0) { "a" } else { "b" };
    scenario.finish(u64::from(at.0), 90_000, 10).release(first);
    let sent: Vec<u64> = scenario.dispatched()[2..]
        .iter()
        .map(|(step, _)| *step)
        .collect();
    assert!(sent.contains(&2) && sent.contains(&4), "{sent:?}");
}

#[test]
fn a_program_that_has_not_begun_is_recorded_as_moved() {
    let mut scenario = full();
    scenario.mute_policy = true;
    scenario.reconfigure(|config| config.rollout.migration_interval = Span::from_secs(1));
    scenario.progress(0, 1).wait_s(2);
    while scenario.core.poll_decision().is_some() {}
    answer(
        &mut scenario,
        |purpose| purpose == Purpose::Migrate,
        &[(2, 9.0, Some(1))],
    );
    let decision = scenario.core.poll_decision().expect("it is said");
    assert_eq!(
        (decision.program, decision.kind),
        (ProgramId(2), DecisionKind::Route)
    );
    assert_eq!(scenario.dispatched().last(), Some(&(2, 1)));
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
    let mut scenario = Scenario::with_mode(Mode::Rollout, &[100, 100_000]);
    scenario.lose(1);
    scenario.arrive("long", 0, 5_000).wait_s(100);
    assert!(asks(&scenario).len() <= 2, "{:?}", asks(&scenario).len());
    let worker = WorkerId(1);
    scenario.handle(Event::Program(ProgramEvent::WorkerRecovered { worker }));
    scenario.wait_s(1);
    assert_eq!(scenario.dispatched(), [(0, 1)]);
}

#[test]
fn a_worker_that_comes_back_serves_its_run_queue() {
    let mut scenario = Scenario::with_mode(Mode::Rollout, &[100_000]);
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 2);
    scenario.arrive("a", 0, 100).wait_s(1);
    scenario.arrive("b", 1, 100).wait_s(1).arrive("a", 2, 110);
    // A program whose answer goes on stays where it is, and so does its other step.
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
