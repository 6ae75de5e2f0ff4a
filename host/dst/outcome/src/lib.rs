//! What simulations have in common: their outcome, their trace, and their random streams.

mod stream;

pub use stream::Stream;

use std::collections::BTreeMap;

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The rule's name, as in `docs/internals/simulation-testing.md`.
    pub rule: &'static str,
    /// Description of the violation.
    pub what: String,
}

/// The result of a check.
pub type Checked<T = ()> = Result<T, Violation>;

/// Reports a broken rule.
pub fn broken<T>(rule: &'static str, what: impl Into<String>) -> Checked<T> {
    Err(Violation {
        rule,
        what: what.into(),
    })
}

/// Numbers of events, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EventCounts(pub BTreeMap<&'static str, u64>);

impl EventCounts {
    /// Increments a counter.
    pub fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Adds another one's counters.
    pub fn add(&mut self, other: &Self) {
        for (name, times) in &other.0 {
            *self.0.entry(name).or_default() += times;
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The simulation's seed.
    pub seed: u64,
    /// Number of programs.
    pub programs: usize,
    /// Number of scheduled faults.
    pub faults_planned: usize,
    /// Hash of all events in order: runs with equal hashes were equal.
    pub trace_hash: u64,
    /// Number of events that the core handled, without replays.
    pub events: u64,
    /// Duration, in virtual microseconds.
    pub lasted_us: u64,
    /// Numbers of injected faults, by kind.
    pub faults: EventCounts,
    /// Numbers of steps by how they ended, and other counters.
    pub ends: EventCounts,
    /// The first broken rule.
    pub violation: Option<Violation>,
    /// The trace, line by line, if requested.
    pub trace: Vec<String>,
}

/// The trace, as a hash and, if requested, as text.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty trace, with text if `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: wanted.then(Vec::new),
        }
    }

    /// Adds bytes to the hash.
    pub fn feed(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    /// Adds a line, if lines are requested.
    pub fn line(&mut self, at_us: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", at_us as f64 / 1e6, text()));
        }
    }

    /// The hash of what was fed.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The text's lines; none if text was not requested.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
