//! Programs that prefer a class of hardware prefer it in a replay too.

use super::*;
use std::collections::BTreeMap;
use treadle_core::training::Affinity;
use treadle_simulator::cluster::{MemberOf, Preferences};

/// Every third run is of the domain `math`, which prefers another class than all others.
fn preferences(runs: usize) -> Preferences {
    let affinity = BTreeMap::from([
        ("math".into(), "h20".into()),
        ("default".into(), "h800".into()),
    ]);
    let member = |run: usize| {
        Some(MemberOf {
            job: "simulation".into(),
            domain: run.is_multiple_of(3).then(|| "math".into()),
        })
    };
    Preferences {
        jobs: BTreeMap::from([("simulation".into(), Affinity::Classes(affinity))]),
        members: (0..runs).map(member).collect(),
    }
}

#[test]
fn programs_prefer_in_a_replay_what_they_preferred() {
    let runs = runs(24);
    let options = options(Mode::ProgramAware, 8);
    let classes: [Option<Box<str>>; 2] = [Some("h20".into()), Some("h800".into())];
    let preferences = preferences(runs.len());
    let around = Environment {
        classes: &classes,
        preferences: Some(&preferences),
        ..Environment::default()
    };
    let mut tape = Tape { events: Vec::new() };
    let mut policy = options.policy.clone();
    let report = simulate_within(&runs, &options, &mut policy, around, &mut tape);
    let workload = recorded(&tape, 0..tape.events.len());
    assert_eq!(workload.preferences, preferences);
    let named = workload.workers.iter().map(|worker| worker.class.clone());
    assert_eq!(named.collect::<Vec<_>>(), classes);
    let outcome = replayed(&workload, Mode::ProgramAware, 0);
    assert_eq!(
        (outcome.steps, outcome.makespan_s, outcome.step_p99_s),
        (report.steps, report.makespan_s, report.step_p99_s)
    );
    let indifferent = Workload {
        preferences: Preferences::default(),
        ..workload
    };
    let other = replayed(&indifferent, Mode::ProgramAware, 0);
    assert_eq!(other.steps, report.steps);
    assert_ne!(
        (other.makespan_s, other.step_p99_s),
        (report.makespan_s, report.step_p99_s)
    );
    // Members that began before the window are known from what came before it.
    let later = recorded(&tape, tape.events.len() / 2..tape.events.len());
    assert!(later.cuts.programs_begun_before > 0);
    assert!(later.preferences.members.iter().all(Option::is_some));
}
