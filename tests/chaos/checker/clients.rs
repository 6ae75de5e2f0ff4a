//! Compares the clients' record with the journal and the consumer's record: each complete answer is
//! one step that finished once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use treadle_engine_sim::{EngineSimOptions, generated};

use super::ShardJournal;
use super::check_result::CheckResult;
use super::journal::{Finish, Step};
use crate::agents::CHAT_TOKENS_MIN;
use crate::error::ChaosError;

/// Key of an attempt within its program: the length of a completion's prompt and the requested
/// tokens; for a chat only the latter.
type Key<'r> = (&'r str, Option<u64>, u64);

/// A step of a journal, and the numbers of that journal that the consumer has.
type JournalStep<'r> = (&'r Step, Option<&'r BTreeSet<u64>>);

/// Compares.
pub(super) fn check(
    record: &[Value],
    shards: &[ShardJournal],
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let mut steps: BTreeMap<Key<'_>, Vec<JournalStep<'_>>> = BTreeMap::new();
    let all = shards.iter().flat_map(|shard| {
        let steps = shard.journal.steps.values();
        steps.map(|step| (step, shard.seen.as_ref()))
    });
    for (step, seen) in all {
        let Some(asked) = step.asked else { continue };
        let prompt = (asked < CHAT_TOKENS_MIN).then_some(step.prompt_tokens);
        steps
            .entry((&step.program, prompt, asked))
            .or_default()
            .push((step, seen));
    }
    for line in record {
        let program = line["program"].as_str().unwrap_or_default();
        match (line["kind"].as_str(), line["outcome"].as_str()) {
            (Some("attempt"), Some("complete")) => {
                check_result.acknowledged += 1;
                let asked = line["max_tokens"].as_u64().unwrap_or_default();
                let key = (program, line["prompt_tokens"].as_u64(), asked);
                let found = steps.get(&key).map_or(&[][..], Vec::as_slice);
                attempt(line, found, check_result);
            }
            (Some("attempt"), Some("refused")) => {
                check_result
                    .stuck
                    .add(1, format!("a request was refused permanently: {line}"));
            }
            (Some("release"), Some("complete")) => {
                if !shards
                    .iter()
                    .any(|shard| shard.journal.released.contains_key(program))
                {
                    check_result
                        .lost
                        .add(1, format!("the release of {program}"));
                }
            }
            // Actions are checked by themselves.
            (Some("attempt" | "release"), Some("broken")) | (Some("action" | "action_end"), _) => {}
            _ => return Err(ChaosError::Nonsense(format!("a client wrote {line}"))),
        }
    }
    Ok(())
}

/// One complete answer.
fn attempt(line: &Value, found: &[JournalStep<'_>], check_result: &mut CheckResult) {
    let [(step, seen)] = found else {
        let what = format!("{} steps arrived for {line}", found.len());
        return if found.is_empty() {
            check_result.lost.add(1, what);
        } else {
            check_result.double_counted.add(1, what);
        };
    };
    // More than one end is counted with the journal.
    let Some(finish) = step.finishes.first() else {
        return check_result
            .lost
            .add(1, format!("no end of a step that was answered: {line}"));
    };
    let told = (
        &line["usage"]["prompt_tokens"],
        &line["usage"]["completion_tokens"],
    );
    if told != (&finish.prompt.into(), &finish.output.into()) {
        check_result.lost.add(
            1,
            format!("the tokens of {line}: the journal has {finish:?}"),
        );
    }
    if line["text"] != text_of(finish) {
        let what = format!("the engines wrote {:?} for {line}", text_of(finish));
        check_result.wrong_text.add(1, what);
    }
    if seen.is_some_and(|seen| !seen.contains(&finish.seq)) {
        let what = format!("event {} of {line} did not reach the consumer", finish.seq);
        check_result.lost.add(1, what);
    }
}

/// The text that simulated engines generate for a prompt and an answer of these lengths, whichever
/// engine answers, and however often it is interrupted: it has neither gaps nor repetitions.
fn text_of(finish: &Finish) -> String {
    let seed = EngineSimOptions::default().seed;
    let text = generated(seed, finish.prompt as usize, finish.output as usize);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::{arrived, finished, journal};
    use super::*;
    use serde_json::json;

    fn complete(asked: u64) -> Value {
        json!({
            "kind": "attempt", "program": "p", "outcome": "complete", "prompt_tokens": 10,
            "max_tokens": asked, "usage": {"prompt_tokens": 10, "completion_tokens": 4},
            "text": text_of(&Finish { seq: 2, prompt: 10, output: 4 }),
        })
    }

    #[test]
    fn text_with_a_gap_or_a_repetition_is_found() {
        let shards = [ShardJournal {
            journal: journal(&[("p", arrived(1, 4)), ("p", finished(1))]),
            seen: None,
        }];
        let whole = complete(4)["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(whole.len(), 16, "four tokens of four letters");
        for (text, wrong) in [
            (whole.clone(), 0),
            (whole[..12].to_owned(), 1),
            (format!("{}{}", &whole[..4], &whole[8..]), 1),
            (format!("{}{}", &whole[..8], &whole[4..]), 1),
        ] {
            let mut line = complete(4);
            line["text"] = json!(text);
            let mut check_result = CheckResult::default();
            check(&[line], &shards, &mut check_result).expect("known lines");
            assert_eq!(check_result.wrong_text.count, wrong, "{text}");
        }
    }

    #[test]
    fn each_answer_is_one_end_in_the_journal_and_with_the_consumer() {
        let counts = |line: Value, seen: &[u64]| {
            let mut check_result = CheckResult::default();
            let shard = ShardJournal {
                journal: journal(&[
                    ("p", arrived(1, 4)),
                    ("p", finished(1)),
                    ("p", arrived(2, 5)),
                    ("p", arrived(3, 6)),
                    ("p", arrived(4, 6)),
                ]),
                seen: Some(seen.iter().copied().collect()),
            };
            // No other shard has it.
            let other = ShardJournal {
                journal: journal(&[("q", arrived(1, 4))]),
                seen: None,
            };
            check(&[line], &[other, shard], &mut check_result).expect("known lines");
            (check_result.lost.count, check_result.double_counted.count)
        };
        assert_eq!(counts(complete(4), &[1, 2]), (0, 0));
        assert_eq!(
            counts(complete(4), &[1]),
            (1, 0),
            "the consumer has not got it"
        );
        assert_eq!(counts(complete(5), &[]), (1, 0), "it never finished");
        assert_eq!(
            counts(complete(6), &[]),
            (0, 1),
            "two steps for one request"
        );
        assert_eq!(counts(complete(7), &[]), (1, 0), "it never arrived");
        let mut other = complete(4);
        other["usage"]["completion_tokens"] = json!(5);
        assert_eq!(counts(other, &[1, 2]), (1, 0), "other tokens");
        let mut without = complete(4);
        without["usage"] = Value::Null;
        assert_eq!(counts(without, &[1, 2]), (1, 0), "no tokens");
        let release = json!({"kind": "release", "program": "p", "outcome": "complete"});
        assert_eq!(counts(release, &[]), (1, 0));
    }
}
