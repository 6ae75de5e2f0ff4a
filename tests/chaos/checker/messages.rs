//! Compares the consumer's record with the journal: the same numbers, in order for each program.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::check_result::CheckResult;
use super::journal::Journal;

/// Compares them, and returns the consumer's numbers.
pub(super) fn check(
    messages: &[Value],
    journal: &Journal,
    seq: u64,
    check_result: &mut CheckResult,
) -> BTreeSet<u64> {
    let mut bodies: BTreeMap<u64, &str> = BTreeMap::new();
    let mut latest: BTreeMap<&str, u64> = BTreeMap::new();
    for message in messages {
        let id = message["id"].as_str().and_then(|id| id.parse::<u64>().ok());
        let Some(id) = id else {
            check_result
                .double_counted
                .add(1, format!("a message without a number: {message}"));
            continue;
        };
        let body = message["body"].as_str().unwrap_or_default();
        if let Some(first) = bodies.insert(id, body) {
            check_result.messages_repeated += 1;
            if first != body {
                check_result
                    .double_counted
                    .add(1, format!("message {id} came with two bodies"));
            }
            continue;
        }
        let Some(program) = journal.programs_of.get(&id) else {
            check_result
                .lost
                .add(1, format!("message {id} is not in the journal"));
            continue;
        };
        if program.is_empty() {
            continue;
        }
        if let Some(before) = latest.insert(program, id).filter(|before| *before > id) {
            let what = format!("message {id} of {program} came after {before}");
            check_result.lost.add(1, what);
        }
    }
    check_result.messages += bodies.len() as u64;
    for number in journal.programs_of.keys().filter(|number| **number <= seq) {
        if !bodies.contains_key(number) {
            check_result
                .lost
                .add(1, format!("event {number} did not reach the consumer"));
        }
    }
    bodies.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::{arrived, finished, journal};
    use super::*;
    use serde_json::json;

    fn message(id: u64, body: &str) -> Value {
        json!({"id": id.to_string(), "body": body})
    }

    #[test]
    fn repetitions_are_allowed_and_everything_else_is_not() {
        let journal = journal(&[("p", arrived(1, 4)), ("p", finished(1))]);
        let counts = |messages: &[Value]| {
            let mut check_result = CheckResult::default();
            check(messages, &journal, 2, &mut check_result);
            (
                check_result.lost.count,
                check_result.double_counted.count,
                check_result.messages_repeated,
            )
        };
        let (one, two) = (message(1, "a"), message(2, "b"));
        assert_eq!(counts(&[one.clone(), two.clone()]), (0, 0, 0));
        assert_eq!(counts(&[one.clone(), one.clone(), two.clone()]), (0, 0, 1));
        assert_eq!(
            counts(&[two.clone(), one.clone()]),
            (1, 0, 0),
            "out of order"
        );
        assert_eq!(
            counts(std::slice::from_ref(&one)),
            (1, 0, 0),
            "one is missing"
        );
        assert_eq!(
            counts(&[one.clone(), two.clone(), message(3, "c")]),
            (1, 0, 0)
        );
        assert_eq!(counts(&[one.clone(), message(1, "x"), two]), (0, 1, 1));
    }
}
