//! The journal, read with psql and counted independently: each step's request and end.

use std::collections::BTreeMap;

use serde_json::Value;
use treadle_services::Psql;

use super::check_result::CheckResult;
use crate::error::ChaosError;

/// A step as recorded in the journal.
#[derive(Default)]
pub(super) struct Step {
    pub(super) program: String,
    pub(super) prompt_tokens: u64,
    /// The client's limit on output.
    pub(super) asked: Option<u64>,
    pub(super) finishes: Vec<Finish>,
    arrivals: u32,
}

/// An end with its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) seq: u64,
    pub(super) prompt: u64,
    pub(super) output: u64,
}

/// The end state of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramTotals {
    pub(super) steps: u64,
    pub(super) tokens: u64,
}

/// The whole journal.
#[derive(Default)]
pub(super) struct Journal {
    /// All numbers, and the program of each event.
    pub(super) programs_of: BTreeMap<u64, String>,
    pub(super) steps: BTreeMap<u64, Step>,
    /// When each program was released, in microseconds since 1970.
    pub(super) released: BTreeMap<String, u64>,
    /// How often actions were submitted, by the keys that their clients chose.
    submitted: BTreeMap<String, u64>,
    /// Events of training runs.
    pub(super) training: Vec<Value>,
    rows: u64,
    /// Number of the first event in the database.
    first: Option<u64>,
}

impl Journal {
    /// Reads all of it.
    pub(super) fn read(psql: &Psql, schema: &str) -> Result<Self, ChaosError> {
        let copy = format!(
            "COPY (SELECT seq, at_us, coalesce(program, ''), body FROM {schema}.events ORDER BY seq) \
             TO STDOUT"
        );
        let mut journal = Self::default();
        for line in psql.run(&copy)?.lines() {
            journal.take(line)?;
        }
        Ok(journal)
    }

    fn take(&mut self, line: &str) -> Result<(), ChaosError> {
        let nonsense = |what: &str| ChaosError::Nonsense(format!("{what} in the journal: {line}"));
        let cells: Vec<String> = line.splitn(4, '\t').map(unescaped).collect();
        let [seq, at_us, program, body] = &cells[..] else {
            return Err(nonsense("a short line"));
        };
        let number = |cell: &String| cell.parse::<u64>().map_err(|_| nonsense("a bad number"));
        let event: Value = serde_json::from_str(body).map_err(|_| nonsense("no JSON"))?;
        self.first.get_or_insert(number(seq)?);
        self.add(number(seq)?, number(at_us)?, program, &event);
        Ok(())
    }

    /// Takes an event that is no longer in the database from the consumer's record.
    pub(super) fn take_back(&mut self, message: &Value) -> Result<(), ChaosError> {
        let body = message["body"].as_str().unwrap_or_default();
        let body: Value = serde_json::from_str(body)
            .map_err(|_| ChaosError::Nonsense(format!("no JSON in a message: {message}")))?;
        let (seq, at_us) = (body["seq"].as_u64(), body["at_us"].as_u64());
        let (Some(seq), Some(at_us)) = (seq, at_us) else {
            return Err(ChaosError::Nonsense(format!(
                "a message of no event: {message}"
            )));
        };
        let is_removed = self.first.is_none_or(|first| seq < first);
        if is_removed && !self.programs_of.contains_key(&seq) {
            let program = body["program"].as_str().unwrap_or_default();
            self.add(seq, at_us, program, &body["data"]);
        }
        Ok(())
    }

    fn add(&mut self, seq: u64, at_us: u64, program: &str, event: &Value) {
        self.rows += 1;
        self.count(seq, at_us, program, event);
        self.programs_of.insert(seq, program.to_owned());
    }

    fn count(&mut self, seq: u64, at_us: u64, program: &str, event: &Value) {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let step = number(&event["step"]);
        match event["event"].as_str().unwrap_or_default() {
            "step_arrived" => {
                let known = self.steps.entry(step).or_default();
                known.arrivals += 1;
                program.clone_into(&mut known.program);
                known.prompt_tokens = number(&event["prompt_tokens"]);
                known.asked = event["output_tokens_max"].as_u64();
            }
            "step_finished" => self.steps.entry(step).or_default().finishes.push(Finish {
                seq,
                prompt: number(&event["tokens"]["prompt"]),
                output: number(&event["tokens"]["output"]),
            }),
            "program_released" => {
                let released = event["program"].as_str().unwrap_or_default().to_owned();
                self.released.insert(released, at_us);
            }
            "action_submitted" => {
                let key = event["spec"]["idempotency_key"].as_str();
                let key = key.unwrap_or_default().to_owned();
                *self.submitted.entry(key).or_default() += 1;
            }
            "group_submitted" | "member_ended" | "reward_given" | "reward_failed"
            | "batch_trained" | "version_told" | "checkpointed" | "rolled_back"
            | "weights_published" | "weights_relayed" => {
                self.training.push(event.clone());
            }
            _ => {}
        }
    }

    /// How often an action was submitted, by its key.
    pub(super) fn submitted(&self, key: &str) -> u64 {
        self.submitted.get(key).copied().unwrap_or(0)
    }

    /// Checks that the newest `events` events are in the database.
    pub(super) fn check_kept(&self, events: u64, check_result: &mut CheckResult) {
        let last = self.programs_of.keys().next_back().copied().unwrap_or(0);
        let first = self.first.unwrap_or(0);
        check_result.events_removed += first.saturating_sub(1);
        if last - first.saturating_sub(1) < events.min(last) {
            let what = format!("of {events} events that stay only those from {first} to {last} do");
            check_result.lost.add(1, what);
        }
    }

    /// Checks that the journal is complete.
    pub(super) fn check(&self, last_seq: u64, check_result: &mut CheckResult) {
        let numbers = self.programs_of.len() as u64;
        check_result.events += numbers;
        let last = self.programs_of.keys().next_back().copied().unwrap_or(0);
        if last != numbers {
            let gaps = last.saturating_sub(numbers);
            check_result
                .lost
                .add(gaps.max(1), format!("{numbers} events up to number {last}"));
        }
        if last != last_seq {
            check_result.lost.add(
                1,
                format!("the head is at {last_seq}, the last event is {last}"),
            );
        }
        if self.rows != numbers {
            check_result
                .double_counted
                .add(self.rows - numbers, "numbers given twice".to_owned());
        }
        for (id, step) in &self.steps {
            if step.arrivals != 1 {
                let what = format!(
                    "step {id} of {} arrived {} times",
                    step.program, step.arrivals
                );
                if step.arrivals == 0 {
                    check_result.lost.add(1, what);
                } else {
                    check_result.double_counted.add(1, what);
                }
            }
            if step.finishes.len() > 1 {
                let what = format!(
                    "step {id} of {} finished at {:?}",
                    step.program, step.finishes
                );
                check_result
                    .double_counted
                    .add(step.finishes.len() as u64 - 1, what);
            }
        }
    }

    /// Whether totals are those of the last steps of a member of a training run. A step that was on
    /// its way when its member was cut makes another program of that name, with its own totals.
    pub(super) fn began_again(&self, program: &str, totals: ProgramTotals) -> bool {
        let steps = self.steps.values().filter(|step| step.program == program);
        let mut ends: Vec<&Finish> = steps.flat_map(|step| &step.finishes).collect();
        ends.sort_by_key(|finish| std::cmp::Reverse(finish.seq));
        let last = ends.iter().take(totals.steps as usize);
        let tokens: u64 = last.map(|finish| finish.prompt + finish.output).sum();
        let is_part = (1..ends.len() as u64).contains(&totals.steps);
        !self.training.is_empty() && is_part && tokens == totals.tokens
    }

    /// The end state of each program.
    pub(super) fn program_totals(&self) -> BTreeMap<&str, ProgramTotals> {
        let mut program_totals: BTreeMap<&str, ProgramTotals> = BTreeMap::new();
        for step in self.steps.values() {
            let totals = program_totals.entry(&step.program).or_default();
            for finish in &step.finishes {
                totals.steps += 1;
                totals.tokens += finish.prompt + finish.output;
            }
        }
        program_totals
    }
}

/// A cell of COPY's text format as it was.
fn unescaped(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    let mut letters = cell.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A journal of events, numbered from 1.
    pub(crate) fn journal(events: &[(&str, Value)]) -> Journal {
        let mut journal = Journal::default();
        for (number, (program, event)) in events.iter().enumerate() {
            let line = format!("{}\t1000\t{program}\t{event}", number + 1);
            journal.take(&line.replace('\\', "\\\\")).expect("a line");
        }
        journal
    }

    pub(crate) fn arrived(step: u64, asked: u64) -> Value {
        serde_json::json!({
            "event": "step_arrived", "step": step, "prompt_tokens": 10, "output_tokens_max": asked,
        })
    }

    pub(crate) fn finished(step: u64) -> Value {
        serde_json::json!({
            "event": "step_finished", "step": step, "tokens": {"prompt": 10, "output": 4},
        })
    }

    fn check_result(events: &[(&str, Value)], last_seq: u64) -> (u64, u64) {
        let mut check_result = CheckResult::default();
        journal(events).check(last_seq, &mut check_result);
        (check_result.lost.count, check_result.double_counted.count)
    }

    #[test]
    fn a_whole_journal_is_clean_and_each_fault_is_counted() {
        let whole = [("p", arrived(1, 4)), ("p", finished(1))];
        assert_eq!(check_result(&whole, 2), (0, 0));
        assert_eq!(check_result(&whole, 3), (1, 0), "the last event is gone");
        let twice = [("p", arrived(1, 4)), ("p", finished(1)), ("p", finished(1))];
        assert_eq!(check_result(&twice, 3), (0, 1));
        let unheard_of = [("p", finished(1))];
        assert_eq!(check_result(&unheard_of, 1), (1, 0));
        let mut gap = journal(&whole);
        gap.programs_of.remove(&1);
        gap.rows -= 1;
        let mut found = CheckResult::default();
        gap.check(2, &mut found);
        assert_eq!(found.lost.count, 1);
    }

    #[test]
    fn what_was_removed_is_taken_from_the_consumer_and_nothing_newer_is_missing() {
        let whole = [
            ("p", arrived(1, 4)),
            ("p", finished(1)),
            ("p", arrived(2, 5)),
        ];
        let message = |seq: u64| {
            let (program, data) = &whole[seq as usize - 1];
            let body =
                serde_json::json!({"seq": seq, "at_us": 9, "program": program, "data": data});
            serde_json::json!({"body": body.to_string()})
        };
        let counts = |consumed: &[u64], keeps: u64| {
            let mut rest = Journal::default();
            for seq in 2..=3 {
                let line = format!("{seq}\t1000\tp\t{}", whole[seq as usize - 1].1);
                rest.take(&line.replace('\\', "\\\\")).expect("a line");
            }
            let mut found = CheckResult::default();
            rest.check_kept(keeps, &mut found);
            for seq in consumed {
                rest.take_back(&message(*seq)).expect("a message");
            }
            rest.check(3, &mut found);
            (found.lost.count, found.events_removed)
        };
        assert_eq!(counts(&[1, 1, 2, 3], 2), (0, 1));
        // Its number is missing, and the step that finished never arrived.
        assert_eq!(counts(&[2, 3], 2), (2, 1), "it was not published before");
        assert_eq!(counts(&[1], 3), (1, 1), "it was removed too early");
    }

    #[test]
    fn cells_come_back_as_they_were() {
        assert_eq!(unescaped(r#"{"a":"x\\ny\t"}"#), "{\"a\":\"x\\ny\t\"}");
    }

    #[test]
    fn only_the_last_steps_of_a_member_may_be_another_program() {
        let steps = [
            ("p", arrived(1, 4)),
            ("p", finished(1)),
            ("p", arrived(2, 4)),
            ("p", finished(2)),
        ];
        let of = |steps, tokens| ProgramTotals { steps, tokens };
        let mut journal = journal(&steps);
        assert!(!journal.began_again("p", of(1, 14)), "of no training run");
        journal.training.push(Value::Null);
        assert!(journal.began_again("p", of(1, 14)));
        for other in [of(1, 13), of(0, 0), of(2, 28), of(3, 28)] {
            assert!(!journal.began_again("p", other), "{other:?}");
        }
    }

    #[test]
    fn totals_are_sums() {
        let journal = journal(&[
            ("p", arrived(1, 4)),
            ("p", finished(1)),
            ("q", arrived(2, 4)),
        ]);
        let program_totals = journal.program_totals();
        assert_eq!(
            program_totals["p"],
            ProgramTotals {
                steps: 1,
                tokens: 14
            }
        );
        assert_eq!(program_totals["q"], ProgramTotals::default());
    }
}
