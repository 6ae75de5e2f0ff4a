//! Samples that treadle assembled are found in the events, and proven from their steps; those of
//! deleted members are not expected.

use super::fixture::{Fixture, captured, ended};
use super::shown;
use crate::payload::{Sequence, Span, read_sequences};
use crate::{Error, Report, Rule, assembled, read_batches};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// A run in which the steps of `p1-b` were captured, and its sample assembled after its end.
fn run() -> Fixture {
    let mut run = Fixture::good();
    let at = run.at("member_ended", "p1-b");
    let before = [
        captured("step_captured", "p1-b"),
        json!({"event": "program_released", "program": "p1-b"}),
    ];
    run.events.splice(at..at, before);
    run
}

/// What `GET …/steps` answers for it.
fn steps(run: &Fixture) -> Value {
    let tokens = &run.payloads["batch-1"][1];
    json!({"program": "p1-b", "sample": tokens.sample, "excluded": [], "breaks": [],
        "sequences": [],
        "steps": [{"number": 0, "call": 17, "prompt": tokens.ids[..1], "output": tokens.ids[1..],
            "logprobs": tokens.logprobs, "version": tokens.version, "delivery": "complete"}]})
}

/// Proves all assembled samples with these steps.
fn prove(run: &Fixture, steps: &Value) -> (Vec<String>, Report) {
    let folder = tempfile::tempdir().expect("a folder");
    run.write(folder.path());
    let batches = read_batches(folder.path(), "math").expect("batches");
    let (mut programs, mut report) = (Vec::new(), Report::default());
    for batch in assembled(&run.recorded(), &batches) {
        let samples = batch.read().expect("samples");
        for program in samples.programs() {
            programs.push(program.to_owned());
            let steps = steps.to_string();
            let proven = samples.prove(program, steps.as_bytes(), &mut report);
            proven.expect("steps");
        }
    }
    (programs, report)
}

#[test]
fn an_assembled_sample_is_proven() {
    let run = run();
    assert_eq!(run.report().violations, []);
    let (programs, report) = prove(&run, &steps(&run));
    assert_eq!(
        (programs, report.violations),
        (vec!["p1-b".to_owned()], vec![])
    );
    assert_eq!(report.samples_proven, 1);
    // The client may also have reported the end.
    let mut run = Fixture::good();
    let at = run.at("member_ended", "p1-b");
    let before = [
        captured("step_captured", "p1-b"),
        ended("p1-b", "completed"),
    ];
    run.events.splice(at..at, before);
    assert_eq!(prove(&run, &steps(&run)).1.samples_proven, 1);
}

#[test]
fn a_fault_names_its_program() {
    let run = run();
    let mut steps = steps(&run);
    steps["steps"][0]["prompt"] = json!([8]);
    let (_, report) = prove(&run, &steps);
    let lines = report.violations.iter().map(ToString::to_string);
    let expected = "batch 1, group `p1`, program `p1-b`: to the left of the range 1 to 4 of sequence \
                    0 stands another prompt than that of step 0 from position 0 on (rule: a trained \
                    range is a step's output, right after its prompt)";
    assert_eq!(lines.collect::<Vec<String>>(), [expected]);
    assert_eq!(
        (report.violations[0].rule, report.samples_proven),
        (Rule::Context, 0)
    );
}

#[test]
fn sequences_are_read_as_they_were_written() {
    let span = |positions, version, newest| Span {
        positions,
        version,
        newest,
    };
    let first = Sequence {
        ids: vec![1, 15, 7, 9, 2],
        sampled: vec![Range { start: 3, end: 5 }],
        logprobs: vec![-0.5, -0.25],
        versions: vec![span(3..4, 3, 3), span(4..5, 4, 6)],
    };
    let second = Sequence {
        ids: vec![8, 6],
        sampled: vec![Range { start: 1, end: 2 }],
        logprobs: vec![-1.0],
        versions: vec![],
    };
    let mut columns = super::columns();
    // More than one version may have sampled the second range.
    columns.meta = super::mixed(&json!([[0, 4, 5, 6]]));
    let bytes = columns.encode();
    let read = read_sequences(&bytes, |_| true).expect("sequences");
    // One without sequences is there too: none of its steps is trained.
    let expected = [("a", vec![first, second]), ("b", vec![])];
    let expected = expected.map(|(program, sequences)| (program.to_owned(), sequences));
    assert_eq!(read, BTreeMap::from(expected));
    let read = read_sequences(&bytes, |program| program == "b").expect("sequences");
    assert_eq!(read.len(), 1);
}

#[test]
fn a_sample_that_its_client_reported_is_not_compared() {
    let is_compared = |change: fn(&mut Fixture)| {
        let mut run = run();
        let steps = steps(&run);
        change(&mut run);
        assert_eq!(run.report().violations, []);
        !prove(&run, &steps).0.is_empty()
    };
    assert!(is_compared(|_| {}));
    // It came with the end.
    assert!(!is_compared(|run| {
        run.events.remove(run.at("program_released", "p1-b"));
    }));
    // It was reported instead of a step that was not captured.
    assert!(!is_compared(|run| {
        let at = run.at("program_released", "p1-b");
        run.events.insert(at, captured("capture_failed", "p1-b"));
    }));
    // No step was captured before it.
    assert!(!is_compared(|run| {
        run.events.remove(run.at("step_captured", "p1-b"));
    }));
    // The trainer did not store the payload.
    assert!(!is_compared(|run| {
        run.payloads.remove("batch-1");
    }));
}

#[test]
fn a_capture_that_fails_after_the_clients_sample_changes_nothing() {
    let mut run = Fixture::good();
    let at = run.at("member_ended", "p1-b");
    run.events
        .insert(at + 1, captured("capture_failed", "p1-b"));
    assert_eq!(run.report().violations, []);
}

#[test]
fn what_changed_or_is_no_answer_is_refused() {
    let run = run();
    let folder = tempfile::tempdir().expect("a folder");
    run.write(folder.path());
    let batches = read_batches(folder.path(), "math").expect("batches");
    let found = assembled(&run.recorded(), &batches);
    let samples = found[0].read().expect("samples");
    let mut report = Report::default();
    let error = samples.prove("p1-b", b"{\"steps\": 1}", &mut report);
    let error = error.expect_err("no steps").to_string();
    assert!(error.starts_with("the steps of `p1-b`: "), "{error}");
    let other = std::fs::read(folder.path().join("batch-2.safetensors")).expect("a payload");
    std::fs::write(folder.path().join("batch-1.safetensors"), other).expect("written");
    let error = found[0].read().expect_err("it changed");
    assert!(matches!(error, Error::Changed { batch: 1 }), "{error}");
}

/// A sample that is assembled after the end, when a newer version serves, is of older ones.
#[test]
fn what_is_reported_after_the_end_samples_nothing() {
    let mut run = Fixture::good();
    let newer = run.at("version_told", "\"lineage\":0,\"version\":2");
    let newer = run.events.remove(newer);
    let sample = run.events.remove(run.at("member_ended", "p3-a"));
    let back = run.at("rolled_back", "math");
    let released = json!({"event": "program_released", "program": "p3-a", "aborted": false});
    run.events.splice(back..back, [released, newer, sample]);
    assert_eq!(super::shown(&run.report()), "");
    // The same as its only end.
    run.events.remove(run.at("program_released", "p3-a"));
    let found = run.report().violations;
    assert!(found.iter().any(|found| found.rule == Rule::Abandoned));
}

#[test]
fn a_member_that_was_deleted_has_no_sample_and_its_batch_may_change() {
    let mut run = Fixture::good();
    for (stem, member) in [("batch-2.1", 1), ("batch-3", 0)] {
        run.payloads.remove(stem);
        run.group(stem)["members"][member]["sample"] = Value::Null;
    }
    let report = run.report();
    let broken: Vec<Rule> = report.violations.iter().map(|found| found.rule).collect();
    assert_eq!(broken, [Rule::Unchanged, Rule::Sample]);
    for program in ["p2-b", "p3-a"] {
        run.events.push(captured("member_deleted", program));
    }
    assert_eq!(shown(&run.report()), "");
}
