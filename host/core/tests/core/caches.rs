//! Caches that leave engines and come back: one valid copy, one transfer at a time, and no program
//! forgotten.

use crate::scenario::Scenario;
use treadle_core::memory::Capacity;
use treadle_core::programs::DecisionKind;
use treadle_core::programs::{
    Attribution, CacheAction, PolicyAnswer, ProgramCommand, ProgramEvent, Purpose,
};
use treadle_core::{Command, DaemonEvent, Event};
use treadle_model::{GatewayId, PolicyRef, ProgramId, Span, StepId, WorkerId};

/// Workers whose programs' caches may leave; only the test answers questions.
pub(crate) fn caches(workers: &[u64], host_tokens_max: u64) -> Scenario {
    let mut scenario = Scenario::with_workers(workers);
    scenario.mute_policy = true;
    scenario.reconfigure(|config| {
        config.kv.retention = true;
        config.kv.host_tokens_max = host_tokens_max;
        config.kv.host_tokens_per_s = 10_000;
        config.kv.prefill_tokens_per_s = 100;
        config.kv.migration_tokens_per_s = 10_000;
        config.kv.offload_link_ppm = 1_000_000;
        config.kv.transfer_max = Span::from_secs(600);
    });
    scenario
}

/// A step of a program arrives, and is answered within a second.
pub(crate) fn turn(scenario: &mut Scenario, program: &str, step: u64, prompt: u64) {
    scenario.arrive(program, step, prompt).wait_s(6);
    scenario.finish(step, prompt, 10);
}

/// Answers a retention question.
pub(crate) fn decide(scenario: &mut Scenario, actions: &[(u64, CacheAction)]) {
    let asks = scenario.core.programs().asks.open();
    let mut open = asks
        .iter()
        .filter(|(_, a)| matches!(a.purpose, Purpose::Retain { .. }));
    let ask = *open.next().expect("it is asked").0;
    let actions = actions
        .iter()
        .map(|(program, action)| (ProgramId(*program), *action));
    let answer = PolicyAnswer::CacheActions {
        actions: actions.collect(),
    };
    scenario.handle(Event::Program(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer,
        attribution: Attribution::default(),
    }));
}

pub(crate) fn offloaded(scenario: &mut Scenario, program: u64, tokens: u64) {
    scenario.handle(Event::Program(ProgramEvent::ProgramOffloaded {
        program: ProgramId(program),
        copy: format!("copy of {program}").into(),
        tokens,
        bytes: tokens,
    }));
}

/// Programs in the order in which a kind of transfer began.
fn begun(scenario: &Scenario, is_it: impl Fn(&Command) -> Option<ProgramId>) -> Vec<u64> {
    scenario.log.iter().filter_map(is_it).map(|p| p.0).collect()
}

fn offloads(scenario: &Scenario) -> Vec<u64> {
    begun(scenario, |c| match c {
        Command::Program(ProgramCommand::OffloadProgram { program, .. }) => Some(*program),
        _ => None,
    })
}

pub(crate) fn moves(scenario: &Scenario) -> Vec<u64> {
    begun(scenario, |c| match c {
        Command::Program(ProgramCommand::MigrateProgram { program, .. }) => Some(*program),
        _ => None,
    })
}

pub(crate) fn loads(scenario: &Scenario) -> Vec<u64> {
    begun(scenario, |c| match c {
        Command::Program(ProgramCommand::LoadProgram { program, .. }) => Some(*program),
        _ => None,
    })
}

#[test]
fn a_program_without_room_in_host_memory_leaves_the_link_to_the_next() {
    let mut scenario = caches(&[1_000], 600);
    turn(&mut scenario, "large", 1, 490);
    turn(&mut scenario, "small", 2, 190);
    turn(&mut scenario, "held", 3, 290);
    decide(&mut scenario, &[(2, CacheAction::Offload)]);
    offloaded(&mut scenario, 2, 300);
    // The large one does not fit beside caches that are needed sooner.
    scenario.wait_s(1);
    scenario.arrive("other", 4, 900);
    scenario.wait_s(6);
    decide(
        &mut scenario,
        &[(0, CacheAction::Offload), (1, CacheAction::Offload)],
    );
    assert_eq!(scenario.status("large"), "paused");
    assert_eq!(offloads(&scenario), [2, 1]);
}

#[test]
fn a_cache_that_goes_to_host_memory_goes_nowhere_else() {
    let mut scenario = caches(&[1_000, 2_000], 1_000);
    turn(&mut scenario, "a", 1, 490);
    turn(&mut scenario, "b", 2, 390);
    turn(&mut scenario, "c", 3, 1_090);
    decide(
        &mut scenario,
        &[(0, CacheAction::Migrate), (1, CacheAction::Migrate)],
    );
    let first = moves(&scenario);
    assert_eq!(first, [0], "one at a time");
    scenario.wait_s(1);
    decide(&mut scenario, &[(1, CacheAction::Offload)]);
    assert!(
        offloads(&scenario).is_empty(),
        "it is about to go elsewhere"
    );
    let (program, to) = (ProgramId(first[0]), WorkerId(0));
    scenario.handle(Event::Program(ProgramEvent::ProgramMigrated {
        program,
        to,
    }));
    assert!(offloads(&scenario).is_empty());
}

#[test]
fn an_adopted_step_ends_its_program_s_move() {
    let mut scenario = caches(&[1_000, 1_000], 1_000);
    turn(&mut scenario, "a", 1, 490);
    turn(&mut scenario, "b", 2, 490);
    turn(&mut scenario, "c", 3, 490);
    scenario.release("b");
    decide(&mut scenario, &[(0, CacheAction::Migrate)]);
    assert_eq!(moves(&scenario), [0]);
    let at = scenario.core.programs().live[&ProgramId(0)]
        .placement
        .map(|place| place.worker);
    let step = StepId::of(GatewayId(7), 1);
    scenario.arrive("a", step.0, 600);
    let worker = at.expect("placed");
    scenario.handle(Event::Program(ProgramEvent::StepAdopted { step, worker }));
    let program = ProgramId(0);
    assert!(
        scenario
            .log
            .contains(&Command::Program(ProgramCommand::CancelTransfer {
                program
            }))
    );
    assert!(
        scenario
            .core
            .programs()
            .memory
            .migrations()
            .moving()
            .is_empty()
    );
}

#[test]
fn no_early_placement_where_recompute_is_faster_than_load() {
    let mut scenario = caches(&[1_000], 1_000);
    scenario.reconfigure(|config| config.kv.host_tokens_per_s = 50);
    turn(&mut scenario, "a", 1, 990);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    offloaded(&mut scenario, 0, 1_000);
    scenario.wait_s(3);
    assert_eq!((scenario.status("a"), loads(&scenario)), ("paused", vec![]));
}

#[test]
fn caches_come_back_early_to_a_worker_one_at_a_time() {
    let mut scenario = caches(&[1_000], 1_000);
    turn(&mut scenario, "a", 1, 440);
    turn(&mut scenario, "b", 2, 540);
    decide(
        &mut scenario,
        &[(0, CacheAction::Offload), (1, CacheAction::Offload)],
    );
    offloaded(&mut scenario, 1, 550);
    offloaded(&mut scenario, 0, 450);
    // Their tools are expected to last as long again as so far, at first two seconds.
    scenario.core = treadle_core::Core::with_state(
        treadle_core::CoreConfig {
            tick: Span::from_secs(600),
            ..scenario.core.config().clone()
        },
        scenario.core.state().clone(),
    );
    scenario.wait_s(2);
    assert_eq!(loads(&scenario).len(), 1, "{:?}", loads(&scenario));
}

#[test]
fn a_copy_that_host_memory_has_no_room_for_is_dropped() {
    let mut scenario = caches(&[1_000], 1_100);
    turn(&mut scenario, "a", 1, 990);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    offloaded(&mut scenario, 0, 1_101);
    let dropped = |c: &Command| matches!(c, Command::Program(ProgramCommand::DropCopy { .. }));
    assert!(scenario.log.iter().any(dropped));
    assert!(scenario.core.programs().memory.offloads().is_empty());
    assert_eq!(scenario.status("a"), "paused");
}

#[test]
fn a_program_of_little_weight_is_recorded_with_its_destination() {
    let mut scenario = caches(&[1_000], 1_000);
    turn(&mut scenario, "a", 1, 890);
    scenario.arrive("b", 2, 500).wait_s(1);
    let asks = scenario.core.programs().asks.open();
    let mut open = asks
        .iter()
        .filter(|(_, a)| matches!(a.purpose, Purpose::Weigh { .. }));
    let ask = *open.next().expect("it is asked").0;
    while scenario.core.poll_decision().is_some() {}
    scenario.handle(Event::Program(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer: PolicyAnswer::Weights {
            weights: vec![(ProgramId(0), 0)],
        },
        attribution: Attribution::default(),
    }));
    let decision = scenario.core.poll_decision().expect("it is decided");
    assert_eq!(decision.kind, DecisionKind::Offload);
    assert_eq!(offloads(&scenario), [0]);
}

#[test]
fn a_program_waiting_for_its_cache_leaves_a_worker_that_became_too_small() {
    let mut scenario = caches(&[1_000, 2_000], 1_000);
    scenario.lose(1);
    turn(&mut scenario, "a", 1, 990);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    offloaded(&mut scenario, 0, 1_000);
    scenario.wait_s(1).arrive("a", 2, 995).wait_s(6);
    assert_eq!(loads(&scenario), [0]);
    let worker = WorkerId(1);
    scenario.handle(Event::Program(ProgramEvent::WorkerRecovered { worker }));
    scenario.resize(0, 500);
    assert_eq!(scenario.status("a"), "paused");
    scenario.wait_s(6);
    assert_eq!(loads(&scenario), [0, 0], "to the other one");
    let (program, to) = (ProgramId(0), worker);
    scenario.handle(Event::Program(ProgramEvent::ProgramLoaded { program, to }));
    assert_eq!(scenario.dispatched().last(), Some(&(2, 1)));
}

/// No engine can offload any more.
fn without_host_memory(scenario: &mut Scenario) {
    let mut config = scenario.core.config().clone();
    config.kv.host_tokens_max = 0;
    let config = Box::new(config);
    scenario.handle(Event::Daemon(DaemonEvent::Configured { config }));
}

#[test]
fn a_program_waiting_for_its_cache_goes_on_without_host_memory() {
    let mut scenario = caches(&[1_000], 1_000);
    turn(&mut scenario, "a", 1, 990);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    offloaded(&mut scenario, 0, 1_000);
    scenario.wait_s(1).arrive("a", 2, 995).wait_s(6);
    assert_eq!(loads(&scenario), [0]);
    without_host_memory(&mut scenario);
    let cancelled =
        |c: &Command| matches!(c, Command::Program(ProgramCommand::CancelTransfer { .. }));
    assert!(scenario.log.iter().any(cancelled));
    scenario.wait_s(6);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
    assert!(scenario.core.programs().memory.offloads().is_empty());
}

#[test]
fn a_cache_on_its_way_out_stays_where_host_memory_ends() {
    let mut scenario = caches(&[1_000], 1_000);
    turn(&mut scenario, "a", 1, 990);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    assert_eq!(offloads(&scenario), [0]);
    without_host_memory(&mut scenario);
    let cancelled =
        |c: &Command| matches!(c, Command::Program(ProgramCommand::CancelTransfer { .. }));
    assert!(scenario.log.iter().any(cancelled));
    assert!(scenario.core.programs().memory.offloads().is_empty());
    scenario.arrive("a", 2, 995).wait_s(1);
    assert_eq!(scenario.dispatched().last(), Some(&(2, 0)));
}

/// Answers a restore question.
fn restore(scenario: &mut Scenario, programs: &[u64]) {
    let mut asks = scenario.core.programs().asks.open().iter();
    let open = asks.find(|(_, a)| a.purpose == Purpose::Restore);
    let ask = *open.expect("it is asked").0;
    let answer = PolicyAnswer::Order {
        programs: programs.iter().copied().map(ProgramId).collect(),
        scores: Vec::new(),
        workers: Vec::new(),
        remaining_tokens: Vec::new(),
    };
    scenario.handle(Event::Program(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer,
        attribution: Attribution::default(),
    }));
}

#[test]
fn a_worker_is_not_kept_for_a_program_whose_cache_comes_back_elsewhere() {
    let mut scenario = caches(&[1_000], 10_000);
    scenario.reconfigure(|config| config.deferral_min = Span::from_secs(30));
    turn(&mut scenario, "held", 1, 590);
    turn(&mut scenario, "other", 2, 390);
    decide(&mut scenario, &[(0, CacheAction::Offload)]);
    offloaded(&mut scenario, 0, 600);
    scenario.arrive("other", 3, 500);
    let capacity = Capacity {
        tokens: Some(1_000),
        ..Capacity::default()
    };
    scenario.add_worker(1, capacity);
    scenario.arrive("busy", 4, 900).wait_s(6);
    scenario.arrive("held", 5, 600).wait_s(60);
    let held = ProgramId(0);
    let reservations = scenario.core.programs().waiting.reservations();
    assert_eq!(reservations.get(&WorkerId(0)), Some(&held));
    scenario.arrive("next", 6, 400).wait_s(60);
    assert_eq!(scenario.dispatched().last(), Some(&(4, 1)), "both wait");
    scenario.finish(4, 900, 10).release("busy");
    restore(&mut scenario, &[0, 3]);
    assert_eq!(loads(&scenario), [0]);
    assert_eq!(scenario.dispatched().last(), Some(&(6, 0)));
}

#[test]
fn a_program_waiting_to_be_moved_makes_room_where_memory_is_short() {
    let mut scenario = caches(&[1_000, 2_000], 0);
    turn(&mut scenario, "a", 1, 490);
    turn(&mut scenario, "b", 2, 390);
    turn(&mut scenario, "c", 3, 1_090);
    decide(
        &mut scenario,
        &[(0, CacheAction::Migrate), (1, CacheAction::Migrate)],
    );
    assert_eq!(moves(&scenario), [0], "the other one waits for the link");
    scenario.arrive("c", 4, 1_200).wait_s(6);
    assert_eq!(scenario.status("b"), "paused");
}

#[test]
fn a_slot_is_given_up_by_its_share_of_memory_and_found_again() {
    let mut scenario = Scenario::with_slots(&[(1_000, 2)]);
    scenario.mute_policy = true;
    scenario.reconfigure(|config| config.kv.retention = true);
    turn(&mut scenario, "a", 1, 10);
    turn(&mut scenario, "b", 2, 10);
    assert!(
        scenario.core.programs().asks.open().is_empty(),
        "nobody waits"
    );
    scenario.arrive("c", 3, 10);
    let asks = scenario.core.programs().asks.open().values();
    let asked: Vec<Purpose> = asks.map(|ask| ask.purpose).collect();
    let of_slots = Purpose::Retain {
        worker: WorkerId(0),
        capacity_tokens: 1_000,
        free_tokens: 0,
        wanted_tokens: 500,
    };
    assert_eq!(asked, [of_slots]);
    let tokens = scenario.log.iter().rev().find_map(|command| match command {
        Command::Program(ProgramCommand::AskPolicy { question, .. }) => {
            Some(question.programs.tokens.clone())
        }
        _ => None,
    });
    assert_eq!(tokens.as_deref(), Some([500, 500].as_slice()));

    decide(&mut scenario, &[(1, CacheAction::Drop)]);
    scenario.mute_policy = false;
    scenario.wait_s(6);
    assert_eq!(scenario.slots(), [(1, Some(0)), (2, Some(1)), (3, Some(1))]);
    // With both slots free, it gets its previous one.
    scenario.finish(3, 10, 1).release("c").release("a");
    scenario.arrive("b", 4, 20);
    assert_eq!(scenario.slots().last(), Some(&(4, Some(1))));
}
