//! Checks, from the records of the engines themselves, what came of loads of weights that failed.

use std::path::Path;

use serde_json::Value;

use super::count;
use crate::checker::check_result::CheckResult;
use crate::error::ChaosError;
use crate::fixture::engine_record;
use crate::record;
use crate::training::{Ended, LOAD_FAULTS};

/// Counts faults that were set and that happened, and steps of engines with a mixture of weights.
pub(super) fn check(run: &Ended, check_result: &mut CheckResult) -> Result<(), ChaosError> {
    let set = record::read(&run.folder.join(LOAD_FAULTS))?;
    let engines = (0..run.engines.len()).map(|engine| of_engine(&run.folder, engine));
    compare(&set, &engines.collect::<Result<Vec<_>, _>>()?, check_result);
    Ok(())
}

fn of_engine(folder: &Path, engine: usize) -> Result<Vec<Value>, ChaosError> {
    record::read(&engine_record(folder, engine))
}

/// Compares what was set with what engines did. A fault that was set and never happened is counted as 0.
fn compare(set: &[Value], engines: &[Vec<Value>], check_result: &mut CheckResult) {
    let name = |line: &Value| line["fault"].as_str().unwrap_or_default().to_owned();
    for line in set {
        match line["kind"].as_str() {
            Some("set") => {
                count(check_result, "load_faults_set", 1);
                count(check_result, &format!("load_faults_{}", name(line)), 0);
            }
            Some("stuck") => check_result.stuck.add(1, line["what"].to_string()),
            _ => check_result.violations.add(1, line["what"].to_string()),
        }
    }
    for (engine, lines) in engines.iter().enumerate() {
        for line in lines {
            match (line["did"].as_str(), &*name(line)) {
                (Some("step"), _) => count(check_result, "steps_at_engines", 1),
                (_, "none") => {}
                (_, fault) => count(check_result, &format!("load_faults_{fault}"), 1),
            }
        }
        for left in steps_of_mixtures(lines) {
            let what = format!("engine {engine} began a step with a mixture of weights: {left}");
            check_result.violations.add(1, what);
        }
    }
}

/// For each step that an engine began with a mixture of weights, the line of what left them so.
fn steps_of_mixtures(lines: &[Value]) -> Vec<&Value> {
    let (mut left, mut wrong) = (None, Vec::new());
    for line in lines {
        if line["did"] == "step" {
            wrong.extend(left);
        } else {
            left = (line["whole"] != true).then_some(line);
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(did: &str, fault: &str, whole: bool) -> Value {
        json!({"did": did, "fault": fault, "whole": whole})
    }

    fn found(engine: &[Value]) -> CheckResult {
        let set = ["tear", "lie"].map(|fault| json!({"kind": "set", "engine": 0, "fault": fault}));
        let mut found = CheckResult::default();
        compare(&set, &[engine.to_vec()], &mut found);
        found
    }

    #[test]
    fn a_step_at_an_engine_that_was_torn_or_lied_is_found() {
        let step = || line("step", "none", true);
        let whole = || line("load", "none", true);
        let failed = |fault: &str| line("load", fault, fault == "refuse" || fault == "lose");
        let count = |engine: &[Value]| found(engine).violations.count;
        let good = [
            line("start", "none", true),
            step(),
            failed("tear"),
            whole(),
            step(),
            failed("refuse"),
            step(),
            failed("lose"),
            step(),
            failed("lie"),
            line("begin", "none", false),
            line("part", "lie", false),
            line("start", "none", true),
            step(),
        ];
        assert_eq!(count(&good), 0);
        for fault in ["tear", "lie"] {
            assert_eq!(
                count(&[failed(fault), step(), step(), whole()]),
                2,
                "{fault}"
            );
        }
        let half = line("begin", "none", false);
        assert_eq!(count(&[whole(), half, step()]), 1, "an update is open");
    }

    #[test]
    fn faults_are_counted_and_one_that_never_happened_is_0() {
        let found = found(&[line("load", "tear", false), line("part", "tear", false)]);
        let counted = |what: &str| found.counted.get(what).copied();
        assert_eq!(counted("load_faults_set"), Some(2));
        assert_eq!(counted("load_faults_tear"), Some(2));
        assert_eq!(counted("load_faults_lie"), Some(0));
        assert_eq!(counted("load_faults_lose"), None);
    }

    #[test]
    fn what_waits_or_is_silent_is_found() {
        let mut found = CheckResult::default();
        let lines = ["stuck", "violation"].map(|kind| json!({"kind": kind, "what": "it"}));
        compare(&lines, &[], &mut found);
        assert_eq!((found.stuck.count, found.violations.count), (1, 1));
    }
}
