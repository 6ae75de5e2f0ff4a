//! Deterministic simulation testing: thousands of stories, those that found
//! bugs before, and deliberate faults that must be found.

use treadle_dst::{FaultKind, Options, Sabotage, explore, shrink};

/// Seeds of each of the tests that share the stories out.
const SEEDS_PER_TEST: u64 = 500;
/// The seeds that found bugs.
const REGRESSIONS: &str = include_str!("../../../tests/seeds.txt");

/// Fails with the command that tells a failing story again.
fn tell(seed: u64, options: &Options) {
    let outcome = explore(seed, options);
    let Some(violation) = outcome.violation else {
        return;
    };
    let smaller = shrink(seed, options).map(|shrunk| (shrunk.options, shrunk.outcome.violation));
    panic!(
        "seed {seed} breaks {}: {}\n  make dst SEED={seed} TRACE=1\n  smaller: {smaller:?}",
        violation.rule, violation.what
    );
}

fn tell_share(share: u64) {
    let first = share * SEEDS_PER_TEST + 1;
    for seed in first..first + SEEDS_PER_TEST {
        tell(seed, &Options::default());
    }
}

#[test]
fn stories_end_well_first_quarter() {
    tell_share(0);
}

#[test]
fn stories_end_well_second_quarter() {
    tell_share(1);
}

#[test]
fn stories_end_well_third_quarter() {
    tell_share(2);
}

#[test]
fn stories_end_well_last_quarter() {
    tell_share(3);
}

#[test]
fn stories_that_found_bugs_end_well() {
    let mut told = 0;
    for line in REGRESSIONS.lines() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        assert!(line.contains('#'), "say what the seed found: {line}");
        tell(text.parse().expect("a seed"), &Options::default());
        told += 1;
    }
    assert!(told >= 5, "{told} seeds");
}

#[test]
fn a_story_is_told_the_same_way_each_time() {
    let traced = Options {
        trace: true,
        ..Options::default()
    };
    for seed in [3, 7, 4_711, u64::MAX] {
        let (once, again) = (explore(seed, &traced), explore(seed, &traced));
        assert_eq!(once.trace, again.trace, "seed {seed}");
        let silent = explore(seed, &Options::default());
        assert_eq!(
            (once.trace_hash, once.events),
            (silent.trace_hash, silent.events)
        );
    }
    let other = explore(4, &Options::default()).trace_hash;
    assert_ne!(other, explore(3, &Options::default()).trace_hash);
}

#[test]
fn stories_are_full_of_faults_of_every_kind() {
    let mut injected = std::collections::BTreeSet::new();
    let (mut events, mut finished) = (0, 0);
    for seed in 1..=150 {
        let outcome = explore(seed, &Options::default());
        injected.extend(outcome.faults.0.keys().copied());
        events += outcome.events;
        finished += outcome.ends.0.get("finished").copied().unwrap_or(0);
    }
    let missing: Vec<_> = FaultKind::ALL
        .iter()
        .filter(|kind| !injected.contains(kind.name()))
        .collect();
    assert!(missing.is_empty(), "{missing:?} never happened");
    assert!(events > 30_000, "{events} events");
    assert!(finished > 3_000, "{finished} steps finished");
}

/// Each deliberate fault is found within so many seeds, by the rule that it
/// breaks.
#[test]
fn sabotage_is_found() {
    for (sabotage, seeds, rules) in SABOTAGE {
        let options = Options {
            sabotage: Some(*sabotage),
            ..Options::default()
        };
        let mut found = (1..=*seeds).filter_map(|seed| explore(seed, &options).violation);
        let by_rule = found.find(|violation| rules.contains(&violation.rule));
        assert!(
            by_rule.is_some(),
            "{} is not found within {seeds} seeds",
            sabotage.name()
        );
    }
    for sabotage in Sabotage::ALL {
        assert!(
            SABOTAGE.iter().any(|(listed, ..)| listed == sabotage),
            "{}",
            sabotage.name()
        );
    }
}

const SABOTAGE: &[(Sabotage, u64, &[&str])] = &[
    (Sabotage::RecoveryDropsEvent, 10, &["replay"]),
    (Sabotage::RecoveryMixesTimes, 10, &["replay"]),
    (Sabotage::AckBeforeCommit, 120, &["acknowledged"]),
    (Sabotage::DispatchTwice, 5, &["one-dispatch"]),
    (Sabotage::ForgetDispatch, 5, &["liveness"]),
    (Sabotage::ForgetWaitingStep, 10, &["steps"]),
    (Sabotage::DoubleCharge, 5, &["ledger"]),
    (Sabotage::Overcommit, 5, &["admission"]),
    (Sabotage::SkipQueueOrder, 60, &["queue-order"]),
    (Sabotage::WaitTooLong, 60, &["patience"]),
    (Sabotage::CursorBeforeConfirm, 10, &["consumer"]),
    (Sabotage::ConsumerCountsTwice, 10, &["consumer"]),
    (Sabotage::DoubtIsCommit, 30, &["journal"]),
    (Sabotage::StaleTransfers, 120, &["copies"]),
    (Sabotage::ForgetDrop, 60, &["copies"]),
    (Sabotage::ForgetCancel, 60, &["transfers"]),
    (Sabotage::HostOvercommit, 60, &["host"]),
    (Sabotage::LinkHog, 60, &["endpoints"]),
    (Sabotage::MoveTwice, 60, &["endpoints"]),
    (Sabotage::TransferTooLong, 60, &["transfers"]),
    (Sabotage::ForgetLoad, 60, &["transfers"]),
    (Sabotage::LineTooLong, 60, &["lines"]),
    (Sabotage::LineReversed, 60, &["lines"]),
    (Sabotage::BeginAnyway, 60, &["begin"]),
    (Sabotage::PreemptForNobody, 60, &["lines"]),
];
