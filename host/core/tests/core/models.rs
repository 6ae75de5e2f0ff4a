//! Several models behind one daemon: which steps go to which workers.

use crate::scenario::Scenario;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, Refusal};
use treadle_core::{Event, Mode};
use treadle_model::{EngineKind, WorkerId};

const MODES: [Mode; 3] = [Mode::ProgramAware, Mode::Sticky, Mode::LeastLoad];

/// Workers with these models.
fn with_models(mode: Mode, models: &[&[&str]]) -> Scenario {
    let mut s = Scenario::with_mode(mode, &vec![10_000; models.len()]);
    for (worker, models) in (0..).zip(models) {
        s.serves(worker, models);
    }
    s
}

fn become_of_kind(s: &mut Scenario, worker: u32, engine: EngineKind) {
    s.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
        worker: WorkerId(worker),
        engine,
        capacity: Capacity::default(),
    }));
}

fn unknown(s: &Scenario) -> Vec<(u64, String, Vec<String>)> {
    let refusals = s.refusals().into_iter();
    let of = |(step, refusal)| match refusal {
        Refusal::ModelUnknown { model, served } => {
            let served = served.iter().map(ToString::to_string).collect();
            (step, model.to_string(), served)
        }
        other => panic!("{other:?}"),
    };
    refusals.map(of).collect()
}

#[test]
fn a_step_goes_to_a_worker_that_serves_its_model() {
    for mode in MODES {
        let mut s = with_models(mode, &[&["a"], &["b"], &["b", "b-lora"]]);
        for (step, (model, program)) in (1..).zip([
            (Some("a"), "p"),
            (Some("a"), "q"),
            (Some("a"), "r"),
            (Some("b-lora"), "s"),
            (Some("b-lora"), "t"),
            (None, "u"),
        ]) {
            s.arrive_for(model, program, step, 100);
        }
        let expected = [(1, 0), (2, 0), (3, 0), (4, 2), (5, 2), (6, 0)];
        assert_eq!(s.dispatched(), expected, "{mode:?}");
        s.arrive_for(Some("b"), "v", 7, 100);
        let (_, at) = s.dispatched()[6];
        assert!(at == 1 || at == 2, "{mode:?}");
    }
}

#[test]
fn an_unknown_model_is_refused_and_leaves_no_program() {
    for mode in MODES {
        let mut s = with_models(mode, &[&["a"], &["b", "b-lora"]]);
        s.arrive_for(Some("c"), "p", 1, 100);
        let served = ["a", "b", "b-lora"].map(str::to_owned).to_vec();
        assert_eq!(unknown(&s), [(1, "c".to_owned(), served)]);
        assert!(s.dispatched().is_empty());
        assert!(s.core.programs().live.is_empty());
    }
}

#[test]
fn an_engine_that_tells_nothing_may_have_the_model() {
    let mut s = with_models(Mode::ProgramAware, &[&["a"], &["b"]]);
    s.add_worker(2, Capacity::default());
    s.arrive_for(Some("c"), "p", 1, 100);
    assert_eq!(s.dispatched(), [(1, 2)]);
    // Once it reports its models, other models are unknown.
    s.serves(2, &["a"]);
    s.arrive_for(Some("c"), "q", 2, 100);
    assert_eq!(unknown(&s).len(), 1);
}

#[test]
fn engines_that_take_any_name_are_given_any_while_they_are_alike() {
    for engine in [EngineKind::Sglang, EngineKind::Llamacpp] {
        let mut s = with_models(Mode::ProgramAware, &[&["a"], &["a"]]);
        for worker in 0..2 {
            become_of_kind(&mut s, worker, engine);
        }
        s.arrive_for(Some("default"), "p", 1, 100);
        assert_eq!(s.dispatched().len(), 1, "{engine:?}");
        s.serves(1, &["b"]);
        s.arrive_for(Some("default"), "q", 2, 100);
        assert_eq!(unknown(&s).len(), 1, "{engine:?}");
        s.arrive_for(Some("b"), "r", 3, 100);
        assert_eq!(s.dispatched().last(), Some(&(3, 1)));
    }
    let mut s = with_models(Mode::ProgramAware, &[&["a", "l"]]);
    become_of_kind(&mut s, 0, EngineKind::Sglang);
    s.arrive_for(Some("a:l"), "p", 1, 100);
    assert_eq!(s.dispatched(), [(1, 0)], "an adapter as SGLang writes it");
}

#[test]
fn a_program_with_two_models_keeps_both_its_places() {
    let mut s = with_models(Mode::ProgramAware, &[&["a"], &["b"]]);
    let mut step = 0;
    for _ in 0..3 {
        // A small model is requested while the large one works.
        s.arrive_for(Some("a"), "p", step + 1, 100 + step);
        s.arrive_for(Some("b"), "p", step + 2, 100 + step);
        s.finish(step + 1, 100 + step, 10)
            .finish(step + 2, 100 + step, 10);
        step += 2;
    }
    let expected = [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0), (6, 1)];
    assert_eq!(s.dispatched(), expected);
    assert_eq!(s.core.programs().counters.pauses, 0);
    assert_eq!(s.core.programs().counters.restores, 0);
    assert_eq!(s.core.programs().live.len(), 2);
    s.release("p");
    assert!(s.core.programs().live.is_empty(), "both end with it");
}

#[test]
fn an_adapter_of_its_model_is_of_the_same_program() {
    let mut s = with_models(Mode::ProgramAware, &[&["a", "l"], &["a", "l"], &["b"]]);
    s.arrive_for(Some("a"), "p", 1, 100).finish(1, 100, 10);
    s.arrive_for(Some("l"), "p", 2, 110).finish(2, 110, 10);
    assert_eq!(s.core.programs().live.len(), 1);
    let at: Vec<u32> = s.dispatched().iter().map(|(_, at)| *at).collect();
    assert_eq!(at[0], at[1], "it keeps its place");
}

#[test]
fn steps_wait_for_a_worker_of_their_model_and_for_no_other() {
    let mut s = with_models(Mode::ProgramAware, &[&["a"], &["b"]]);
    s.lose(1);
    s.arrive_for(Some("b"), "p", 1, 100);
    s.arrive_for(Some("a"), "q", 2, 100);
    assert_eq!(s.dispatched(), [(2, 0)]);
    s.recover(1);
    assert_eq!(s.dispatched(), [(2, 0), (1, 1)]);
    // The engine comes back with another model.
    s.finish(1, 100, 10)
        .lose(1)
        .arrive_for(Some("b"), "p", 3, 120);
    s.serves(1, &["c"]).recover(1);
    assert_eq!(unknown(&s).len(), 1, "nobody will serve it");
}

#[test]
fn a_failed_step_goes_elsewhere_only_where_its_model_is() {
    let mut s = with_models(Mode::ProgramAware, &[&["a"], &["b"]]);
    s.arrive_for(Some("b"), "p", 1, 100).fail(1, true);
    assert_eq!(s.dispatched(), [(1, 1), (1, 1)]);
}

#[test]
fn programs_leave_a_worker_that_unloads_their_adapter() {
    let mut s = with_models(Mode::ProgramAware, &[&["a", "l"], &["a"]]);
    s.arrive_for(Some("l"), "p", 1, 100).finish(1, 100, 10);
    assert_eq!(s.dispatched(), [(1, 0)]);
    s.serves(1, &["a", "l"]).serves(0, &["a"]);
    s.arrive_for(Some("l"), "p", 2, 120);
    assert_eq!(s.dispatched(), [(1, 0), (2, 1)]);
}
