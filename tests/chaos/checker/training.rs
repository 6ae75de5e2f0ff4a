//! Compares a training run's records, those of the agents and of the trainer, with the journal and
//! with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::check_result::CheckResult;
use super::journal::Journal;
use crate::error::ChaosError;
use crate::record;
use crate::training::{
    BATCH_GROUPS, BATCHES, Ended, GROUP_SIZE, LAG_MAX, TRAINER, content_of, info_of, reward_of,
};

/// Refusals that an agent must expect: its member was cut, replaced or lost.
const EXPECTED: [&str; 2] = ["member_unknown", "member_dropped"];

/// Compares.
pub(super) fn check(
    agents: &[Value],
    journal: &Journal,
    run: &Ended,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let trainer = record::read(&run.folder.join(TRAINER))?;
    let events = Events::of(journal);
    for line in agents.iter().chain(&trainer) {
        acknowledged(line, &events, check_result)?;
    }
    let members = Members::of(agents);
    let folder = run.folder.join(BATCHES);
    received(&trainer, |stem| read(&folder, stem), &members, check_result)?;
    lineages(&trainer, check_result);
    weights::check(&trainer, journal, run, check_result)?;
    load_faults::check(run, check_result)?;
    if !run.is_trained {
        let what = "the trainer did not come to its end".to_owned();
        check_result.stuck.add(1, what);
    }
    proven(run, check_result);
    Ok(())
}

/// The events of a training run, by what they are about.
struct Events<'j> {
    by_subject: BTreeMap<String, Vec<&'j Value>>,
    released: BTreeSet<&'j str>,
}

impl<'j> Events<'j> {
    fn of(journal: &'j Journal) -> Self {
        let mut by_subject: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for event in &journal.training {
            by_subject.entry(subject(event)).or_default().push(event);
        }
        let released = journal.released.keys().map(String::as_str).collect();
        Self {
            by_subject,
            released,
        }
    }

    fn about(&self, subject: &str) -> &[&'j Value] {
        self.by_subject.get(subject).map_or(&[], Vec::as_slice)
    }
}

/// What an event is about, in words.
fn subject(event: &Value) -> String {
    let kind = event["event"].as_str().unwrap_or_default();
    let (lineage, batch) = (&event["lineage"], &event["batch"]);
    match kind {
        "group_submitted" => format!("{kind} {}", event["group"]),
        "version_told" => format!("{kind} {lineage} {}", event["version"]),
        "weights_published" => {
            let weights = &event["weights"];
            format!("{kind} {} {}", weights["lineage"], weights["version"])
        }
        "batch_trained" | "checkpointed" | "rolled_back" => format!("{kind} {lineage} {batch}"),
        _ => format!("{kind} {}", event["member"]["program"]),
    }
}

/// Checks that what a line says was acknowledged is on record.
fn acknowledged(
    line: &Value,
    events: &Events<'_>,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let (sent, answer, program) = (&line["sent"], &line["answer"], &line["program"]);
    let (lineage, batch) = (&line["lineage"], &line["batch"]);
    // Nothing is recorded of a member that was cut before.
    let is_member = !answer["group"].is_null();
    let kind = line["kind"].as_str().unwrap_or_default();
    let mut wanted = Vec::new();
    match kind {
        "submitted" => {
            let groups = sent["groups"].as_array().into_iter().flatten();
            wanted.extend(groups.map(|group| format!("group_submitted {}", group["group"])));
        }
        "ended" if is_member => {
            let subject = format!("member_ended {program}");
            ended_once(line, events.about(&subject), check_result);
            wanted.push(subject);
        }
        "reward" if is_member && !sent["failed"].is_null() => {
            wanted.push(format!("reward_failed {program}"));
        }
        "reward" if is_member => wanted.push(format!("reward_given {program}")),
        "released" => {
            if !events
                .released
                .contains(program.as_str().unwrap_or_default())
            {
                check_result
                    .lost
                    .add(1, format!("the release of {program}"));
            }
        }
        "trained" => wanted.push(format!("batch_trained {lineage} {batch}")),
        "version" => wanted.push(format!("version_told {lineage} {}", line["version"])),
        "published" => wanted.push(format!("weights_published {lineage} {}", line["version"])),
        "checkpoint" => wanted.push(format!("checkpointed {lineage} {batch}")),
        "resumed" => wanted.push(format!("rolled_back {lineage} {batch}")),
        "refused" => refused(line, check_result),
        "violation" => check_result.violations.add(1, line["what"].to_string()),
        "ended" | "reward" | "batch" => {}
        _ => return Err(ChaosError::Nonsense(format!("a client wrote {line}"))),
    }
    check_result.acknowledged += u64::from(kind != "refused");
    for subject in wanted {
        if events.about(&subject).is_empty() {
            let what = format!("no `{subject}` is on record for {line}");
            check_result.lost.add(1, what);
        }
    }
    Ok(())
}

/// Checks that a member's end is on record as it was reported, and once.
fn ended_once(line: &Value, events: &[&Value], check_result: &mut CheckResult) {
    let (end, sample) = (&line["sent"]["end"], &line["answer"]["sample"]);
    if events.len() > 1 {
        let what = format!("{} ends are on record for {line}", events.len());
        check_result.double_counted.add(1, what);
    }
    let differs = |event: &&&Value| event["end"] != *end || event["sample"] != *sample;
    if let Some(event) = events.iter().find(differs) {
        let what = format!("{event} is on record for {line}");
        check_result.lost.add(1, what);
    }
}

fn refused(line: &Value, check_result: &mut CheckResult) {
    let is_expected = line["error"]["code"]
        .as_str()
        .is_some_and(|code| EXPECTED.contains(&code));
    if is_expected && line["path"].is_null() {
        count(check_result, "members_refused", 1);
    } else {
        check_result.stuck.add(1, format!("it was refused: {line}"));
    }
}

/// What agents know of their members.
#[derive(Default)]
struct Members<'r> {
    failed: BTreeSet<&'r str>,
    /// Digests of the samples that agents reported.
    samples: BTreeMap<&'r str, &'r Value>,
}

impl<'r> Members<'r> {
    fn of(agents: &'r [Value]) -> Self {
        let mut members = Self::default();
        let is_member = |line: &&Value| !line["answer"]["group"].is_null();
        for line in agents.iter().filter(is_member) {
            let program = line["program"].as_str().unwrap_or_default();
            let (sent, sample) = (&line["sent"], &line["answer"]["sample"]);
            let is_trained = matches!(sent["end"].as_str(), Some("completed" | "truncated"));
            match line["kind"].as_str() {
                Some("ended") if is_trained => drop(members.samples.insert(program, sample)),
                Some("ended") => drop(members.failed.insert(program)),
                Some("reward") if !sent["failed"].is_null() => {
                    members.failed.insert(program);
                }
                _ => {}
            }
        }
        members
    }
}

/// The bytes of a batch that never change.
struct BatchBytes {
    groups: Vec<u8>,
    payload: Vec<u8>,
    view: Value,
}

/// Compares all that was received of each batch, byte by byte.
fn received(
    trainer: &[Value],
    kept: impl Fn(&str) -> Result<BatchBytes, ChaosError>,
    members: &Members<'_>,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let mut first: BTreeMap<u64, BatchBytes> = BTreeMap::new();
    for line in trainer.iter().filter(|line| line["kind"] == "batch") {
        count(check_result, "receptions", 1);
        let number = line["batch"].as_u64().unwrap_or_default();
        let kept = kept(line["file"].as_str().unwrap_or_default())?;
        if kept.view["batch"] != number || kept.view["trained_on"] != number.saturating_sub(1) {
            let what = format!("it is not batch {number}: {line}");
            check_result.violations.add(1, what);
        }
        let Some(before) = first.get(&number) else {
            first.insert(number, kept);
            continue;
        };
        count(check_result, "received_again", 1);
        for (what, same) in [
            ("JSON", before.groups == kept.groups),
            ("payload", before.payload == kept.payload),
        ] {
            if !same {
                let what = format!("other {what} than at first: {line}");
                check_result.violations.add(1, what);
            }
        }
    }
    count(check_result, "batches", first.len() as u64);
    let mut served = BTreeSet::new();
    for (number, kept) in &first {
        batch(*number, &kept.view, members, &mut served, check_result);
    }
    Ok(())
}

/// Reads a batch as the trainer stored it.
fn read(folder: &Path, stem: &str) -> Result<BatchBytes, ChaosError> {
    let read = |ending: &str| {
        let path = folder.join(format!("{stem}.{ending}"));
        std::fs::read(&path).map_err(ChaosError::file(path.display().to_string()))
    };
    BatchBytes::of(&read("json")?, read("safetensors")?)
        .ok_or_else(|| ChaosError::Nonsense(format!("{stem}.json is no batch")))
}

impl BatchBytes {
    /// The groups are the last field: what may change is before them.
    fn of(body: &[u8], payload: Vec<u8>) -> Option<Self> {
        let mark = b"\"groups\":";
        let at = body.windows(mark.len()).position(|part| part == mark)?;
        Some(Self {
            groups: body[at..].to_vec(),
            payload,
            view: serde_json::from_slice(body).ok()?,
        })
    }
}

/// Checks the groups of a batch. No program and no group may be in another one.
fn batch(
    number: u64,
    view: &Value,
    members: &Members<'_>,
    served: &mut BTreeSet<String>,
    check_result: &mut CheckResult,
) {
    let groups = view["groups"].as_array().map_or(&[][..], Vec::as_slice);
    let mut wrong = Vec::new();
    if groups.len() != BATCH_GROUPS as usize {
        wrong.push(format!("it has {} groups", groups.len()));
    }
    for group in groups {
        let key = group["group"].as_str().unwrap_or_default();
        let members_of = group["members"].as_array().map_or(&[][..], Vec::as_slice);
        if members_of.len() != GROUP_SIZE as usize {
            wrong.push(format!("{key} has {} members", members_of.len()));
        }
        if !served.insert(format!("group {key}")) {
            wrong.push(format!("{key} is served twice"));
        }
        let versions = members_of.iter().filter_map(|m| m["version"].as_u64());
        let oldest = versions.min().unwrap_or_default();
        let lag = (number - 1).checked_sub(oldest);
        if lag.is_none_or(|lag| lag > LAG_MAX) || group["lag"] != json!(lag) {
            wrong.push(format!("{key} has the lag {lag:?}: {group}"));
        }
        let is_submitted = key.starts_with("group-");
        let content = if is_submitted {
            content_of(key)
        } else {
            Value::Null
        };
        if group["content"] != content {
            wrong.push(format!("{key} has the content {}", group["content"]));
        }
        for member in members_of {
            let program = member["program"].as_str().unwrap_or_default();
            if !served.insert(format!("program {program}")) {
                wrong.push(format!("{program} is served twice"));
            }
            wrong.extend(
                fault(program, member, members).map(|fault| format!("{program} {fault}: {member}")),
            );
        }
    }
    for what in wrong {
        let what = format!("batch {number}: {what}");
        check_result.violations.add(1, what);
    }
}

/// What is wrong with a member that was served.
fn fault(program: &str, member: &Value, members: &Members<'_>) -> Option<&'static str> {
    let is_direct = program.starts_with("direct-");
    let reported = members.samples.get(program);
    let info = if is_direct {
        info_of(program)
    } else {
        Value::Null
    };
    let faults = [
        (members.failed.contains(program), "failed"),
        (
            !matches!(member["end"].as_str(), Some("completed" | "truncated")),
            "did not end well",
        ),
        (member["reward"] != reward_of(program), "has another reward"),
        (member["sample"].is_null(), "has no sample"),
        (
            reported.is_some_and(|sample| **sample != member["sample"]),
            "has another sample than was reported",
        ),
        (member["info"] != info, "has other info"),
    ];
    let mut wrong = faults.into_iter().filter(|(is_wrong, _)| *is_wrong);
    wrong.next().map(|(_, what)| what)
}

/// Checks that each lineage has the batches after its checkpoint, each in its turn, and that none
/// was ended twice.
fn lineages(trainer: &[Value], check_result: &mut CheckResult) {
    let mut next = BTreeMap::from([(0, 1)]);
    for line in trainer {
        let number = |field: &str| line[field].as_u64().unwrap_or_default();
        let (lineage, batch) = (number("lineage"), number("batch"));
        match line["kind"].as_str() {
            Some("resumed") => {
                if number("now") != lineage + 1 {
                    let what = format!("lineage {lineage} ended more than once: {line}");
                    check_result.violations.add(1, what);
                }
                next.insert(number("now"), batch + 1);
            }
            Some("batch") => {
                let turn = next.entry(lineage).or_default();
                if batch != *turn && batch + 1 != *turn {
                    let what = format!("{line} when it was the turn of {turn}");
                    check_result.violations.add(1, what);
                }
                *turn = batch + 1;
            }
            _ => {}
        }
    }
    count(check_result, "resumes", next.len() as u64 - 1);
}

/// Takes the report of `treadle training check`, and what the job's account says.
fn proven(run: &Ended, check_result: &mut CheckResult) {
    let violations = run.report["violations"].as_array();
    for violation in violations.into_iter().flatten() {
        let what = format!("treadle training check: {violation}");
        check_result.violations.add(1, what);
    }
    let batches = check_result
        .counted
        .get("batches")
        .copied()
        .unwrap_or_default();
    let members = batches * u64::from(BATCH_GROUPS * GROUP_SIZE);
    for (field, wanted) in [("batches", batches), ("samples_checked", members)] {
        if run.report[field] != wanted {
            let what = format!("it checked not {wanted} {field}: {}", run.report);
            check_result.violations.add(1, what);
        }
    }
    let lost = run.job["account"]["lost"].as_object();
    let lost = lost.into_iter().flatten();
    let lost = lost.filter_map(|(_, tally)| tally["members"].as_u64());
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    count(check_result, "members_lost", lost.sum());
    let returned = number(&run.job["account"]["returned"]);
    count(check_result, "groups_returned", returned);
    for field in ["samples_checked", "samples_proven", "lag_max_seen"] {
        count(check_result, field, number(&run.report[field]));
    }
    for (what, count) in &check_result.counted {
        if *count == 0 {
            let what = format!("{what} is 0");
            check_result.not_exercised.add(1, what);
        }
    }
}

fn count(check_result: &mut CheckResult, what: &str, number: u64) {
    let sum = check_result.counted.entry(what.to_owned()).or_default();
    *sum += number;
}

mod load_faults;
mod weights;

#[cfg(test)]
mod tests;
