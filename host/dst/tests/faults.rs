//! Deterministic simulation testing: many simulations, including seeds that found bugs before, and
//! injected bugs that must be detected.

use treadle_dst::{FaultKind, InjectedBug, Options, Outcome, explore, shrink};

/// Seeds whose simulations include every kind of fault.
const COVERING: std::ops::RangeInclusive<u64> = 1..=150;
/// Number of fresh seeds per test run.
const FRESH: u64 = 150;
/// The seeds that found bugs.
const REGRESSIONS: &str = include_str!("../../../tests/seeds.txt");

/// Fails with the command that reproduces a failing simulation.
fn run_seed(seed: u64, options: &Options) -> Outcome {
    let mut outcome = explore(seed, options);
    let Some(violation) = outcome.violation.take() else {
        return outcome;
    };
    let smaller = shrink(seed, options).map(|shrunk| (shrunk.options, shrunk.outcome.violation));
    panic!(
        "seed {seed} breaks {}: {}\n  make dst SEED={seed} TRACE=1\n  smaller: {smaller:?}",
        violation.rule, violation.what
    );
}

/// Runs seeds that no earlier run had: a thousand for each second since 1970. A failure names its
/// seed.
fn run_fresh(options: &Options) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = now.expect("the clock is right").as_secs() * 1_000;
    println!("seeds {first} to {}", first + FRESH - 1);
    for seed in first..first + FRESH {
        run_seed(seed, options);
    }
}

#[test]
fn fresh_simulations_end_well() {
    run_fresh(&Options::default());
}

/// Actions are submitted and run in each of these; elsewhere they are in one of seven.
#[test]
fn fresh_simulations_with_actions_end_well() {
    run_fresh(&Options {
        actions: true,
        ..Options::default()
    });
}

#[test]
fn seeds_that_found_bugs_end_well() {
    let mut told = 0;
    for line in REGRESSIONS.lines() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        assert!(line.contains('#'), "note what the seed found: {line}");
        run_seed(text.parse().expect("a seed"), &Options::default());
        told += 1;
    }
    assert!(told >= 5, "{told} seeds");
}

#[test]
fn a_simulation_runs_the_same_way_each_time() {
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
fn simulations_have_faults_of_every_kind() {
    let mut injected = std::collections::BTreeSet::new();
    let (mut events, mut finished) = (0, 0);
    for seed in COVERING {
        let outcome = run_seed(seed, &Options::default());
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

/// Each injected bug is detected within a number of seeds, by the rule that it breaks.
#[test]
fn injected_bugs_are_found() {
    for (injected_bug, seeds, rules) in INJECTED_BUGS {
        let options = Options {
            injected_bug: Some(*injected_bug),
            actions: rules.iter().any(|rule| rule.starts_with("action-")),
            ..Options::default()
        };
        let mut found = (1..=*seeds).filter_map(|seed| explore(seed, &options).violation);
        let by_rule = found.find(|violation| rules.contains(&violation.rule));
        assert!(
            by_rule.is_some(),
            "{} is not found within {seeds} seeds",
            injected_bug.name()
        );
    }
    for injected_bug in InjectedBug::ALL {
        assert!(
            INJECTED_BUGS
                .iter()
                .any(|(listed, ..)| listed == injected_bug),
            "{}",
            injected_bug.name()
        );
    }
}

/// Every rule has a bug that it finds: a rule that cannot fail shows nothing.
#[test]
fn each_rule_finds_a_bug() {
    let page = include_str!("../../../docs/internals/simulation-testing.md");
    let table = page.split("\n| rule |").nth(1).unwrap_or_default();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    let names: Vec<&str> = names.map(|name| name.trim().trim_matches('`')).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let finds = |(_, _, rules): &(_, _, &[&str])| rules.contains(&name);
        assert!(INJECTED_BUGS.iter().any(finds), "{name} finds no bug");
    }
}

const INJECTED_BUGS: &[(InjectedBug, u64, &[&str])] = &[
    (InjectedBug::RecoveryDropsEvent, 10, &["replay"]),
    (InjectedBug::RecoveryMixesTimes, 10, &["replay"]),
    (InjectedBug::AckBeforeCommit, 120, &["acknowledged"]),
    (InjectedBug::DispatchTwice, 5, &["one-dispatch"]),
    (InjectedBug::ForgetDispatch, 5, &["liveness"]),
    (InjectedBug::ForgetWaitingStep, 10, &["steps"]),
    (InjectedBug::DoubleCharge, 5, &["ledger"]),
    (InjectedBug::Overcommit, 5, &["admission"]),
    (InjectedBug::SkipQueueOrder, 60, &["queue-order"]),
    (InjectedBug::WaitTooLong, 60, &["waits"]),
    (InjectedBug::CursorBeforeConfirm, 10, &["consumer"]),
    (InjectedBug::ConsumerCountsTwice, 10, &["consumer"]),
    (InjectedBug::DoubtIsCommit, 30, &["journal"]),
    (InjectedBug::StaleTransfers, 120, &["copies"]),
    (InjectedBug::ForgetDrop, 60, &["copies"]),
    (InjectedBug::ForgetCancel, 60, &["transfers"]),
    (InjectedBug::HostOvercommit, 60, &["host"]),
    (InjectedBug::LinkHog, 60, &["endpoints"]),
    (InjectedBug::MoveTwice, 60, &["endpoints"]),
    (InjectedBug::TransferTooLong, 60, &["transfers"]),
    (InjectedBug::ForgetLoad, 60, &["transfers"]),
    (InjectedBug::LineTooLong, 60, &["run-queues"]),
    (InjectedBug::LineReversed, 60, &["run-queues"]),
    (InjectedBug::PreemptForNobody, 60, &["run-queues"]),
    (InjectedBug::RecoveryRepeatsEvent, 60, &["replay"]),
    (InjectedBug::SnapshotCut, 60, &["snapshot"]),
    (InjectedBug::AckOneEarly, 300, &["acknowledged"]),
    (InjectedBug::RefuseTwice, 60, &["ends-once"]),
    (InjectedBug::DispatchToLost, 60, &["dispatch"]),
    (InjectedBug::DispatchElsewhere, 60, &["placement"]),
    (InjectedBug::SplitProgram, 300, &["one-worker"]),
    (InjectedBug::AbortWaiting, 60, &["commands"]),
    (InjectedBug::OffByOneToken, 60, &["ledger"]),
    (InjectedBug::OvercommitSlightly, 300, &["admission"]),
    (InjectedBug::PauseLate, 300, &["memory"]),
    (InjectedBug::LeaveRoom, 60, &["room"]),
    (InjectedBug::QuantumTooLong, 300, &["fairness"]),
    (InjectedBug::OneProgramMore, 300, &["bounds"]),
    (InjectedBug::OneAttemptMore, 300, &["one-dispatch"]),
    (InjectedBug::SlotTwice, 60, &["slots"]),
    (InjectedBug::ContextTooLong, 60, &["context"]),
    (InjectedBug::ForgetQuestion, 60, &["questions"]),
    (InjectedBug::KeepProgram, 60, &["programs"]),
    (InjectedBug::GhostWorker, 60, &["workers"]),
    (InjectedBug::MiscountWaiting, 60, &["core"]),
    (InjectedBug::FillWhole, 300, &["fill"]),
    (InjectedBug::ForgetPrompts, 300, &["fill"]),
    (InjectedBug::ForgetCordon, 300, &["cordon"]),
    (InjectedBug::ForgetDrain, 300, &["drain"]),
    (InjectedBug::StartBeforeCommit, 120, &["action-commits"]),
    (InjectedBug::RunActionTwice, 60, &["action-once"]),
    (InjectedBug::KeepUnits, 60, &["action-sums"]),
    (InjectedBug::OvertakeHead, 60, &["action-order"]),
    (InjectedBug::ForgetActionEnd, 60, &["action-ends"]),
    (InjectedBug::ForgetProgramsActions, 120, &["action-ends"]),
    (InjectedBug::KeepProgramsAction, 60, &["action-programs"]),
    (InjectedBug::LearnWaits, 60, &["action-programs"]),
    (InjectedBug::StarveActions, 60, &["action-order"]),
    (InjectedBug::LearnWithdrawn, 120, &["tools"]),
];
