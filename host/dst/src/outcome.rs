//! The outcome of a simulation.

use std::collections::BTreeMap;

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The rule's name, as in `docs/internals/simulation-testing.md`.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

/// The result of a check.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// A broken rule.
pub(crate) fn broken<T>(rule: &'static str, what: impl Into<String>) -> Checked<T> {
    Err(Violation {
        rule,
        what: what.into(),
    })
}

/// How often things happened, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EventCounts(pub BTreeMap<&'static str, u64>);

impl EventCounts {
    /// Counts one more.
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        for (name, times) in &other.0 {
            *self.0.entry(name).or_default() += times;
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Programs in it.
    pub programs: usize,
    /// Faults on its schedule.
    pub faults_planned: usize,
    /// Over all that happened, in order: two runs that agree here were the same.
    pub trace_hash: u64,
    /// Events that the core handled, replays left out.
    pub events: u64,
    /// How long it lasted, in virtual microseconds.
    pub lasted_us: u64,
    /// Faults that were injected, by kind.
    pub faults: EventCounts,
    /// How its steps ended, and what else is good to know.
    pub ends: EventCounts,
    /// The first broken rule.
    pub violation: Option<Violation>,
    /// What happened, line by line, if it was asked for.
    pub trace: Vec<String>,
}

/// What happened, as a hash, and as text if that is wanted.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: wanted.then(Vec::new),
        }
    }

    /// Takes some bytes into the hash.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    /// Writes a line, if lines are wanted.
    pub(crate) fn line(&mut self, at_us: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", at_us as f64 / 1e6, text()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
