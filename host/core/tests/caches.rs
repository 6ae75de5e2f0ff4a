//! Caches that leave engines and come back: one valid copy, one transfer at a
//! time, and nobody forgotten on the way.

mod story;

use story::Story;
use treadle_core::explain::DecisionKind;
use treadle_core::{Capacity, Command, Event, Fate, Purpose, Verdict, Voices};
use treadle_model::{GatewayId, PolicyRef, ProgramId, Span, StepId, WorkerId};

/// Workers whose programs' caches may leave; nobody answers but the test.
fn caches(workers: &[u64], host_tokens_max: u64) -> Story {
    let mut story = Story::with_workers(workers);
    story.mute_policy = true;
    story.reconfigure(|config| {
        config.kv.retention = true;
        config.kv.host_tokens_max = host_tokens_max;
        config.kv.host_tokens_per_s = 10_000;
        config.kv.prefill_tokens_per_s = 100;
        config.kv.migration_tokens_per_s = 10_000;
        config.kv.offload_link_ppm = 1_000_000;
        config.kv.transfer_max = Span::from_secs(600);
    });
    story
}

/// A step of a program arrives, and has been answered a second later.
fn turn(story: &mut Story, program: &str, step: u64, prompt: u64) {
    story.arrive(program, step, prompt).wait_s(6);
    story.finish(step, prompt, 10);
}

/// Answers what becomes of caches.
fn decide(story: &mut Story, fates: &[(u64, Fate)]) {
    let asks = &story.core.state().asks;
    let mut open = asks
        .iter()
        .filter(|(_, a)| matches!(a.purpose, Purpose::Retain { .. }));
    let ask = *open.next().expect("it is asked").0;
    let fates = fates
        .iter()
        .map(|(program, fate)| (ProgramId(*program), *fate));
    let verdict = Verdict::Fates {
        fates: fates.collect(),
    };
    story.handle(Event::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        verdict,
        voices: Voices::default(),
    });
}

fn offloaded(story: &mut Story, program: u64, tokens: u64) {
    story.handle(Event::ProgramOffloaded {
        program: ProgramId(program),
        copy: format!("copy of {program}").into(),
        tokens,
        bytes: tokens,
    });
}

/// Programs in the order in which a kind of transfer began.
fn begun(story: &Story, is_it: impl Fn(&Command) -> Option<ProgramId>) -> Vec<u64> {
    story.log.iter().filter_map(is_it).map(|p| p.0).collect()
}

fn offloads(story: &Story) -> Vec<u64> {
    begun(story, |c| match c {
        Command::OffloadProgram { program, .. } => Some(*program),
        _ => None,
    })
}

fn moves(story: &Story) -> Vec<u64> {
    begun(story, |c| match c {
        Command::MigrateProgram { program, .. } => Some(*program),
        _ => None,
    })
}

fn loads(story: &Story) -> Vec<u64> {
    begun(story, |c| match c {
        Command::LoadProgram { program, .. } => Some(*program),
        _ => None,
    })
}

#[test]
fn who_finds_no_room_in_host_memory_leaves_the_link_to_the_next() {
    let mut story = caches(&[1_000], 600);
    turn(&mut story, "large", 1, 490);
    turn(&mut story, "small", 2, 190);
    turn(&mut story, "held", 3, 290);
    decide(&mut story, &[(2, Fate::Offload)]);
    offloaded(&mut story, 2, 300);
    // The large one does not fit beside what is needed sooner.
    story.wait_s(1);
    story.arrive("other", 4, 900);
    story.wait_s(6);
    decide(&mut story, &[(0, Fate::Offload), (1, Fate::Offload)]);
    assert_eq!(story.status("large"), "paused");
    assert_eq!(offloads(&story), [2, 1]);
}

#[test]
fn a_cache_that_goes_to_host_memory_goes_nowhere_else() {
    let mut story = caches(&[1_000, 2_000], 1_000);
    turn(&mut story, "a", 1, 490);
    turn(&mut story, "b", 2, 390);
    turn(&mut story, "c", 3, 1_090);
    decide(&mut story, &[(0, Fate::Migrate), (1, Fate::Migrate)]);
    let first = moves(&story);
    assert_eq!(first, [0], "one at a time");
    story.wait_s(1);
    decide(&mut story, &[(1, Fate::Offload)]);
    assert!(offloads(&story).is_empty(), "it is about to go elsewhere");
    let (program, to) = (ProgramId(first[0]), WorkerId(0));
    story.handle(Event::ProgramMigrated { program, to });
    assert!(offloads(&story).is_empty());
}

#[test]
fn an_adopted_step_ends_its_program_s_move() {
    let mut story = caches(&[1_000, 1_000], 1_000);
    turn(&mut story, "a", 1, 490);
    turn(&mut story, "b", 2, 490);
    turn(&mut story, "c", 3, 490);
    story.release("b");
    decide(&mut story, &[(0, Fate::Migrate)]);
    assert_eq!(moves(&story), [0]);
    let at = story.core.state().programs[&ProgramId(0)]
        .place
        .map(|place| place.worker);
    let step = StepId::of(GatewayId(7), 1);
    story.arrive("a", step.0, 600);
    let worker = at.expect("placed");
    story.handle(Event::StepAdopted { step, worker });
    let program = ProgramId(0);
    assert!(story.log.contains(&Command::CancelTransfer { program }));
    assert!(story.core.state().migrations.moving.is_empty());
}

#[test]
fn nobody_gets_a_place_early_whose_cache_is_computed_sooner_than_loaded() {
    let mut story = caches(&[1_000], 1_000);
    story.reconfigure(|config| config.kv.host_tokens_per_s = 50);
    turn(&mut story, "a", 1, 990);
    decide(&mut story, &[(0, Fate::Offload)]);
    offloaded(&mut story, 0, 1_000);
    story.wait_s(3);
    assert_eq!((story.status("a"), loads(&story)), ("paused", vec![]));
}

#[test]
fn caches_come_back_early_to_a_worker_one_at_a_time() {
    let mut story = caches(&[1_000], 1_000);
    turn(&mut story, "a", 1, 440);
    turn(&mut story, "b", 2, 540);
    decide(&mut story, &[(0, Fate::Offload), (1, Fate::Offload)]);
    offloaded(&mut story, 1, 550);
    offloaded(&mut story, 0, 450);
    // Their tools are taken to last as long again as they have, at first two seconds.
    story.core = treadle_core::Core::with_state(
        treadle_core::CoreConfig {
            tick: Span::from_secs(600),
            ..story.core.config().clone()
        },
        story.core.state().clone(),
    );
    story.wait_s(2);
    assert_eq!(loads(&story).len(), 1, "{:?}", loads(&story));
}

#[test]
fn a_copy_that_host_memory_has_no_room_for_is_dropped() {
    let mut story = caches(&[1_000], 1_100);
    turn(&mut story, "a", 1, 990);
    decide(&mut story, &[(0, Fate::Offload)]);
    offloaded(&mut story, 0, 1_101);
    let dropped = |c: &Command| matches!(c, Command::DropCopy { .. });
    assert!(story.log.iter().any(dropped));
    assert!(story.core.state().offloads.is_empty());
    assert_eq!(story.status("a"), "paused");
}

#[test]
fn who_hardly_counts_any_more_is_said_to_go_where_it_goes() {
    let mut story = caches(&[1_000], 1_000);
    turn(&mut story, "a", 1, 890);
    story.arrive("b", 2, 500).wait_s(1);
    let asks = &story.core.state().asks;
    let mut open = asks
        .iter()
        .filter(|(_, a)| matches!(a.purpose, Purpose::Weigh { .. }));
    let ask = *open.next().expect("it is asked").0;
    while story.core.poll_decision().is_some() {}
    story.handle(Event::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        verdict: Verdict::Weights {
            weights: vec![(ProgramId(0), 0)],
        },
        voices: Voices::default(),
    });
    let decision = story.core.poll_decision().expect("it is decided");
    assert_eq!(decision.kind, DecisionKind::Offload);
    assert_eq!(offloads(&story), [0]);
}

#[test]
fn who_waits_for_a_cache_leaves_a_worker_that_became_too_small() {
    let mut story = caches(&[1_000, 2_000], 1_000);
    story.lose(1);
    turn(&mut story, "a", 1, 990);
    decide(&mut story, &[(0, Fate::Offload)]);
    offloaded(&mut story, 0, 1_000);
    story.wait_s(1).arrive("a", 2, 995).wait_s(6);
    assert_eq!(loads(&story), [0]);
    let worker = WorkerId(1);
    story.handle(Event::WorkerRecovered { worker });
    story.resize(0, 500);
    assert_eq!(story.status("a"), "paused");
    story.wait_s(6);
    assert_eq!(loads(&story), [0, 0], "to the other one");
    let (program, to) = (ProgramId(0), worker);
    story.handle(Event::ProgramLoaded { program, to });
    assert_eq!(story.dispatched().last(), Some(&(2, 1)));
}

/// Answers whom to restore.
fn restore(story: &mut Story, programs: &[u64]) {
    let mut asks = story.core.state().asks.iter();
    let open = asks.find(|(_, a)| a.purpose == Purpose::Restore);
    let ask = *open.expect("it is asked").0;
    let verdict = Verdict::Order {
        programs: programs.iter().copied().map(ProgramId).collect(),
        scores: Vec::new(),
        workers: Vec::new(),
        remaining_tokens: Vec::new(),
    };
    story.handle(Event::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        verdict,
        voices: Voices::default(),
    });
}

#[test]
fn a_worker_is_not_kept_for_a_program_whose_cache_comes_back_elsewhere() {
    let mut story = caches(&[1_000], 10_000);
    turn(&mut story, "held", 1, 590);
    turn(&mut story, "other", 2, 390);
    decide(&mut story, &[(0, Fate::Offload)]);
    offloaded(&mut story, 0, 600);
    story.arrive("other", 3, 500);
    let capacity = Capacity {
        tokens: Some(1_000),
        ..Capacity::default()
    };
    story.add_worker(1, capacity);
    story.arrive("busy", 4, 900).wait_s(6);
    story.arrive("held", 5, 600).wait_s(60);
    let held = ProgramId(0);
    assert_eq!(story.core.state().reserved, Some((WorkerId(0), held)));
    story.arrive("next", 6, 400).wait_s(60);
    assert_eq!(story.dispatched().last(), Some(&(4, 1)), "both wait");
    story.finish(4, 900, 10).release("busy");
    restore(&mut story, &[0, 3]);
    assert_eq!(loads(&story), [0]);
    assert_eq!(story.dispatched().last(), Some(&(6, 0)));
}

#[test]
fn who_waits_to_be_moved_makes_room_where_memory_is_short() {
    let mut story = caches(&[1_000, 2_000], 0);
    turn(&mut story, "a", 1, 490);
    turn(&mut story, "b", 2, 390);
    turn(&mut story, "c", 3, 1_090);
    decide(&mut story, &[(0, Fate::Migrate), (1, Fate::Migrate)]);
    assert_eq!(moves(&story), [0], "the other one waits for the link");
    story.arrive("c", 4, 1_200).wait_s(6);
    assert_eq!(story.status("b"), "paused");
}
