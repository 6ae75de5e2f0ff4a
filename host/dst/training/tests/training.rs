//! Simulations of training runs, and injected bugs that must be detected.

use std::collections::BTreeSet;
use treadle_dst_outcome::{EventCounts, Outcome};
use treadle_dst_training::{TrainingBug, TrainingOptions, explore_training};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=500;

/// Fails with the command that reproduces a failing simulation.
fn run_seed(seed: u64) -> Outcome {
    let outcome = explore_training(seed, TrainingOptions::default());
    if let Some(violation) = &outcome.violation {
        panic!(
            "seed {seed} breaks {}: {}\n  make dst SEED={seed} TRACE=1 DST_FLAGS=--training",
            violation.rule, violation.what
        );
    }
    outcome
}

#[test]
fn training_runs_end_well_and_have_everything_in_them() {
    let mut sums = EventCounts::default();
    for seed in SEEDS {
        sums.add(&run_seed(seed).ends);
    }
    let expected = [
        ("batches", 3_000),
        ("resumed", 100),
        ("restarts", 300),
        ("rolled_back", 100),
        ("job_removed", 20),
        ("bad-calls", 10_000),
        ("again", 3_000),
        ("refused", 3_000),
        ("dropped", 10_000),
        ("reward_failed", 300),
        ("capture_failed", 200),
        ("step_captured", 3_000),
        ("step_failed", 200),
        ("timer_fired", 1_000),
        ("asked", 3_000),
        ("shaping_answered", 3_000),
    ];
    for (name, least) in expected {
        let times = sums.0.get(name).copied().unwrap_or(0);
        assert!(times >= least, "{name}: {times}");
    }
}

/// Seeds that no earlier run had; a failure names its seed.
#[test]
fn fresh_training_runs_end_well() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = now.expect("the clock is right").as_secs() * 1_000;
    println!("seeds {first} to {}", first + 99);
    for seed in first..first + 100 {
        run_seed(seed);
    }
}

#[test]
fn a_training_run_is_simulated_the_same_way_each_time() {
    let trace = TrainingOptions {
        trace: true,
        ..TrainingOptions::default()
    };
    for seed in [3, 4_711, u64::MAX] {
        let (once, again) = (explore_training(seed, trace), explore_training(seed, trace));
        assert_eq!(once.trace, again.trace, "seed {seed}");
        let silent = explore_training(seed, TrainingOptions::default());
        assert_eq!(once.trace_hash, silent.trace_hash);
    }
    assert_ne!(run_seed(4).trace_hash, run_seed(3).trace_hash);
}

/// Each injected bug is detected within a number of seeds, by the rule that it breaks.
#[test]
fn injected_bugs_of_training_runs_are_found() {
    for (bug, seeds, rule) in BUGS {
        let options = TrainingOptions {
            bug: Some(*bug),
            ..TrainingOptions::default()
        };
        let mut violations = (1..=*seeds).filter_map(|s| explore_training(s, options).violation);
        let name = bug.name();
        let found = violations.any(|violation| violation.rule == *rule);
        assert!(found, "{name} is not found by {rule} within {seeds} seeds");
    }
    for bug in TrainingBug::ALL {
        let is_listed = BUGS.iter().any(|(listed, ..)| listed == bug);
        assert!(is_listed, "{}", bug.name());
    }
}

/// Every rule has a bug that it finds: a rule that cannot fail shows nothing.
#[test]
fn each_rule_of_training_runs_finds_a_bug() {
    let page = include_str!("../../../../docs/internals/simulation-testing.md");
    let table = page.split("\n| rule of training runs |").nth(1);
    let rows = table.unwrap_or_default().lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    let names: BTreeSet<&str> = names.map(|name| name.trim().trim_matches('`')).collect();
    let found: BTreeSet<&str> = BUGS.iter().map(|(_, _, rule)| *rule).collect();
    assert!(names.len() > 15, "{names:?}");
    assert_eq!(names, found);
}

const BUGS: &[(TrainingBug, u64, &str)] = &[
    (TrainingBug::LagOneMore, 150, "lag"),
    (TrainingBug::PaceOneMore, 120, "pace"),
    (TrainingBug::BatchOneLess, 60, "batch-size"),
    (TrainingBug::KeepStale, 120, "cut"),
    (TrainingBug::NeverStarved, 180, "waited"),
    (TrainingBug::ShortGroup, 60, "group-size"),
    (TrainingBug::FailureIsZero, 120, "failures"),
    (TrainingBug::NoRewardIsZero, 60, "drops"),
    (TrainingBug::LoseRewarded, 60, "drops"),
    (TrainingBug::IgnoreSampleVersion, 180, "versions"),
    (TrainingBug::IgnoreFirstToken, 180, "versions"),
    (TrainingBug::BeginTooEarly, 180, "start"),
    (TrainingBug::BeginWithoutPlace, 60, "pace"),
    (TrainingBug::KeepAbandoned, 180, "lineage"),
    (TrainingBug::ResumeCutsAnew, 180, "answers"),
    (TrainingBug::RewardAfterCut, 60, "batches"),
    (TrainingBug::ServeTwice, 120, "served-once"),
    (TrainingBug::NewestFirst, 120, "order"),
    (TrainingBug::AnyLineage, 180, "refusals"),
    (TrainingBug::ForgetAdmission, 60, "waits"),
    (TrainingBug::SurplusIsMember, 60, "members"),
    (TrainingBug::ForgetBatch, 60, "answers"),
    (TrainingBug::ForgetVersion, 60, "answers"),
    (TrainingBug::NoTimer, 60, "deadlines"),
    (TrainingBug::NameNoGroup, 60, "liveness"),
    (TrainingBug::ForgetLost, 60, "account"),
    (TrainingBug::CountAgain, 60, "repeated"),
    (TrainingBug::LoseGroup, 60, "groups"),
    (TrainingBug::ReplayDropsEvent, 60, "replay"),
    (TrainingBug::ReleaseEarly, 60, "answers"),
    (TrainingBug::SelectOthers, 20, "selection"),
    (TrainingBug::BeginUnsized, 20, "sized"),
    (TrainingBug::AskTwice, 20, "questions"),
    (TrainingBug::AskForEver, 20, "deadlines"),
    (TrainingBug::EndTooMany, 40, "spares"),
];
