//! Damaged uploads: refused, or accepted and bounded, but never a panic.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use treadle_hostile::mutation::{Draws, mutate};
use treadle_hostile::{Outcome, POLICIES, build};
use treadle_policy_runtime::{Limits, PolicyEngine};

const SEED: u64 = 20_260_101;
const EXAMINED: usize = 2_000;
const INSPECTED: usize = 50;

fn engine() -> PolicyEngine {
    PolicyEngine::new(Limits {
        background_deadline_ms: 200,
        ..Limits::default()
    })
    .unwrap()
}

/// Accepted policies, as modules and as components.
fn corpus(engine: &PolicyEngine) -> Vec<Vec<u8>> {
    let accepted = POLICIES
        .iter()
        .filter(|policy| !matches!(policy.comes_of_it, Outcome::Refused(_)));
    accepted
        .flat_map(|policy| {
            let module = build(policy.name);
            let component = engine.examine(&module).expect("accepted").component;
            [module, component]
        })
        .collect()
}

#[test]
fn damaged_uploads_are_examined_without_a_panic() {
    let engine = engine();
    let corpus = corpus(&engine);
    let mut draws = Draws::new(SEED);
    let mut refused = 0;
    for _ in 0..EXAMINED {
        if let Err(refusal) = engine.examine(&mutate(&corpus, &mut draws)) {
            assert!(!refusal.remedy.is_empty(), "{refusal:?}");
            refused += 1;
        }
    }
    // Some damage hits names and numbers that may be anything.
    assert!(refused > EXAMINED / 2, "{refused} of {EXAMINED} refused");
}

#[test]
fn damaged_uploads_that_are_in_order_are_run_within_bounds() {
    let engine = engine();
    let corpus = corpus(&engine);
    let mut draws = Draws::new(SEED);
    let in_order = std::iter::repeat_with(|| mutate(&corpus, &mut draws))
        .take(100 * INSPECTED)
        .filter(|upload| engine.examine(upload).is_ok())
        .take(INSPECTED);
    let mut inspected = 0;
    for upload in in_order {
        let _ = engine.inspect(&upload);
        inspected += 1;
    }
    assert_eq!(inspected, INSPECTED);
    assert!(engine.inspect(&build("tame")).is_ok());
}

#[test]
fn a_good_policy_cut_or_flipped_anywhere_never_makes_it_panic() {
    let engine = engine();
    let module = build("tame");
    let component = engine.examine(&module).unwrap().component;
    let change = (any::<bool>(), any::<Index>(), any::<u8>());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(500));
    let outcome = runner.run(&change, |(is_module, at, flip)| {
        let mut upload = if is_module { &module } else { &component }.clone();
        let at = at.index(upload.len());
        if flip == 0 {
            upload.truncate(at);
            prop_assert!(engine.examine(&upload).is_err(), "cut at {}", at);
        } else {
            upload[at] ^= flip;
            if let Err(refusal) = engine.examine(&upload) {
                prop_assert!(!refusal.what.is_empty());
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
