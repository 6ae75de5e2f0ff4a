//! Rollouts: new programs are placed together, steps go where and as urgently
//! as policies say, caches move while tools run, urgent steps interrupt others.

mod story;

use story::Story;
use treadle_core::explain::DecisionKind;
use treadle_core::{Capacity, Command, CoreConfig, Event, Mode, Purpose, Verdict, Voices};
use treadle_model::{GatewayId, PolicyRef, ProgramId, Span, StepId, WorkerId};

fn rollout() -> Story {
    Story::with_mode(Mode::Rollout, &[100_000, 100_000])
}

fn asks(story: &Story) -> Vec<usize> {
    let rows = |c: &Command| match c {
        Command::AskPolicy { question, .. } => Some(question.programs.len()),
        _ => None,
    };
    story.log.iter().filter_map(rows).collect()
}

#[test]
fn programs_that_come_together_are_asked_about_together() {
    let mut story = rollout();
    for program in 0..5 {
        story.arrive(&format!("p{program}"), program, 100);
    }
    assert_eq!((asks(&story), story.dispatched()), (vec![], vec![]));
    story.wait_s(1);
    assert_eq!(asks(&story), [5]);
    assert_eq!(story.dispatched(), [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]);
}

#[test]
fn the_score_of_a_step_is_its_priority_at_the_engine() {
    let mut story = rollout();
    story.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(1);
    let priority = |c: &Command| match c {
        Command::DispatchStep { step, priority, .. } => Some((step.0, *priority)),
        _ => None,
    };
    let priorities: Vec<_> = story.log.iter().filter_map(priority).collect();
    assert_eq!(priorities.len(), 2);
    assert!(priorities[0].1 < priorities[1].1, "{priorities:?}");
}

#[test]
fn a_step_goes_where_it_is_routed_and_its_program_with_it() {
    let mut story = rollout();
    story.arrive("a", 0, 10).wait_s(1).finish(0, 10, 5);
    // The story's policy turns every third step.
    story.arrive("a", 4, 20);
    assert_eq!(story.dispatched(), [(0, 0), (4, 1)]);
    assert_eq!(story.core.state().counters.moves, 1);
}

#[test]
fn without_an_answer_a_placed_step_stays_and_new_ones_go_where_least_is() {
    let mut story = rollout();
    story.mute_policy = true;
    story.arrive("a", 0, 10).arrive("b", 1, 10).wait_s(10);
    assert_eq!(story.dispatched(), [(0, 0), (1, 1)]);
    story.finish(0, 10, 5).arrive("a", 9, 20).wait_s(10);
    assert_eq!(story.dispatched().last(), Some(&(9, 0)));
}

#[test]
fn a_lost_worker_s_programs_are_placed_anew() {
    let mut story = rollout();
    story.arrive("a", 0, 10).wait_s(1).finish(0, 10, 5).lose(0);
    story.arrive("a", 1, 20).wait_s(1);
    assert_eq!(story.dispatched(), [(0, 0), (1, 1)]);
}

fn moving() -> Story {
    let mut story = rollout();
    story.reconfigure(|config| {
        config.rollout.migration_interval = Span::from_secs(5);
        config.rollout.migration_tokens_per_s = 1_000;
        config.rollout.prefill_tokens_per_s = 100;
    });
    story
}

fn moves(story: &Story) -> Vec<(u64, u32, u32)> {
    let begun = |c: &Command| match c {
        Command::MigrateProgram {
            program, from, to, ..
        } => Some((program.0, from.0, to.0)),
        _ => None,
    };
    story.log.iter().filter_map(begun).collect()
}

/// Tells the core that the move of a program has ended.
fn arrive_at(story: &mut Story, program: u64, to: u32) {
    let (program, to) = (ProgramId(program), WorkerId(to));
    story.handle(Event::ProgramMigrated { program, to });
}

#[test]
fn caches_move_in_tool_calls_one_at_a_time_and_the_longest_first() {
    let mut story = moving();
    for program in 0..3 {
        story.arrive(&format!("p{program}"), program, 100);
    }
    story.wait_s(1);
    for step in 0..3 {
        story.finish(step, 100, 10);
    }
    story.wait_s(5);
    // Both workers are ends of the first move, so that the others wait.
    assert_eq!(moves(&story), [(2, 0, 1)]);
    arrive_at(&mut story, 2, 1);
    assert_eq!(moves(&story), [(2, 0, 1), (1, 1, 0)]);
    assert_eq!(story.core.state().counters.migrations, 1);
}

#[test]
fn running_programs_move_once_their_step_has_ended() {
    let mut story = moving();
    story.arrive("a", 0, 100).wait_s(6);
    assert_eq!(moves(&story), []);
    story.finish(0, 100, 10);
    assert_eq!(moves(&story), [(0, 0, 1)]);
}

#[test]
fn a_step_waits_for_a_move_that_is_quicker_than_computing_again() {
    let mut story = moving();
    story.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    story.arrive("a", 4, 120);
    assert_eq!(story.dispatched(), [(0, 0)], "it waits");
    arrive_at(&mut story, 0, 1);
    assert_eq!(story.dispatched(), [(0, 0), (4, 1)]);
}

#[test]
fn a_move_that_is_slower_than_computing_again_is_given_up() {
    let mut story = moving();
    story.reconfigure(|config| config.rollout.prefill_tokens_per_s = 10_000);
    story.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    story.arrive("a", 1, 120);
    let program = ProgramId(0);
    assert!(story.log.contains(&Command::CancelTransfer { program }));
    assert_eq!(story.dispatched(), [(0, 0), (1, 0)]);
    arrive_at(&mut story, 0, 1);
    assert_eq!(story.core.state().counters.migrations, 0, "too late");
}

#[test]
fn a_move_ends_with_its_worker_and_the_step_goes_on() {
    let mut story = moving();
    story.arrive("a", 0, 100).wait_s(6).finish(0, 100, 10);
    story.arrive("a", 1, 120).lose(1).wait_s(1);
    assert_eq!(story.dispatched(), [(0, 0), (1, 0)]);
}

#[test]
fn beyond_an_engines_bound_the_most_urgent_goes_first_and_the_least_urgent_gives_way() {
    let mut story = rollout();
    story.reconfigure(|config| config.rollout.engine_steps_max = 1);
    // Even programs are on worker 0; the later ones are the more urgent.
    for program in [0, 2, 4] {
        story.arrive(&format!("p{program}"), program, 100).wait_s(1);
        story.arrive(&format!("p{}", program + 1), program + 1, 100);
        story.wait_s(1);
    }
    let preempted = |c: &Command| match c {
        Command::PreemptStep { step } => Some(step.0),
        _ => None,
    };
    let preempted: Vec<_> = story.log.iter().filter_map(preempted).collect();
    assert_eq!(preempted, [0, 1, 2, 3]);
    assert_eq!(story.core.state().counters.preemptions, 4);
    story.log.clear();
    story
        .finish(4, 100, 10)
        .finish(2, 100, 10)
        .finish(0, 100, 10);
    assert_eq!(
        story.dispatched(),
        [(2, 0), (0, 0)],
        "the most urgent first"
    );
    let step = &story.core.state().steps[&StepId(5)];
    assert_eq!(step.state.worker(), Some(WorkerId(1)));
}

#[test]
fn an_adopted_step_that_gives_way_stands_in_line() {
    let mut story = rollout();
    story.reconfigure(|config| config.rollout.engine_steps_max = 1);
    let step = StepId::of(GatewayId(7), 1);
    let worker = WorkerId(0);
    story.arrive("a", step.0, 100);
    story.handle(Event::StepAdopted { step, worker });
    story.arrive("b", 1, 100).arrive("c", 2, 100).wait_s(1);
    assert_eq!(story.dispatched(), [(1, 1), (2, 0)]);
    story.finish(2, 100, 10);
    assert_eq!(story.dispatched().last(), Some(&(step.0, 0)));
}

/// Tells the core other settings, as a restarted daemon does.
fn configure(story: &mut Story, change: impl FnOnce(&mut CoreConfig)) {
    let mut config = story.core.config().clone();
    change(&mut config);
    let config = Box::new(config);
    story.handle(Event::Configured { config });
}

/// Program 2 waits for its first step, as program 0 will need all of the memory.
fn full() -> Story {
    let mut story = rollout();
    story.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    story.arrive("a", 0, 90_000).wait_s(1);
    story.arrive("other", 1, 10).wait_s(1);
    story.arrive("b", 2, 20_000).wait_s(1);
    assert_eq!(story.dispatched(), [(0, 0), (1, 1)]);
    story
}

#[test]
fn a_program_begins_once_the_memory_will_do() {
    let mut story = full();
    story.finish(0, 90_000, 10).release("a");
    assert_eq!(story.dispatched(), [(0, 0), (1, 1), (2, 0)]);
}

#[test]
fn a_program_that_others_wait_for_goes_on_though_the_queue_is_full() {
    let mut story = Story::with_mode(Mode::Rollout, &[100_000]);
    story.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    story.arrive("a", 0, 90_000).wait_s(1);
    story.arrive("b", 2, 20_000).wait_s(1);
    assert_eq!(story.dispatched(), [(0, 0)]);
    story.reconfigure(|config| config.queue_steps_max = 1);
    story.finish(0, 90_000, 10).arrive("a", 4, 91_000);
    assert_eq!(story.dispatched(), [(0, 0), (4, 0)]);
    story.arrive("c", 5, 100);
    assert_eq!(story.refusals().len(), 1, "others are refused");
}

#[test]
fn other_settings_let_those_in_line_go() {
    let mut story = full();
    configure(&mut story, |config| config.rollout.memory_ppm = 0);
    assert_eq!(story.dispatched().last(), Some(&(2, 0)));
    let mut story = full();
    configure(&mut story, |config| config.mode = Mode::Sticky);
    assert_eq!(story.dispatched().last(), Some(&(2, 0)));
}

#[test]
fn nobody_is_moved_to_a_worker_that_takes_no_context_so_long() {
    let mut story = moving();
    let capacity = Capacity {
        context_tokens_max: Some(50),
        ..Capacity::default()
    };
    story.add_worker(1, capacity);
    story.arrive("a", 0, 100).wait_s(1).finish(0, 100, 10);
    story.wait_s(6);
    assert_eq!(moves(&story), []);
}

/// Answers an open question.
fn answer(story: &mut Story, is_it: impl Fn(Purpose) -> bool, rows: &[(u64, f64, Option<u32>)]) {
    let mut asks = story.core.state().asks.iter();
    let ask = *asks.find(|(_, a)| is_it(a.purpose)).expect("it is asked").0;
    let verdict = Verdict::Order {
        programs: rows.iter().map(|row| ProgramId(row.0)).collect(),
        scores: rows.iter().map(|row| row.1).collect(),
        workers: rows.iter().map(|row| row.2.map(WorkerId)).collect(),
        remaining_tokens: Vec::new(),
    };
    story.handle(Event::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        verdict,
        voices: Voices::default(),
    });
}

/// Which question is it?
fn route(step: u64) -> impl Fn(Purpose) -> bool {
    move |purpose| matches!(purpose, Purpose::Route { step: of } if of == StepId(step))
}

/// One step at an engine at once; program 0 has begun at worker 0, and program 1
/// runs there. Nobody answers but the test.
fn lined() -> Story {
    let mut story = rollout();
    story.mute_policy = true;
    story.reconfigure(|config| config.rollout.engine_steps_max = 1);
    for program in 0..2 {
        story.arrive(&format!("p{program}"), program, 100);
        // By the time that the rest of the second runs out the first is asked about.
        story.handle(Event::TimerFired);
        let at = story.core.next_deadline().expect("it is gathered");
        story.now = story.now.max(at);
        story.handle(Event::TimerFired);
        let assign = |purpose| purpose == Purpose::Assign;
        answer(&mut story, assign, &[(program, 1.0, Some(0))]);
        if program == 0 {
            story.finish(0, 100, 10);
        }
    }
    assert_eq!(story.dispatched(), [(0, 0), (1, 0)]);
    story
}

#[test]
fn a_program_that_moves_takes_all_its_waiting_steps_along() {
    let mut story = lined();
    story.arrive("p0", 10, 120).arrive("p0", 11, 120);
    answer(&mut story, route(10), &[(0, 1.0, Some(0))]);
    answer(&mut story, route(11), &[(0, 0.5, Some(1))]);
    assert_eq!(story.dispatched()[2..], [(10, 1)], "the more urgent first");
    story.finish(10, 120, 10);
    assert_eq!(story.dispatched()[2..], [(10, 1), (11, 1)]);
}

#[test]
fn a_late_answer_leaves_a_step_in_line_once() {
    let mut story = lined();
    story.arrive("p0", 10, 120).lose(0);
    // Placed anew before the first question is answered.
    let at = story.core.next_deadline().expect("it is gathered");
    story.now = story.now.max(at);
    story.handle(Event::TimerFired);
    story.arrive("p2", 12, 100);
    let assign = |purpose| purpose == Purpose::Assign;
    answer(&mut story, assign, &[(0, 1.0, Some(1))]);
    assert_eq!(story.dispatched()[2..], [(10, 1)]);
    story.arrive("p0", 13, 120);
    answer(&mut story, route(13), &[(0, 1.0, Some(1))]);
    story.lose(1);
    let worker = WorkerId(0);
    story.handle(Event::WorkerRecovered { worker });
    assert!(story.core.state().workers[&worker].line.is_empty());
}

#[test]
fn giving_way_is_not_counted_as_a_failure() {
    let mut story = lined();
    story.reconfigure(|config| config.attempts_max = 1);
    story.arrive("p0", 10, 120);
    answer(&mut story, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut story, preempt, &[(1, 0.0, None)]);
    assert_eq!(story.core.state().steps[&StepId(1)].attempts, 0);
    story.finish(10, 120, 10);
    assert_eq!(story.dispatched().last(), Some(&(1, 0)));
    assert_eq!(story.core.state().steps[&StepId(1)].attempts, 1);
}

#[test]
fn a_program_that_begins_takes_all_its_waiting_steps_along() {
    let mut story = rollout();
    story.mute_policy = true;
    story.reconfigure(|config| config.rollout.memory_ppm = 1_000_000);
    story.arrive("a", 0, 90_000).wait_s(6);
    story.arrive("b", 1, 90_000).wait_s(6);
    // Both workers are full: two steps of one program, and one of another between them.
    story.arrive("c", 2, 50_000).arrive("d", 3, 60_000);
    story.wait_s(1).arrive("c", 4, 50_000).wait_s(20);
    assert_eq!(story.dispatched().len(), 2);
    let at = story.core.state().programs[&ProgramId(2)]
        .place
        .expect("placed")
        .worker;
    let first = if at == WorkerId(0) { "a" } else { "b" };
    story.finish(u64::from(at.0), 90_000, 10).release(first);
    let sent: Vec<u64> = story.dispatched()[2..]
        .iter()
        .map(|(step, _)| *step)
        .collect();
    assert!(sent.contains(&2) && sent.contains(&4), "{sent:?}");
}

#[test]
fn an_unbegun_program_is_said_to_go_elsewhere() {
    let mut story = full();
    story.mute_policy = true;
    story.reconfigure(|config| config.rollout.migration_interval = Span::from_secs(1));
    story.progress(0, 1).wait_s(2);
    while story.core.poll_decision().is_some() {}
    answer(
        &mut story,
        |purpose| purpose == Purpose::Migrate,
        &[(2, 9.0, Some(1))],
    );
    let decision = story.core.poll_decision().expect("it is said");
    assert_eq!(
        (decision.program, decision.kind),
        (ProgramId(2), DecisionKind::Route)
    );
    assert_eq!(story.dispatched().last(), Some(&(2, 1)));
}

#[test]
fn what_waits_beside_an_adopted_step_waits_its_turn() {
    let mut story = lined();
    let adopted = StepId::of(GatewayId(7), 1);
    story.arrive("p0", 10, 120).arrive("p0", adopted.0, 120);
    story.handle(Event::StepAdopted {
        step: adopted,
        worker: WorkerId(0),
    });
    story.progress(1, 1);
    answer(&mut story, route(10), &[(0, 1.0, Some(0))]);
    assert_eq!(story.dispatched().len(), 2, "the engine is full");
}

#[test]
fn whom_no_worker_takes_is_not_asked_about_all_the_time() {
    let mut story = Story::with_mode(Mode::Rollout, &[100, 100_000]);
    story.lose(1);
    story.arrive("long", 0, 5_000).wait_s(100);
    assert!(asks(&story).len() <= 2, "{:?}", asks(&story).len());
    let worker = WorkerId(1);
    story.handle(Event::WorkerRecovered { worker });
    story.wait_s(1);
    assert_eq!(story.dispatched(), [(0, 1)]);
}

#[test]
fn a_worker_that_comes_back_serves_who_stayed_in_its_line() {
    let mut story = Story::with_mode(Mode::Rollout, &[100_000]);
    story.reconfigure(|config| config.rollout.engine_steps_max = 2);
    story.arrive("a", 0, 100).wait_s(1);
    story.arrive("b", 1, 100).wait_s(1).arrive("a", 2, 110);
    // A program whose answer goes on stays where it is, and so does its other step.
    story
        .progress(0, 5)
        .progress(1, 5)
        .lose(0)
        .finish(1, 100, 10);
    assert_eq!(story.dispatched(), [(0, 0), (1, 0)]);
    story.handle(Event::WorkerRecovered {
        worker: WorkerId(0),
    });
    assert_eq!(story.dispatched(), [(0, 0), (1, 0), (2, 0)]);
}
