//! Each fault is found, and what is right is not one.

use super::*;
use crate::checker::journal::tests::journal;

fn acknowledges(line: &Value) -> (u64, u64, u64) {
    let event = |kind: &str, fields: Value| {
        let mut event = json!({"event": kind, "member": {"program": "p"}});
        for (name, value) in fields.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        ("", event)
    };
    let journal = journal(&[
        event("member_ended", json!({"end": "completed", "sample": "s"})),
        event("batch_trained", json!({"lineage": 1, "batch": 2})),
        event("rolled_back", json!({"lineage": 0, "batch": 1})),
    ]);
    let mut found = CheckResult::default();
    acknowledged(line, &Events::of(&journal), &mut found).expect("a known line");
    let [lost, double] = [&found.lost, &found.double_counted].map(|found| found.count);
    (lost, double, found.stuck.count)
}

#[test]
fn what_was_acknowledged_is_on_record() {
    let ended = |end: &str, program: &str, group: Value| {
        json!({"kind": "ended", "program": program, "sent": {"end": end},
            "answer": {"group": group, "sample": "s"}})
    };
    let (trained, resumed) = ("trained", "resumed");
    for (line, lost) in [
        (ended("completed", "p", json!("g")), 0),
        (ended("truncated", "p", json!("g")), 1),
        (ended("completed", "q", json!("g")), 1),
        (ended("aborted", "q", Value::Null), 0),
        (json!({"kind": trained, "lineage": 1, "batch": 2}), 0),
        (json!({"kind": trained, "lineage": 0, "batch": 2}), 1),
        (json!({"kind": resumed, "lineage": 0, "batch": 1}), 0),
        (json!({"kind": resumed, "lineage": 0, "batch": 2}), 1),
        (json!({"kind": "released", "program": "p"}), 1),
    ] {
        assert_eq!(acknowledges(&line), (lost, 0, 0), "{line}");
    }
    let refusal = |code: &str| json!({"kind": "refused", "error": {"code": code}});
    assert_eq!(acknowledges(&refusal("member_dropped")), (0, 0, 0));
    assert_eq!(acknowledges(&refusal("member_conflict")), (0, 0, 1));
    let stale = json!({"kind": "refused", "path": "versions", "error": {"code": "member_unknown"}});
    assert_eq!(acknowledges(&stale), (0, 0, 1), "the trainer expects none");
}

fn view() -> Value {
    let member = |program: &str| {
        json!({"program": program, "end": "completed", "reward": reward_of(program),
            "version": 1, "sample": "s", "info": info_of(program)})
    };
    let group = |key: &str| {
        let programs = ["a", "b", "c"].map(|name| member(&format!("direct-{key}-{name}")));
        json!({"group": key, "content": content_of(key), "version": 1, "lag": 1,
            "members": programs})
    };
    let groups = ["group-1", "group-2", "group-3"].map(group);
    json!({"batch": 3, "trained_on": 2, "groups": groups})
}

fn violations(change: impl Fn(&mut Value)) -> u64 {
    let mut changed = view();
    change(&mut changed);
    let (mut found, mut members) = (CheckResult::default(), Members::default());
    members.failed.insert("direct-failed");
    batch(3, &changed, &members, &mut BTreeSet::new(), &mut found);
    found.violations.count
}

#[test]
fn each_fault_of_a_batch_is_found() {
    assert_eq!(violations(|_| {}), 0);
    let member = |field: &'static str, value: Value| {
        violations(move |view| view["groups"][0]["members"][0][field] = value.clone())
    };
    assert_eq!(member("reward", json!(7)), 1);
    assert_eq!(member("end", json!("aborted")), 1);
    assert_eq!(member("sample", Value::Null), 1);
    assert_eq!(member("info", json!(1)), 1);
    assert_eq!(member("version", json!(0)), 1, "not the lag that it says");
    let twice = json!("direct-group-2-a");
    assert!(member("program", twice) >= 1);
    assert!(member("program", json!("direct-failed")) >= 1);
    let group = |field: &'static str, value: Value| {
        violations(move |view| view["groups"][0][field] = value.clone())
    };
    assert_eq!(group("content", Value::Null), 1);
    assert_eq!(group("members", json!([])), 2, "no members, and so no lag");
}

#[test]
fn a_batch_that_comes_again_has_the_same_bytes() {
    let line = |file: &str| json!({"kind": "batch", "batch": 3, "file": file});
    let count = |groups: &str, payload: &[u8]| {
        let kept = |stem: &str| {
            let (lineage, groups, payload) = match stem {
                "first" => (0, "group-1", &b"bytes"[..]),
                _ => (1, groups, payload),
            };
            // As the daemon writes it: what may change comes before the groups.
            let view = format!(
                "{{\"batch\":3,\"trained_on\":2,\"lineage\":{lineage},\"groups\":{}}}",
                view()["groups"]
            );
            let view = view.replace("group-1", groups);
            Ok(BatchBytes::of(view.as_bytes(), payload.to_vec()).expect("a batch"))
        };
        let mut found = CheckResult::default();
        let lines = [line("first"), line("again")];
        received(&lines, kept, &Members::default(), &mut found).expect("batches");
        found.violations.count
    };
    assert_eq!(count("group-1", b"bytes"), 0, "the lineage may differ");
    assert_eq!(count("group-1", b"bytez"), 1);
    assert_eq!(count("group-9", b"bytes"), 1);
}

#[test]
fn a_lineage_goes_on_where_it_began_and_ends_once() {
    let got = |lineage: u64, batch: u64| {
        json!({"kind": "batch", "lineage": lineage,
        "batch": batch})
    };
    let resumed = |now: u64| json!({"kind": "resumed", "lineage": 0, "batch": 1, "now": now});
    let count = |lines: &[Value]| {
        let mut found = CheckResult::default();
        lineages(lines, &mut found);
        found.violations.count
    };
    let whole = [got(0, 1), got(0, 1), got(0, 2), resumed(1), got(1, 2)];
    assert_eq!(count(&whole), 0);
    assert_eq!(count(&[got(0, 1), got(0, 3)]), 1, "one is left out");
    assert_eq!(count(&[got(0, 1), resumed(1), got(0, 2), got(1, 3)]), 1);
    assert_eq!(count(&[resumed(2)]), 1);
}
