//! Simulations of weight updates, and injected bugs that must be detected.

use std::collections::BTreeSet;
use treadle_dst_outcome::{EventCounts, Outcome};
use treadle_dst_training::{WeightsBug, WeightsOptions, explore_weights};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=40;
/// Seeds that found something, with what it was.
const FOUND: &[(u64, &str)] = &[
    (3, "a load of an engine whose pause had failed"),
    (
        19,
        "a load without a pause, of an engine that was asked what it has",
    ),
    (
        25,
        "an update that waited for an engine that was lost twice",
    ),
    (
        145,
        "tokens of a version that was abandoned while a step ran",
    ),
    (
        222,
        "a trainer's load, without a pause, of an engine that was asked what it has",
    ),
    (
        263,
        "tokens of an engine that was lost between its load and its proof",
    ),
    (
        461,
        "tokens of an engine that was loaded before the trainer went back, and again after",
    ),
    (
        1_062,
        "a trainer's load of an engine that treadle could not pause for it",
    ),
    (
        50_954,
        "tokens of an engine whose first update was under way when the trainer went back",
    ),
    (
        48_000_004_122,
        "a trainer's load of an engine whose resume had failed, and been done",
    ),
];

/// Fails with the command that reproduces a failing simulation.
fn run_seed(seed: u64) -> Outcome {
    let outcome = explore_weights(seed, WeightsOptions::default());
    if let Some(violation) = &outcome.violation {
        panic!(
            "seed {seed} breaks {}: {}\n  make dst SEED={seed} TRACE=1 DST_FLAGS=--weights",
            violation.rule, violation.what
        );
    }
    outcome
}

#[test]
fn weight_updates_end_well_and_have_everything_in_them() {
    let mut sums = EventCounts::default();
    for seed in SEEDS {
        sums.add(&run_seed(seed).ends);
    }
    let expected = [
        ("batches", 100),
        ("captured", 600),
        ("crashed", 30),
        ("hung", 12),
        ("lied", 10),
        ("restarted-unnoticed", 14),
        ("restarts", 11),
        ("rolled_back", 8),
        ("left-unfinished", 4),
        ("aborted", 4),
    ];
    for (name, least) in expected {
        let times = sums.0.get(name).copied().unwrap_or(0);
        assert!(times >= least, "{name}: {times}");
    }
}

#[test]
fn seeds_that_found_something_end_well() {
    for (seed, what) in FOUND {
        println!("{seed}: {what}");
        run_seed(*seed);
    }
}

#[test]
fn a_weight_update_is_simulated_the_same_way_each_time() {
    let trace = WeightsOptions {
        trace: true,
        ..WeightsOptions::default()
    };
    for seed in [3, 4_711, u64::MAX] {
        let (once, again) = (explore_weights(seed, trace), explore_weights(seed, trace));
        assert_eq!(once.trace, again.trace, "seed {seed}");
        assert_eq!(once.trace_hash, run_seed(seed).trace_hash);
    }
    assert_ne!(run_seed(4).trace_hash, run_seed(3).trace_hash);
}

/// Each injected bug is detected within a number of seeds, by the rule that it breaks.
#[test]
fn injected_bugs_of_weight_updates_are_found() {
    for (bug, seeds, rule) in BUGS {
        let options = WeightsOptions {
            bug: Some(*bug),
            ..WeightsOptions::default()
        };
        let mut violations = (1..=*seeds).filter_map(|s| explore_weights(s, options).violation);
        let name = bug.name();
        let found = violations.any(|violation| violation.rule == *rule);
        assert!(found, "{name} is not found by {rule} within {seeds} seeds");
    }
    for bug in WeightsBug::ALL {
        let is_listed = BUGS.iter().any(|(listed, ..)| listed == bug);
        assert!(is_listed, "{}", bug.name());
    }
}

/// Rules that no injected bug breaks before it breaks another one.
const UNPROVEN: [&str; 2] = ["cuts", "waits"];

/// Every other rule has a bug that it finds: a rule that cannot fail shows nothing.
#[test]
fn each_rule_of_weight_updates_finds_a_bug() {
    let page = include_str!("../../../../docs/internals/simulation-testing.md");
    let table = page.split("\n| rule of weight updates |").nth(1);
    let rows = table.unwrap_or_default().lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    let names: BTreeSet<&str> = names.map(|name| name.trim().trim_matches('`')).collect();
    let found = BUGS.iter().map(|(_, _, rule)| *rule);
    let found: BTreeSet<&str> = found.chain(UNPROVEN).collect();
    assert!(names.len() > 8, "{names:?}");
    assert_eq!(names, found);
}

const BUGS: &[(WeightsBug, u64, &str)] = &[
    (WeightsBug::BelieveAll, 100, "start"),
    (WeightsBug::BelieveLost, 100, "paused"),
    (WeightsBug::FailedIsRefused, 100, "start"),
    (WeightsBug::SkipChecksums, 100, "start"),
    (WeightsBug::KeepCaches, 100, "start"),
    (WeightsBug::SkipFences, 100, "start"),
    (WeightsBug::IgnoreNames, 100, "start"),
    (WeightsBug::IgnoreLosses, 100, "start"),
    (WeightsBug::DropReason, 100, "reasons"),
    (WeightsBug::ForgetCut, 100, "calls"),
    (WeightsBug::LoadBeforePause, 100, "paused"),
    (WeightsBug::RestartForgetsTorn, 100, "start"),
    (WeightsBug::ReplayDropsEvent, 100, "replay"),
    (WeightsBug::NoTimer, 100, "liveness"),
    (WeightsBug::LoseCall, 100, "calls"),
    (WeightsBug::AcceptOlder, 100, "versions"),
    (WeightsBug::IgnoreHolding, 100, "spans"),
    (WeightsBug::RestForEver, 100, "liveness"),
];
