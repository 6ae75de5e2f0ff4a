//! What was found.

use std::collections::BTreeMap;

use serde_json::Value;

/// Problems of a kind that are listed.
const TOLD_MAX: usize = 20;

/// Problems of one kind.
#[derive(Default)]
pub(crate) struct Findings {
    /// How many.
    pub(crate) count: u64,
    told: Vec<String>,
}

impl Findings {
    /// Adds `count` problems; keeps the first descriptions.
    pub(crate) fn add(&mut self, count: u64, what: String) {
        self.count += count;
        if self.told.len() < TOLD_MAX {
            self.told.push(what);
        }
    }
}

/// What was found.
#[derive(Default)]
pub(crate) struct CheckResult {
    /// Acknowledged, published or counted, and missing.
    pub(crate) lost: Findings,
    /// Recorded more often than it happened.
    pub(crate) double_counted: Findings,
    /// Answers whose text has a gap or a repetition.
    pub(crate) wrong_text: Findings,
    /// Promises of a training run that were broken.
    pub(crate) violations: Findings,
    /// Work that has not ended.
    pub(crate) stuck: Findings,
    /// Effects that the form must show and that did not occur.
    pub(crate) not_exercised: Findings,
    /// Requests whose complete answer a client has.
    pub(crate) acknowledged: u64,
    /// Events of the journals.
    pub(crate) events: u64,
    /// Those of them that were removed during the run.
    pub(crate) events_removed: u64,
    /// Programs that were removed during the run.
    pub(crate) programs_removed: u64,
    /// Counters of the form's effects.
    pub(crate) counted: BTreeMap<String, u64>,
    /// Different messages of the consumer.
    pub(crate) messages: u64,
    /// Messages that came more than once, which is allowed.
    pub(crate) messages_repeated: u64,
    /// Checksums of the cores' final states.
    pub(crate) checksums: Vec<Value>,
}

impl CheckResult {
    /// Whether no problem of any kind was found.
    pub(crate) fn is_clean(&self) -> bool {
        let kinds = [
            &self.lost,
            &self.double_counted,
            &self.wrong_text,
            &self.violations,
            &self.stuck,
            &self.not_exercised,
        ];
        kinds.iter().all(|found| found.count == 0)
    }

    /// The first problems as text.
    pub(crate) fn problems(&self) -> Vec<String> {
        let kinds = [
            ("lost", &self.lost),
            ("double counted", &self.double_counted),
            ("wrong text", &self.wrong_text),
            ("violation", &self.violations),
            ("stuck", &self.stuck),
            ("not exercised", &self.not_exercised),
        ];
        let told = kinds
            .iter()
            .flat_map(|(kind, found)| found.told.iter().map(move |what| format!("{kind}: {what}")));
        told.collect()
    }
}
