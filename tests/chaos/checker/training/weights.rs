//! Checks what was recorded of the weights that sampled tokens, and what engines have at the end.

use std::collections::BTreeSet;

use serde_json::Value;

use super::count;
use crate::checker::check_result::CheckResult;
use crate::checker::journal::Journal;
use crate::error::ChaosError;
use crate::training::{BATCHES, Ended};

/// Compares versions of samples with those on record, and engines with what is said of them.
pub(super) fn check(
    trainer: &[Value],
    journal: &Journal,
    run: &Ended,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let known = on_record(&journal.training);
    for line in trainer.iter().filter(|line| line["kind"] == "batch") {
        let stem = line["file"].as_str().unwrap_or_default();
        let path = run.folder.join(BATCHES).join(format!("{stem}.safetensors"));
        let payload = std::fs::read(&path);
        let payload = payload.map_err(ChaosError::file(path.display().to_string()))?;
        let Some(meta) = meta_of(&payload) else {
            return Err(ChaosError::Nonsense(format!("{stem} has no meta")));
        };
        for version in versions_in(&meta) {
            count(check_result, "versions_sampled", 1);
            if !known.contains(&version) {
                let what = format!("{stem} has tokens of version {version}, which none had");
                check_result.violations.add(1, what);
            }
        }
    }
    let events = journal.training.iter();
    let relayed = events.filter(|event| event["event"] == "weights_relayed");
    count(check_result, "weights_relayed", relayed.count() as u64);
    let mut wrong = wrong_at_the_end(&run.weights, &run.engines);
    wrong.extend(older(trainer, &run.weights["serving"]));
    for what in wrong {
        check_result.violations.add(1, what);
    }
    Ok(())
}

/// Versions that engines may have had: those that were published or told, and the first.
fn on_record(events: &[Value]) -> BTreeSet<u64> {
    let versions = events
        .iter()
        .filter_map(|event| match event["event"].as_str()? {
            "version_told" => event["version"].as_u64(),
            "weights_published" => event["weights"]["version"].as_u64(),
            // A trainer names a version by its number.
            "weights_relayed" => event["call"]["end"]["name"].as_str()?.parse().ok(),
            _ => None,
        });
    versions.chain([0]).collect()
}

/// The tensor `meta` of a batch, which is JSON.
fn meta_of(payload: &[u8]) -> Option<Value> {
    let (length, rest) = payload.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, tensors) = rest.split_at_checked(length)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    let offset = |at: usize| usize::try_from(header["meta"]["data_offsets"][at].as_u64()?).ok();
    serde_json::from_slice(tensors.get(offset(0)?..offset(1)?)?).ok()
}

/// All versions that a batch names for ranges of tokens.
fn versions_in(meta: &Value) -> BTreeSet<u64> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut versions: BTreeSet<u64> = list(&meta["versions"])
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    for member in list(&meta["members"]) {
        let mixed = list(&member["mixed"]);
        versions.extend(mixed.iter().filter_map(|range| range[3].as_u64()));
    }
    versions
}

/// What is wrong if another version is in service at the end than the last one that the trainer had
/// loaded.
fn older(trainer: &[Value], serving: &Value) -> Option<String> {
    let told = |line: &&Value| matches!(line["kind"].as_str(), Some("version" | "published"));
    let newest = trainer.iter().rev().find(told)?;
    let differs = ["lineage", "version"]
        .iter()
        .any(|field| newest[*field] != serving[*field]);
    differs.then(|| format!("the newest version is that of {newest}, and {serving} serves"))
}

/// What is wrong with the engines once the trainer has come to its end: each serves the version in
/// service, and has it as a whole.
fn wrong_at_the_end(weights: &Value, engines: &[Value]) -> Vec<String> {
    let serving = &weights["serving"];
    let mut wrong = Vec::new();
    let workers = weights["workers"].as_array().map_or(&[][..], Vec::as_slice);
    if workers.len() != engines.len() || serving.is_null() {
        wrong.push(format!("not all engines serve a version: {weights}"));
    }
    for worker in workers {
        if worker["fenced"] != false || worker["held"] != *serving {
            wrong.push(format!("an engine does not serve {serving}: {worker}"));
        }
    }
    for engine in engines {
        let is_torn = engine["checksum"].to_string().contains("torn");
        let has_none = engine["checksum"].is_null();
        if engine["name"] != serving["name"] || is_torn || has_none {
            wrong.push(format!("an engine is to have {serving}, and has {engine}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_that_nobody_had_are_found() {
        let events = [
            json!({"event": "version_told", "version": 3}),
            json!({"event": "weights_published", "weights": {"version": 4}}),
            json!({"event": "weights_relayed", "call": {"end": {"name": "5"}}}),
            json!({"event": "weights_relayed", "call": "begin"}),
        ];
        assert_eq!(on_record(&events), BTreeSet::from([0, 3, 4, 5]));
        let meta = json!({"versions": [3], "members": [{"mixed": [[0, 0, 9, 6]]}, {}]});
        assert_eq!(versions_in(&meta), BTreeSet::from([3, 6]));
        let header = json!({"meta": {"data_offsets": [1, 1 + meta.to_string().len()]}}).to_string();
        let mut payload = (header.len() as u64).to_le_bytes().to_vec();
        payload.extend(header.bytes().chain(*b"x").chain(meta.to_string().bytes()));
        assert_eq!(meta_of(&payload), Some(meta));
        assert_eq!(meta_of(b"short"), None);
    }

    #[test]
    fn an_older_version_that_serves_at_the_end_is_found() {
        let line =
            |kind: &str, version: u64| json!({"kind": kind, "lineage": 1, "version": version});
        let trainer = [
            line("published", 3),
            line("version", 4),
            line("checkpoint", 9),
        ];
        let serving = |lineage: u64, version: u64| json!({"lineage": lineage, "version": version});
        assert_eq!(older(&trainer, &serving(1, 4)), None);
        for wrong in [serving(1, 3), serving(0, 4), Value::Null] {
            assert!(older(&trainer, &wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn an_engine_that_does_not_serve_at_the_end_is_found() {
        let weights = |fenced: bool, name: &str| {
            json!({"serving": {"name": "1.4"},
                "workers": [{"fenced": fenced, "held": {"name": name}}]})
        };
        let engine = |name: &str, checksum: &str| json!({"name": name, "checksum": checksum});
        let count = |weights: &Value, engine: Value| wrong_at_the_end(weights, &[engine]).len();
        let good = weights(false, "1.4");
        assert_eq!(count(&good, engine("1.4", "version 1.4")), 0);
        assert_eq!(count(&good, engine("1.3", "version 1.3")), 1);
        assert_eq!(count(&good, engine("1.4", "torn in load 7")), 1);
        assert_eq!(count(&good, json!({"name": "1.4"})), 1);
        assert_eq!(count(&weights(true, "1.4"), engine("1.4", "x")), 1);
        assert_eq!(count(&weights(false, "1.3"), engine("1.4", "x")), 1);
        assert_eq!(count(&Value::Null, engine("", "x")), 2);
    }
}
