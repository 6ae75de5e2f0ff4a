//! A good run passes, each injected bug is named, and hostile input is refused.

mod fixture;
mod random;
mod samples;
mod steps;

use crate::payload::read_payload;
use crate::{Error, Report, Rule, check, read_batches, read_events};
use fixture::{
    Columns, Fixture, arrived, captured, dropped, ended, of_batch, reward_failed, rewarded, served,
    tokens, told,
};
use serde_json::{Value, json};

/// A bug, and the rule that it breaks.
struct Bug {
    name: &'static str,
    rule: Rule,
    inject: fn(&mut Fixture),
}

const fn bug(name: &'static str, rule: Rule, inject: fn(&mut Fixture)) -> Bug {
    Bug { name, rule, inject }
}

/// Bugs in what the trainer received.
const BATCHES: &[Bug] = &[
    bug("a batch is missing", Rule::Numbering, |run| {
        run.batches.retain(|stem, _| !stem.starts_with("batch-2"));
        run.payloads.retain(|stem, _| !stem.starts_with("batch-2"));
    }),
    bug("a batch has the number of another", Rule::Contents, |run| {
        run.payloads.clear();
        run.batches.get_mut("batch-3").expect("it")["batch"] = 2.into();
    }),
    bug(
        "the lag is not that of the version",
        Rule::Contents,
        |run| run.group("batch-3")["lag"] = 0.into(),
    ),
    bug(
        "a member is missing from its group",
        Rule::Selected,
        |run| {
            run.payload("batch-1").pop();
            let members = run.group("batch-1")["members"].as_array_mut();
            members.expect("members").pop();
        },
    ),
    bug(
        "a group trains all that it sampled, not what was selected",
        Rule::Selected,
        |run| {
            run.sample("p1-c");
            let other = tokens("p1-c", 0, 0.0);
            run.payload("batch-1").push(other);
            let member = run.group("batch-1")["members"][1].clone();
            let members = run.group("batch-1")["members"].as_array_mut();
            members.expect("members").push(member);
            run.group("batch-1")["members"][2]["program"] = "p1-c".into();
            run.group("batch-1")["members"][2]["sample"] = tokens("p1-c", 0, 0.0).sample.into();
        },
    ),
    bug(
        "a batch has fewer groups than were declared",
        Rule::Contents,
        |run| {
            let at = run.at("job_declared", "math");
            run.events[at]["settings"]["batch_groups"] = 2.into();
        },
    ),
    bug(
        "a batch changes when it comes again",
        Rule::Unchanged,
        |run| run.group("batch-2.1")["members"][0]["turns"] = 2.into(),
    ),
    bug(
        "a payload changes when it comes again",
        Rule::Unchanged,
        |run| run.payload("batch-2.1")[0].ids[0] = 8,
    ),
    bug("a program is served twice", Rule::Once, |run| {
        run.payloads.clear();
        let member = run.group("batch-1")["members"][0].clone();
        run.group("batch-3")["members"][0] = member;
    }),
    bug("a group is served twice", Rule::Once, |run| {
        run.payloads.clear();
        run.group("batch-3")["group"] = "p1".into();
    }),
    bug(
        "a member has a version that came after its end",
        Rule::Version,
        |run| {
            run.group("batch-2")["members"][1]["version"] = 2.into();
            run.group("batch-2.1")["members"][1]["version"] = 2.into();
        },
    ),
    bug(
        "a member has a version from before its arrival",
        Rule::Version,
        |run| {
            run.group("batch-2")["members"][1]["version"] = 0.into();
            run.group("batch-2.1")["members"][1]["version"] = 0.into();
        },
    ),
    bug(
        "tokens are older than the batch says",
        Rule::Version,
        |run| run.payload("batch-3")[0].version = 0,
    ),
    bug("another end is served", Rule::Ended, |run| {
        run.group("batch-1")["members"][0]["end"] = "truncated".into();
    }),
    bug(
        "a reward is replaced by the one before",
        Rule::Reward,
        |run| run.group("batch-1")["members"][0]["reward"] = json!(0.25),
    ),
    bug("a reward is missing", Rule::Reward, |run| {
        run.group("batch-1")["members"][0]["reward"] = Value::Null;
    }),
    bug("a sample is another than on record", Rule::Sample, |run| {
        run.group("batch-1")["members"][0]["sample"] = "sha256:00".into();
    }),
    bug("a token is flipped in a payload", Rule::Sample, |run| {
        run.payload("batch-1")[0].ids[2] ^= 1;
    }),
    bug(
        "a reward is another one in the payload",
        Rule::Payload,
        |run| run.payload("batch-1")[1].reward = 1.0,
    ),
    bug("a payload has no such member", Rule::Payload, |run| {
        run.payload("batch-1")[1] = tokens("p1-c", 0, 0.0);
    }),
    bug("a payload is of another job", Rule::Payload, |run| {
        run.meta["job"] = "code".into();
    }),
    bug("a payload can't be read", Rule::Payload, |run| {
        run.payload("batch-1")[0].group = 1;
    }),
];

/// Bugs in what is on record.
const EVENTS: &[Bug] = &[
    bug("the declaration is missing", Rule::Whole, |run| {
        drop(run.events.remove(run.at("job_declared", "math")));
    }),
    bug("a group is too old", Rule::Lag, |run| {
        let at = run.at("job_declared", "math");
        run.events[at]["settings"]["lag_max"] = 0.into();
    }),
    bug(
        "what an abandoned version sampled is served",
        Rule::Abandoned,
        |run| {
            let at = run.at("rolled_back", "math");
            let end = run.events.remove(run.at("member_ended", "p3-a"));
            run.events.insert(at, end);
        },
    ),
    bug("a failed member is served", Rule::Ended, |run| {
        let at = run.at("member_ended", "p1-b");
        run.events[at] = ended("p1-b", "environment_failed");
    }),
    bug("a member without a reward is served", Rule::Ended, |run| {
        let at = run.at("member_ended", "p1-b");
        run.events.insert(at, reward_failed("p1-b"));
    }),
    bug("a member is served before its end", Rule::Ended, |run| {
        let end = run.events.remove(run.at("member_ended", "p3-a"));
        run.events.push(end);
    }),
    bug(
        "a member is served that never arrived",
        Rule::Ended,
        |run| drop(run.events.remove(run.at("member_arrived", "p1-b"))),
    ),
    bug(
        "a reward is served that was replaced before the request",
        Rule::Reward,
        |run| {
            let at = run.at("reward_given", "p1-b");
            run.events.insert(at + 1, rewarded("p1-b", "0.5"));
        },
    ),
    bug(
        "a member that was unselected is served",
        Rule::Selected,
        |run| {
            run.sample("p1-c");
            let at = run.at("batch_requested", "\"batch\":1");
            run.events.insert(at, dropped("p1-b", "unselected"));
        },
    ),
    bug("a sample is not on record", Rule::Sample, |run| {
        let at = run.at("member_ended", "p1-b");
        run.events[at]["sample"] = Value::Null;
    }),
    bug(
        "a sample without one of its steps is served",
        Rule::Captured,
        |run| {
            let at = run.at("member_ended", "p1-b");
            run.events.insert(at, ended("p1-b", "completed"));
            run.events
                .insert(at + 2, captured("capture_failed", "p1-b"));
        },
    ),
    bug(
        "a member is served without the step that was not captured",
        Rule::Captured,
        |run| {
            let at = run.at("member_ended", "p1-b");
            run.events.insert(at, captured("capture_failed", "p1-b"));
            run.events[at + 1]["sample"] = Value::Null;
        },
    ),
    bug(
        "a batch that was never requested is received",
        Rule::Existing,
        |run| drop(run.events.remove(run.at("batch_requested", "\"batch\":3"))),
    ),
    bug(
        "the trainer goes back to before its checkpoint",
        Rule::Existing,
        |run| {
            let at = run.at("rolled_back", "math");
            run.events[at]["batch"] = 0.into();
        },
    ),
    bug(
        "a batch is trained that was not requested",
        Rule::Existing,
        |run| run.events.push(of_batch("batch_trained", 4)),
    ),
    bug(
        "a batch is trained that was not received",
        Rule::Received,
        |run| {
            run.events.push(of_batch("batch_requested", 4));
            run.events.push(of_batch("batch_trained", 4));
        },
    ),
    bug(
        "a checkpoint has a batch that was not received",
        Rule::Received,
        |run| {
            run.events.push(of_batch("batch_requested", 4));
            run.events.push(of_batch("checkpointed", 4));
        },
    ),
    bug("a version falls", Rule::Told, |run| {
        run.events.push(told(1, 2));
    }),
    bug("a version that is served falls", Rule::Told, |run| {
        run.events.push(served(1, 2));
    }),
    bug("a version exceeds the last batch", Rule::Told, |run| {
        run.events.push(told(1, 4));
    }),
    bug("a version is of an abandoned lineage", Rule::Told, |run| {
        run.events.push(told(0, 3));
    }),
];

fn shown(report: &Report) -> String {
    let lines = report.violations.iter().map(ToString::to_string);
    lines.collect::<Vec<String>>().join("\n")
}

#[test]
fn a_good_run_passes() {
    let report = Fixture::good().report();
    assert_eq!(shown(&report), "");
    let counts = "3 batches, 3 groups, 5 members, 5 samples checked, 0 samples proven from their \
                  steps; largest lag 1; 0 violations";
    assert_eq!(report.to_string(), counts);
}

#[test]
fn each_bug_breaks_its_rule() {
    for bug in BATCHES.iter().chain(EVENTS) {
        let mut run = Fixture::good();
        (bug.inject)(&mut run);
        let report = run.report();
        let is_found = report.violations.iter().any(|found| found.rule == bug.rule);
        assert!(is_found, "{}:\n{}", bug.name, shown(&report));
    }
}

#[test]
fn what_may_be_is_no_violation() {
    let mut run = Fixture::good();
    // The reward from before the request may have been in the batch when it was cut.
    for stem in ["batch-2", "batch-2.1"] {
        run.group(stem)["members"][1]["reward"] = json!(2);
        run.payload(stem)[1].reward = 2.0;
    }
    // The first batch may be missing, and payloads; digests may have no prefix.
    run.batches.remove("batch-1");
    run.payloads.remove("batch-1");
    run.payloads.remove("batch-3");
    let sample = run.group("batch-3")["members"][0]["sample"].take();
    run.group("batch-3")["members"][0]["sample"] = sample.as_str().expect("text")[7..].into();
    // A member that failed began anew, after treadle forgot that it was dropped.
    let at = run.at("member_arrived", "p1-b");
    let failed = [arrived("p1-b"), ended("p1-b", "client_failed")];
    run.events.splice(at..at, failed);
    // One was left out and began anew.
    let at = run.at("member_arrived", "p3-a");
    run.events
        .splice(at..at, [arrived("p3-a"), dropped("p3-a", "postponed")]);
    // A program that was a surplus arrives again after its batch, and a settled bound is lowered.
    run.events.push(arrived("p1-a"));
    let mut declared = run.events[run.at("job_declared", "math")].clone();
    declared["settings"] = json!({"lag_max": 0});
    run.events.push(declared);
    let report = run.report();
    assert_eq!(shown(&report), "");
    assert_eq!((report.batches, report.samples_checked), (2, 2));
}

#[test]
fn who_was_left_out_and_is_not_served_breaks_no_rule() {
    let mut run = Fixture::good();
    run.sample("p1-c");
    let at = run.at("batch_requested", "\"batch\":1");
    run.events.insert(at, dropped("p1-c", "unselected"));
    assert_eq!(shown(&run.report()), "");
}

#[test]
fn only_the_last_run_of_a_job_counts() {
    let mut run = Fixture::good();
    let removed = json!({"event": "job_removed", "job": "math"});
    let other = json!({"event": "job_declared", "job": "code", "settings": {}});
    let earlier = vec![
        other,
        told(3, 9),
        of_batch("batch_trained", 7),
        removed.clone(),
    ];
    run.events.splice(0..0, earlier);
    assert_eq!(shown(&run.report()), "");
    run.events.push(removed);
    assert_eq!(shown(&run.report()), "");
}

#[test]
fn a_violation_is_one_line_with_its_place() {
    let mut run = Fixture::good();
    run.payloads.clear();
    run.group("batch-3")["members"][0]["program"] = "a\nb".into();
    let report = run.report();
    let expected = "batch 3, group `p3`, program `a b`: it never arrived in this group before the \
                    batch (rule: each served member ended completed or truncated before the batch)";
    assert_eq!(shown(&report), expected);
}

#[test]
fn pages_and_lists_are_read_like_lines() {
    let run = Fixture::good();
    let lines = run.lines();
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    let (first, second) = rows.split_at(20);
    let pages = format!(
        "{}\n\n{}",
        json!({"events": first, "next": 20}),
        json!(second)
    );
    let events = read_events(pages.as_bytes()).expect("events");
    assert_eq!(events.len(), run.recorded().len());
    let report = check(&events, &run.received().expect("batches"));
    assert_eq!(shown(&report), "");
}

#[test]
fn events_that_are_wrong_are_refused() {
    let refused = |text: &str| {
        read_events(text.as_bytes())
            .expect_err("an error")
            .to_string()
    };
    assert!(refused("{").contains("line 1 of the events"));
    assert!(refused("\n{\"event\": {}}").contains("line 2"));
    assert!(refused("{\"seq\": 2}\n{\"seq\": 2}").contains("event 2 comes after event 2"));
    let no_batch = json!({"seq": 9, "event": {"event": "batch_trained", "job": "math"}});
    assert!(refused(&no_batch.to_string()).contains("event 9: missing field `batch`"));
    let row = json!({"seq": 1, "event": rewarded("p1-a", "inf")});
    assert!(refused(&row.to_string()).contains("finite"));
    let endless = std::io::BufReader::new(std::io::repeat(b' '));
    assert!(matches!(
        read_events(endless),
        Err(Error::Line { line: 1, .. })
    ));
}

#[test]
fn batches_that_are_wrong_are_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut run = Fixture::good();
        change(run.batches.get_mut("batch-1").expect("a batch"));
        run.received().expect_err("an error").to_string()
    };
    assert!(refused(|batch| batch["ready"] = false.into()).contains("not ready"));
    assert!(refused(|batch| batch["job"] = "code".into()).contains("of job `code`"));
    assert!(refused(|batch| *batch = json!([])).contains("`batch-1.json`"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("batch-1.json")).expect("a folder");
    let error = read_batches(folder.path(), "math").expect_err("an error");
    assert!(matches!(error, Error::File { .. }), "{error}");
}

/// A member with two sequences and two versions, and one without any.
fn columns() -> Columns {
    let meta = json!({"job": "math", "batch": 1, "groups": ["p1"], "versions": ["3", 4],
        "members": [{"program": "a", "sample": null}, {"program": "b", "sample": null}]});
    Columns {
        ids: vec![1, 15, 7, 9, 2, 8, 6],
        logprobs: vec![-0.5, -0.25, -1.0],
        starts: vec![0, 5, 7],
        sampled: vec![0, 3, 5, 1, 1, 2],
        versions: vec![0, 3, 4, 0, 0, 4, 5, 1],
        owner: vec![0, 0, 0, 0, 0, 1],
        rewards: vec![1.0, f64::NAN],
        meta: meta.to_string(),
    }
}

/// `meta` in which this is `mixed` of the first member.
fn mixed(mixed: &Value) -> String {
    let mut meta: Value = serde_json::from_str(&columns().meta).expect("JSON");
    meta["members"][0]["mixed"] = mixed.clone();
    meta.to_string()
}

#[test]
fn a_digest_is_that_of_the_definition() {
    let payload = read_payload(&columns().encode()).expect("a payload");
    // Computed with hashlib of Python, from the definition in `docs/training.md`.
    let expected = "ab201bc0533dcfea6b7541d4794d0ce6515e084aca96418b956d33e832bb6e37";
    let member = &payload.members["a"];
    assert_eq!((&*member.digest, member.oldest), (expected, Some(3)));
    assert_eq!(payload.members["b"].group, None);
}

#[test]
fn payloads_that_are_wrong_are_named() {
    let fault = |change: fn(&mut Columns)| {
        let mut columns = columns();
        change(&mut columns);
        read_payload(&columns.encode()).expect_err("a fault")
    };
    assert!(fault(|c| c.meta = "{}".into()).contains("`meta`"));
    let mixed = fault(|c| c.meta = mixed(&json!([[0, 3, 5, 9]])));
    assert!(mixed.contains("range 3 to 5 of sequence 0"), "{mixed}");
    assert!(fault(|c| c.rewards.truncate(1)).contains("`reward` has 1"));
    assert!(fault(|c| c.starts[0] = 1).contains("`sequence_start`"));
    assert!(fault(|c| c.starts[0] = -1).contains("negative"));
    assert!(fault(|c| c.starts[1] = 9).contains("`ids` is too short"));
    assert!(fault(|c| c.starts[2] = 4).contains("ends before it begins"));
    assert!(fault(|c| c.starts[2] = i64::MAX).contains("too short"));
    assert!(fault(|c| c.sampled[2] = 6).contains("not in order"));
    assert!(fault(|c| c.sampled[0] = 1).contains("not in order"));
    assert!(fault(|c| c.sampled[0] = 7).contains("after those"));
    assert!(fault(|c| c.logprobs.push(0.0)).contains("after those"));
    assert!(fault(|c| c.versions[3] = 2).contains("beyond a list of 2"));
    assert!(fault(|c| c.owner[1] = 2).contains("`owner` names member 2"));
    assert!(fault(|c| c.owner[5] = 0).contains("`owner` gives member 0"));
    let good = columns().encode();
    for length in 0..good.len() {
        assert!(read_payload(&good[..length]).is_err(), "{length} bytes");
    }
}
