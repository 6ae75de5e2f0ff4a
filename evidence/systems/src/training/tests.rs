//! What holds for every run, whatever its figures: nothing is lost or counted twice, no lag passes
//! its bound, and the same set-up gives the same run.

use super::contest::{h800, setup, work};
use super::hardware::Sharing;
use super::outcome::Outcome;
use super::shaper::{PLUGINS, Shaping};
use super::simulation::run;
use super::system::{Bound, Interaction, Rewarding, Setup, System, Transfer};
use super::workload::{Failures, MATH, SWE, WEB};
use treadle_engine_model::hardware::QWEN3_8B;

/// A small run under audit. Some of its environments fail.
fn small(system: System, seed: u64) -> Setup {
    let mut workload = work(&[MATH, WEB, SWE], 12);
    workload.failures = Failures {
        reset_share: 0.05,
        timeout_s: 60.0,
    };
    Setup {
        seed,
        audited: true,
        steps: 6,
        ..setup(workload, h800(QWEN3_8B, 1, 4, 8), system, true)
    }
}

fn shaped(plugin: &'static str) -> System {
    System {
        shaping: Shaping::of(plugin),
        ..System::treadle(2, 2)
    }
}

fn systems() -> Vec<System> {
    let mut all = vec![
        System::sync(2),
        System::sync_plus(),
        System::one_off(),
        System::areal(1),
        System::areal(3),
        System::treadle(1, 1),
        System::treadle(2, 1),
        System::treadle(4, 4),
        System {
            transfer: Transfer::Exposed,
            interaction: Interaction::Batched,
            rewarding: Rewarding::Together,
            ..System::sync_plus()
        },
        System {
            transfer: Transfer::Exposed,
            ..System::treadle(2, 1)
        },
    ];
    all.extend(PLUGINS.map(shaped));
    all
}

fn check(system: &System, outcome: &Outcome) {
    let what = format!("{system:?}");
    assert!(!outcome.stalled, "{what}");
    assert_eq!(outcome.batches.len(), 6, "{what}");
    let conserved = outcome.conserved;
    assert_eq!(
        conserved.members_begun, conserved.members_accounted,
        "{what}"
    );
    assert_eq!(
        conserved.groups_submitted, conserved.groups_accounted,
        "{what}"
    );
    // A seventh batch may have been cut when the sixth was trained.
    assert!([6 * 8, 7 * 8].contains(&outcome.trained.count), "{what}");
    if let Bound::Lag { lag, .. } = system.bound {
        assert!(outcome.lag_max <= lag, "{what}: {}", outcome.lag_max);
        // After three returns a prompt is waited for.
        assert!(
            outcome.returned_max <= 3,
            "{what}: {}",
            outcome.returned_max
        );
    }
    let times = outcome.batches.iter().map(|batch| batch.trained_s);
    assert!(times.is_sorted(), "{what}");
    assert!((0.0..=1.0).contains(&outcome.engines_busy), "{what}");
    assert!((0.0..=1.0).contains(&outcome.judges_busy), "{what}");
    let domains = outcome.domains.values();
    let trained: f64 = domains.map(|of| of.trained).sum();
    assert!((trained - 1.0).abs() < 1e-9, "{what}: {trained}");
}

#[test]
fn nothing_is_lost_and_no_lag_passes_its_bound() {
    for system in systems() {
        for seed in [1, 2] {
            let outcome = run(&small(system.clone(), seed)).unwrap();
            check(&system, &outcome);
        }
    }
}

#[test]
fn trainer_and_engines_may_take_turns() {
    let mut setup = small(System::sync_plus(), 3);
    setup.hardware.sharing = Sharing::Turns;
    let outcome = run(&setup).unwrap();
    check(&setup.system, &outcome);
    assert!((setup.hardware.cost() - 4.0 * 2.85).abs() < 1e-9);
}

#[test]
fn a_set_up_gives_the_same_run_each_time() {
    for system in [System::treadle(2, 1), shaped("darts"), System::areal(2)] {
        let outcome = run(&small(system.clone(), 5)).unwrap();
        assert_eq!(run(&small(system.clone(), 5)).unwrap(), outcome);
        assert_ne!(run(&small(system, 6)).unwrap(), outcome);
    }
}

#[test]
fn all_systems_are_given_the_same_work() {
    let workload = small(System::sync_plus(), 0).workload;
    let of = |member| workload.draw(7, 3, member, 0.0);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert_eq!(of(1).prompt, of(2).prompt, "of one prompt");
    let longer = workload.draw(7, 3, 1, 1.0);
    assert!(longer.tokens() > of(1).tokens());
    assert_eq!(longer.reset_us, of(1).reset_us);
}

#[test]
fn environments_fail_and_are_replaced() {
    let outcome = run(&small(System::treadle(2, 1), 1)).unwrap();
    assert!(outcome.lost["environment_failed"] > 0);
    assert!(outcome.failed_per_trained > 0.0);
}

#[test]
fn an_unknown_policy_or_a_wrong_configuration_is_an_error() {
    let with = |shaping| System {
        shaping,
        ..System::sync_plus()
    };
    assert!(run(&small(with(Shaping::of("none_such")), 1)).is_err());
    let wrong = Shaping::with("uniform", r#"{"ratio": 99}"#);
    assert!(run(&small(with(wrong), 1)).is_err());
}
