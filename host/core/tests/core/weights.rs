//! What an update of weights does to programs: caches of other weights are forgotten wherever they
//! are, and engines share none unless they have the same weights.

use crate::caches::{caches, decide, loads, moves, offloaded, turn};
use crate::offloading_engines::{engine, finish, round};
use crate::ranks::{filled_unequally, workers};
use crate::scenario::Scenario;
use crate::suspension::{answer_until, publish, suspend};
use treadle_core::memory::Capacity;
use treadle_core::programs::{CacheAction, ProgramCommand, ProgramEvent};
use treadle_core::programs::{Worker, WorkerState};
use treadle_core::training::TrainingEvent;
use treadle_core::weights::{Answer, Call, TrainerCall, WeightsCommand, WeightsEvent};
use treadle_core::{CapturedVersion, Command, Event, ServedVersions, UnknownVersion};
use treadle_model::{EngineKind, ProgramId, WorkerId};

/// Updates these engines, and none but these.
fn update(s: &mut Scenario, version: u64, workers: &[u32]) {
    publish(s, version, workers);
    answer_until(s, None);
}

fn worker(s: &Scenario, worker: u32) -> &Worker {
    &s.core.programs().workers[&WorkerId(worker)]
}

fn used(s: &Scenario, of: u32) -> u64 {
    worker(s, of).used_tokens()
}

fn has_copy(s: &Scenario) -> bool {
    !s.core.programs().memory.offloads().held().is_empty()
}

fn is_moving(s: &Scenario) -> bool {
    !s.core.programs().memory.migrations().moving().is_empty()
}

fn drops(s: &Scenario) -> usize {
    let drops = |c: &&Command| matches!(c, Command::Program(ProgramCommand::DropCopy { .. }));
    s.log.iter().filter(drops).count()
}

/// A rank or an engine is registered, and answers.
fn register(s: &mut Scenario, worker: u32, url: &str) {
    s.handle(Event::Program(ProgramEvent::WorkerAdded {
        worker: WorkerId(worker),
        url: url.into(),
        engine: EngineKind::Vllm,
        capacity: Capacity {
            tokens: Some(100_000),
            ..Capacity::default()
        },
        role: None,
    }));
    s.recover(worker);
}

fn remove(s: &mut Scenario, worker: u32) {
    s.handle(Event::Program(ProgramEvent::WorkerRemoved {
        worker: WorkerId(worker),
    }));
}

#[test]
fn programs_between_steps_leave_the_ledger_once_caches_are_cleared() {
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("idle", 1, 300).arrive("elsewhere", 2, 600);
    let placed = s.dispatched();
    let (here, other) = (placed[0].1, placed[1].1);
    assert_ne!(here, other);
    s.finish(1, 300, 10)
        .finish(2, 600, 10)
        .arrive("runs", 3, 200);
    assert_eq!(s.dispatched()[2], (3, here));
    publish(&mut s, 1, &[here]);
    answer_until(&mut s, Some(Call::Clear));
    let before = used(&s, here);
    assert!(before >= 510, "{before}: it has its caches still");
    assert_eq!(s.status("idle"), "active");
    answer_until(&mut s, None);
    assert_eq!(before - used(&s, here), 310, "only the step that runs");
    assert_eq!(s.status("idle"), "paused");
    assert_eq!((used(&s, other), s.status("elsewhere")), (610, "active"));
    s.finish(3, 200, 10).arrive("idle", 4, 320).wait_s(6);
    assert_eq!(s.dispatched().last(), Some(&(4, here)));
}

#[test]
fn a_copy_is_dropped_with_the_caches_of_its_engine_only() {
    let mut s = caches(&[1_000, 400], 2_000);
    turn(&mut s, "a", 1, 990);
    assert_eq!(s.dispatched(), [(1, 0)]);
    decide(&mut s, &[(0, CacheAction::Offload)]);
    offloaded(&mut s, 0, 1_000);
    update(&mut s, 1, &[1]);
    assert!(has_copy(&s), "another engine was updated");
    publish(&mut s, 2, &[0]);
    answer_until(&mut s, Some(Call::Clear));
    assert!(has_copy(&s));
    answer_until(&mut s, None);
    assert_eq!((has_copy(&s), drops(&s)), (false, 1));
}

#[test]
fn a_copy_that_is_under_way_is_of_no_use() {
    let mut s = caches(&[1_000], 1_000);
    turn(&mut s, "a", 1, 990);
    decide(&mut s, &[(0, CacheAction::Offload)]);
    update(&mut s, 1, &[0]);
    let program = ProgramId(0);
    let cancelled = Command::Program(ProgramCommand::CancelTransfer { program });
    assert!(s.log.contains(&cancelled));
    // Its gateway had stored it before it heard of that.
    offloaded(&mut s, 0, 1_000);
    assert_eq!((has_copy(&s), drops(&s)), (false, 1));
}

/// Where a copy that was made at one engine is loaded into the other, which was updated meanwhile
/// or was not.
fn loads_elsewhere(updated: bool) -> Vec<u64> {
    let mut s = caches(&[1_000, 1_000], 2_000);
    turn(&mut s, "a", 1, 990);
    let from = s.dispatched()[0].1;
    let to = 1 - from;
    decide(&mut s, &[(0, CacheAction::Offload)]);
    offloaded(&mut s, 0, 1_000);
    if updated {
        update(&mut s, 1, &[to]);
    }
    s.set_state(from, WorkerState::Cordoned);
    s.arrive("a", 2, 995).wait_s(6);
    if updated {
        assert_eq!((has_copy(&s), drops(&s)), (false, 1));
        assert_eq!(s.dispatched().last(), Some(&(2, to)), "it is computed");
    }
    loads(&s)
}

#[test]
fn a_copy_is_loaded_only_into_engines_with_its_weights() {
    assert_eq!(loads_elsewhere(false), [0]);
    assert!(loads_elsewhere(true).is_empty());
}

/// Three programs fill the second engine, and two of them could move to the first.
fn full_beside_an_empty_engine() -> Scenario {
    let mut s = caches(&[1_000, 2_000], 0);
    turn(&mut s, "a", 1, 490);
    turn(&mut s, "b", 2, 390);
    turn(&mut s, "c", 3, 1_090);
    s
}

fn move_away(s: &mut Scenario) {
    decide(s, &[(0, CacheAction::Migrate), (1, CacheAction::Migrate)]);
}

#[test]
fn caches_move_only_between_engines_with_the_same_weights() {
    let mut s = full_beside_an_empty_engine();
    update(&mut s, 1, &[0]);
    move_away(&mut s);
    assert!(moves(&s).is_empty());
    assert_eq!(used(&s, 1), 2_000, "they stay");
}

#[test]
fn moves_end_before_their_destination_is_loaded_and_with_the_caches_of_their_source() {
    let mut s = full_beside_an_empty_engine();
    move_away(&mut s);
    assert_eq!(moves(&s), [0]);
    suspend(&mut s, 1, &[0]);
    assert!(!is_moving(&s), "nothing comes to a fenced engine");

    let mut s = full_beside_an_empty_engine();
    move_away(&mut s);
    suspend(&mut s, 1, &[1]);
    assert!(is_moving(&s), "what leaves is of the old weights still");
    answer_until(&mut s, None);
    assert!(!is_moving(&s));
    let (program, to) = (ProgramId(0), WorkerId(0));
    s.handle(Event::Program(ProgramEvent::ProgramMigrated {
        program,
        to,
    }));
    assert_eq!((used(&s, 0), used(&s, 1)), (0, 0));
    assert_eq!(s.status("a"), "paused");
}

#[test]
fn what_an_engine_was_seen_to_keep_is_forgotten() {
    let mut s = engine(true);
    for first in [1, 5] {
        assert_eq!(round(&mut s, first), 4);
        let cached: u64 = if first == 1 { 0 } else { 4_000 };
        (first..first + 4).for_each(|step| finish(&mut s, step, cached));
    }
    round(&mut s, 9);
    finish(&mut s, 9, 0);
    publish(&mut s, 1, &[0]);
    answer_until(&mut s, Some(Call::Clear));
    let keeps = |s: &Scenario| worker(s, 0).ledger.engine().clone();
    assert!(!keeps(&s).is_unbounded(), "it lost a cache");
    answer_until(&mut s, None);
    assert!(keeps(&s).is_unbounded(), "it says so, and nothing is known");
    assert!(!keeps(&s).has_lingering(), "also not of programs that left");
}

#[test]
fn a_fence_and_an_update_are_of_all_ranks_of_an_address() {
    let mut s = filled_unequally();
    suspend(&mut s, 1, &[0]);
    register(&mut s, 3, "http://a#2");
    register(&mut s, 4, "http://c");
    let fenced = |s: &Scenario| [0, 1, 2, 3, 4].map(|each| worker(s, each).fenced);
    assert_eq!(fenced(&s), [true, true, false, true, false]);
    for step in 3..7 {
        s.arrive(&format!("short {step}"), step, 10);
    }
    let mut placed = s.dispatched().split_off(3);
    placed.retain(|(_, worker)| ![2, 4].contains(worker));
    assert!(placed.is_empty(), "{placed:?}");
    answer_until(&mut s, None);
    assert_eq!(fenced(&s), [false; 5]);
    assert_eq!((used(&s, 0), used(&s, 1)), (0, 0));
    assert!(used(&s, 2) >= 25_010);
    let weights = |of: u32| worker(&s, of).weights.clone();
    assert!(weights(0).is_some() && weights(2).is_none());
    assert_eq!((weights(1), weights(3)), (weights(0), weights(0)));
    let mut called = s.log.iter().filter_map(|command| match command {
        Command::Weights(WeightsCommand::Call { worker, .. }) => Some(worker.0),
        _ => None,
    });
    assert!(called.all(|worker| worker == 0), "{:?}", s.log);
}

/// A worker that was removed stays until its last step has ended, and may be registered again
/// before that.
#[test]
fn a_rank_that_comes_back_is_fenced_as_the_others() {
    let mut s = workers(&["http://a#0", "http://a#1"]);
    s.arrive("a", 1, 30_000).arrive("b", 2, 30_000);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1)]);
    remove(&mut s, 1);
    suspend(&mut s, 1, &[0]);
    register(&mut s, 1, "http://a#1");
    assert!(worker(&s, 1).fenced);
    answer_until(&mut s, None);
    assert!(!worker(&s, 1).fenced);
    // The whole address is removed, and is nobody's when it comes back.
    suspend(&mut s, 2, &[0]);
    remove(&mut s, 1);
    remove(&mut s, 0);
    register(&mut s, 0, "http://a#0");
    assert!(!worker(&s, 0).fenced);
    assert_eq!(worker(&s, 0).weights, None);
}

/// Passes a trainer's call on; the engine does it.
fn relay(s: &mut Scenario, call: TrainerCall) {
    let (job, worker) = ("math", WorkerId(0));
    let is_passed = call != TrainerCall::Resume;
    s.handle(Event::Weights(WeightsEvent::WeightsRelayed {
        job: job.into(),
        worker,
        lineage: 0,
        all: true,
        call,
    }));
    if is_passed {
        s.handle(Event::Weights(WeightsEvent::WeightsRelayEnded {
            job: job.into(),
            worker,
            answer: Answer::Done,
        }));
    }
}

/// It came with weights of its own, and is updated while a step runs there; then nothing on record
/// says so any more.
#[test]
fn a_step_during_which_a_jobs_weights_are_released_is_not_captured() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.handle(Event::Training(TrainingEvent::JobDeclared {
        job: "math".into(),
        settings: Box::default(),
    }));
    let read = |s: &Scenario| {
        let read = s.core.captured_version("math", Some(WorkerId(0)));
        read.expect("it is declared")
    };
    let bounds = |s: &Scenario, begun: &CapturedVersion| {
        let (begun, ended) = (begun.clone(), read(s));
        ServedVersions { begun, ended }.bounds()
    };
    let begun = read(&s);
    let own = bounds(&s, &begun).expect("it has what it came with");
    assert_eq!((own.oldest, own.newest), (0, 0));
    relay(&mut s, TrainerCall::Pause { own: false });
    let name = Some("1".into());
    relay(&mut s, TrainerCall::Load { name });
    relay(&mut s, TrainerCall::Resume);
    answer_until(&mut s, None);
    let updated = bounds(&s, &begun).expect("it has version 1");
    assert_eq!((updated.oldest, updated.newest), (0, 1));
    s.handle(Event::Weights(WeightsEvent::WeightsReleased {
        job: "math".into(),
    }));
    assert!(!worker(&s, 0).fenced);
    assert_eq!(bounds(&s, &begun), Err(UnknownVersion::Lost));
    // One that begins now has the version that the trainer reports.
    assert!(bounds(&s, &read(&s)).is_ok());
}

/// Its process has no ranks any more, and what it has is nobody's.
#[test]
fn an_address_is_not_fenced_for_ranks_that_are_gone() {
    let mut s = workers(&["http://a#0", "http://a#1"]);
    suspend(&mut s, 1, &[0]);
    register(&mut s, 2, "http://a");
    assert!(worker(&s, 2).fenced, "as long as they are there");
    remove(&mut s, 1);
    remove(&mut s, 0);
    assert!(!worker(&s, 2).fenced);
    s.arrive("a", 1, 1_000);
    assert_eq!(s.dispatched(), [(1, 2)]);
}
