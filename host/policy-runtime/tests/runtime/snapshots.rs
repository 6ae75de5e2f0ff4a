//! A policy's learnt state passes to its replacement.

use treadle_policy_runtime::{InstanceOptions, LoadError, PolicyFault, PolicyInstance};

use crate::fixture::{CONTEXT, TRIGGER_ROWS, engine, load, load_with, policy, weigh};

const TRAP: &str = "(unreachable)";

fn messages(policy: &PolicyInstance) -> Vec<String> {
    let lines = policy.log_lines().into_iter();
    lines.map(|line| line.message).collect()
}

fn trap(policy: &mut PolicyInstance) {
    assert!(matches!(
        weigh(policy, TRIGGER_ROWS),
        Err(PolicyFault::Trap { .. })
    ));
}

#[test]
fn a_replacement_begins_with_the_last_snapshot() {
    // The fixture logs the snapshot that it restores.
    let mut policy = load(&engine(), &policy(TRAP));
    trap(&mut policy);
    assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
    assert!(messages(&policy).is_empty());
    assert_eq!(policy.snapshot(&CONTEXT).unwrap(), b"odd");
    trap(&mut policy);
    assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
    assert_eq!(messages(&policy), ["odd"]);
}

#[test]
fn a_successor_begins_with_its_predecessors_snapshot() {
    let options = InstanceOptions {
        snapshot: b"learnt".to_vec(),
        ..InstanceOptions::default()
    };
    let mut policy = load_with(&engine(), &policy(TRAP), &options);
    assert_eq!(messages(&policy), ["learnt"]);
    assert_eq!(policy.restore(&CONTEXT, b"more"), Ok(()));
    trap(&mut policy);
    assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
    assert_eq!(messages(&policy), ["learnt", "more", "more"]);
}

#[test]
fn a_snapshot_that_is_not_taken_is_left() {
    let engine = engine();
    for (snapshot, told) in [(&b"poison!"[..], "trapped"), (b"unknown!", "odd: ")] {
        let options = InstanceOptions {
            snapshot: snapshot.to_vec(),
            ..InstanceOptions::default()
        };
        let mut policy = load_with(&engine, &policy(TRAP), &options);
        assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
        trap(&mut policy);
        assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
        let messages = messages(&policy);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains(told), "{messages:?}");
    }
}

#[test]
fn a_trap_in_restore_is_a_fault_and_the_policy_goes_on() {
    let mut policy = load(&engine(), &policy(TRAP));
    let restored = policy.restore(&CONTEXT, b"poison!");
    assert!(matches!(restored, Err(PolicyFault::Trap { .. })));
    assert_eq!(weigh(&mut policy, 1), Ok(vec![1.0]));
    let empty = policy.restore(&CONTEXT, b"");
    assert!(matches!(empty, Err(PolicyFault::BadInput { .. })));
}

#[test]
fn a_snapshot_is_bounded() {
    let engine = engine();
    let options = InstanceOptions {
        snapshot: vec![0; engine.limits().snapshot_bytes_max + 1],
        ..InstanceOptions::default()
    };
    let component = engine.inspect(&policy(TRAP)).unwrap().component;
    assert!(matches!(
        engine.load(&component, &options),
        Err(LoadError::SnapshotTooLarge { .. })
    ));
}
