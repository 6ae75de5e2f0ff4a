//! Compares the clients' record of actions with the journal, the table, and the actions' own files:
//! each acknowledged action is there once and has ended, and none ran too often.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use treadle_services::Psql;

use super::check_result::CheckResult;
use super::journal::Journal;
use super::number;
use crate::actions::RAN;
use crate::error::ChaosError;

/// Maximum number of starts of an idempotent action.
const ATTEMPTS_MAX: u64 = 3;

/// An action's row in the table.
struct Row {
    status: String,
    outcome: String,
    attempts: u64,
}

/// An action in its client's record.
#[derive(Default)]
struct Known<'r> {
    is_idempotent: bool,
    is_acknowledged: bool,
    end: Option<&'r str>,
}

/// Compares.
pub(super) fn check(
    record: &[Value],
    journals: &[&Journal],
    psql: &Psql,
    (schema, ran): (&str, &Path),
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let rows = rows(psql, schema)?;
    let ran = lines(ran);
    for (key, action) in known(record, check_result) {
        let submitted: u64 = journals.iter().map(|journal| journal.submitted(key)).sum();
        let found = (submitted, rows.get(key), ran.get(key).copied().unwrap_or(0));
        one(key, &action, found, check_result);
    }
    Ok(())
}

/// Number of recorded actions without a program: those that came over the broker.
pub(crate) fn actions_by_job(psql: &Psql, schema: &str) -> Result<u64, ChaosError> {
    let query = format!("SELECT count(*) FROM {schema}.actions WHERE program IS NULL");
    let rows = psql.rows(&query)?;
    number(rows.first().and_then(|row| row.first()))
}

fn rows(psql: &Psql, schema: &str) -> Result<BTreeMap<String, Row>, ChaosError> {
    let query = format!(
        "SELECT spec::json->>'idempotency_key', status, \
         coalesce(outcome::json->>'outcome', ''), attempts FROM {schema}.actions"
    );
    let mut rows = BTreeMap::new();
    for cells in psql.rows(&query)? {
        let [key, status, outcome, attempts] = &cells[..] else {
            return Err(ChaosError::Nonsense(format!("a row of actions: {cells:?}")));
        };
        let row = Row {
            status: status.clone(),
            outcome: outcome.clone(),
            attempts: number(Some(attempts))?,
        };
        rows.insert(key.clone(), row);
    }
    Ok(rows)
}

/// How often each key was written, on the machine and in sandboxes, those of the node too.
fn lines(ran: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let folder = ran.parent().unwrap_or(ran);
    let folders = ["sandboxes/sandboxes", "node/sandboxes/sandboxes"];
    let folders = folders.into_iter().map(|path| folder.join(path));
    let sandboxes =
        folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    // The file in root's home of a sandbox.
    let inside = sandboxes.map(|sandbox| sandbox.path().join("0/files/root").join(RAN));
    for file in inside.chain([ran.to_owned()]) {
        // It is missing if nothing ran, which the counters show.
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Process ids of sandboxes that outlived all daemons.
pub(crate) fn orphans(program: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_sandbox = |process: &Path| {
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        let ours = std::fs::read_link(process.join("exe")).is_ok_and(|exe| exe == program);
        ours && words.nth(1) == Some(b"keep-sandbox")
    };
    let left = processes
        .map(|entry| entry.path())
        .filter(|path| of_sandbox(path));
    left.map(|path| path.display().to_string()).collect()
}

fn known<'r>(record: &'r [Value], check_result: &mut CheckResult) -> BTreeMap<&'r str, Known<'r>> {
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for line in record {
        let kind = line["kind"].as_str().unwrap_or_default();
        if !kind.starts_with("action") {
            continue;
        }
        let action = known
            .entry(line["key"].as_str().unwrap_or_default())
            .or_default();
        let outcome = line["outcome"].as_str();
        if kind == "action_end" {
            action.end = outcome;
            continue;
        }
        action.is_idempotent = line["idempotent"] == true;
        action.is_acknowledged |= outcome == Some("complete");
        if outcome == Some("refused") {
            let what = format!("an action was refused permanently: {line}");
            check_result.stuck.add(1, what);
        }
    }
    known
}

fn one(
    key: &str,
    action: &Known<'_>,
    (submitted, row, ran): (u64, Option<&Row>, u64),
    check_result: &mut CheckResult,
) {
    if submitted > 1 {
        let what = format!("action {key} was submitted {submitted} times");
        check_result.double_counted.add(submitted - 1, what);
    }
    let runs_max = if action.is_idempotent {
        ATTEMPTS_MAX
    } else {
        1
    };
    if ran > runs_max || ran > 0 && submitted == 0 {
        let what = format!("action {key} ran {ran} times; it may {runs_max} times");
        check_result.double_counted.add(1, what);
    }
    if !action.is_acknowledged {
        return;
    }
    check_result.acknowledged += 1;
    let Some(row) = row.filter(|_| submitted > 0) else {
        return check_result.lost.add(1, format!("action {key}"));
    };
    if row.status != "ended" {
        let what = format!("action {key} is {}", row.status);
        return check_result.stuck.add(1, what);
    }
    let is_told = action.end.is_none_or(|end| end == row.outcome);
    let has_run = match row.outcome.as_str() {
        "exited" => ran >= 1,
        "unknown" | "infrastructure_failure" => true,
        _ => false,
    };
    if !is_told || !has_run || ran > row.attempts {
        let what = format!(
            "action {key} ended as {} at attempt {}, ran {ran} times, and its client was told {:?}",
            row.outcome, row.attempts, action.end
        );
        check_result.lost.add(1, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(line: &Value, submitted: u64, row: Option<(&str, u64)>, ran: u64) -> [u64; 3] {
        let mut check_result = CheckResult::default();
        let lines = [
            line.clone(),
            json!({"kind": "action_end", "key": "p/1", "outcome": "exited"}),
        ];
        let row = row.map(|(outcome, attempts)| Row {
            status: "ended".into(),
            outcome: outcome.into(),
            attempts,
        });
        for (key, action) in known(&lines, &mut check_result) {
            one(
                key,
                &action,
                (submitted, row.as_ref(), ran),
                &mut check_result,
            );
        }
        let CheckResult {
            lost,
            double_counted,
            stuck,
            ..
        } = check_result;
        [lost.count, double_counted.count, stuck.count]
    }

    #[test]
    fn what_is_lost_or_ran_too_often_is_found() {
        let asked = |idempotent: bool, outcome: &str| json!({"kind": "action", "key": "p/1", "idempotent": idempotent, "outcome": outcome});
        let once = asked(false, "complete");
        assert_eq!(found(&once, 1, Some(("exited", 1)), 1), [0, 0, 0]);
        assert_eq!(found(&once, 0, None, 0), [1, 0, 0]);
        assert_eq!(
            found(&once, 1, Some(("exited", 1)), 0),
            [1, 0, 0],
            "it never ran"
        );
        assert_eq!(
            found(&once, 1, Some(("unknown", 1)), 1),
            [1, 0, 0],
            "told otherwise"
        );
        assert_eq!(found(&once, 1, Some(("exited", 2)), 2), [0, 1, 0]);
        assert_eq!(found(&once, 2, Some(("exited", 1)), 1), [0, 1, 0]);
        let again = asked(true, "complete");
        assert_eq!(found(&again, 1, Some(("exited", 2)), 2), [0, 0, 0]);
        assert_eq!(
            found(&again, 1, Some(("exited", 1)), 2),
            [1, 0, 0],
            "more than attempts"
        );
        assert_eq!(found(&again, 1, Some(("cancelled", 1)), 0), [1, 0, 0]);
        let broken = asked(false, "broken");
        assert_eq!(
            found(&broken, 0, None, 0),
            [0, 0, 0],
            "nobody was promised anything"
        );
        assert_eq!(found(&broken, 0, None, 1), [0, 1, 0]);
        assert_eq!(found(&asked(false, "refused"), 0, None, 0), [0, 0, 1]);
    }
}
