//! What a check found.

use serde::Serialize;
use std::fmt;

/// Violations that a report lists; further ones are counted.
pub const VIOLATIONS_MAX: usize = 10_000;
/// Characters of a line.
const LINE_MAX: usize = 1_000;

/// What a check found. Its `Display` is one line with the counts.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Report {
    /// Batches that were received, each counted once.
    pub batches: u64,
    /// Groups in them.
    pub groups: u64,
    /// Members of these groups.
    pub members: u64,
    /// Members whose sample was hashed from a payload and compared with its digest.
    pub samples_checked: u64,
    /// Members whose sample follows from their stored steps; see [`crate::Samples::prove`].
    pub samples_proven: u64,
    /// Largest lag of any group, in training steps.
    pub lag_max_seen: u64,
    /// What breaks a rule, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
    /// Violations beyond those listed.
    pub left_out: u64,
}

/// Something that breaks a rule. Its `Display` is one line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Number of the batch, if it is about one.
    pub batch: Option<u64>,
    /// Key of the group, if it is about one.
    pub group: Option<String>,
    /// Key of the program, if it is about one.
    pub program: Option<String>,
    /// What was found, with numbers.
    pub what: String,
}

/// What must hold for a run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The events begin with the job's declaration.
    Whole,
    /// Batches have numbers without gaps, from 1 or from the first one present.
    Numbering,
    /// The numbers in a batch agree with each other and with what was declared.
    Contents,
    /// A batch that comes again is the same, apart from `lineage` and `trained`.
    Unchanged,
    /// No group and no program is served twice.
    Once,
    /// A member's version was in service between its arrival and its end.
    Version,
    /// No group is older than `lag_max` allows.
    Lag,
    /// What was sampled with abandoned versions is not served in batches of a later lineage.
    Abandoned,
    /// Each member ended completed or truncated before its batch was cut.
    Ended,
    /// Each member has the last reward that was given before its batch was cut.
    Reward,
    /// Each member has the sample that was recorded, and its tokens have that digest.
    Sample,
    /// A group trains as many members as its job asks for, and none that was left out.
    Selected,
    /// The payload has the members and rewards of its batch.
    Payload,
    /// A member with a step that was not captured has the sample that its client reported.
    Captured,
    /// The stored steps of a member agree with each other.
    Steps,
    /// To the left of each trained range stands exactly the prompt of a step, and in it the step's
    /// output.
    Context,
    /// Trained tokens have the log-probabilities and the version of their step.
    Scores,
    /// Each step is trained in one place, or it is excluded.
    Coverage,
    /// Batches are requested in order, and only those that exist are trained, saved or gone back
    /// to.
    Existing,
    /// Each batch that was trained was received.
    Received,
    /// Versions name the current lineage, do not fall in it, and do not exceed the last batch.
    Told,
}

impl Rule {
    /// The rule in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Whole => "the events begin with the job's declaration",
            Self::Numbering => "batches have numbers from 1 without gaps",
            Self::Contents => "a batch agrees with itself and with what was declared",
            Self::Unchanged => "a batch that comes again is the same",
            Self::Once => "no group and no program is served twice",
            Self::Version => "a version was in service between arrival and end of its member",
            Self::Lag => "a group in batch k has version k - 1 - lag_max or later",
            Self::Abandoned => "nothing sampled with abandoned versions is served later",
            Self::Ended => "each served member ended completed or truncated before the batch",
            Self::Reward => "a served reward is the last one given before the batch",
            Self::Sample => "a sample has the digest that was recorded",
            Self::Selected => "a group trains as many members as were asked for, none left out",
            Self::Payload => "a payload has the members and rewards of its batch",
            Self::Captured => "a member whose capture failed has its client's sample",
            Self::Steps => "the stored steps of a member agree with each other",
            Self::Context => "a trained range is a step's output, right after its prompt",
            Self::Scores => "trained tokens have the log-probabilities and version of their step",
            Self::Coverage => "each step is trained in one place, or it is excluded",
            Self::Existing => "only batches that exist are trained, saved or gone back to",
            Self::Received => "each batch that was trained was received",
            Self::Told => "versions rise within a lineage, up to the last batch",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violations = self.violations.len() as u64 + self.left_out;
        write!(
            f,
            "{} batches, {} groups, {} members, {} samples checked, {} samples proven from their \
             steps; largest lag {}; {violations} violations",
            self.batches,
            self.groups,
            self.members,
            self.samples_checked,
            self.samples_proven,
            self.lag_max_seen
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.batch.map(|batch| format!("batch {batch}"));
        let named = |what: &str, name: &Option<String>| {
            let short = |name: &String| name.chars().take(LINE_MAX / 5).collect::<String>();
            name.as_ref()
                .map(|name| format!("{what} `{}`", short(name)))
        };
        let group = named("group", &self.group);
        let program = named("program", &self.program);
        let place: Vec<String> = [batch, group, program].into_iter().flatten().collect();
        let place = if place.is_empty() {
            "events".to_owned()
        } else {
            place.join(", ")
        };
        let line = format!("{place}: {} (rule: {})", self.what, self.rule.text());
        // Names come from outside and may have line breaks.
        let shown = line.chars().take(LINE_MAX);
        let shown = shown.map(|c| if c.is_control() { ' ' } else { c });
        f.write_str(&shown.collect::<String>())
    }
}

/// A rule that is broken, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl Finding {
    pub(crate) fn of(rule: Rule, what: String) -> Self {
        Self { rule, what }
    }
}

/// What a violation is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'p> {
    pub(crate) batch: Option<u64>,
    pub(crate) group: Option<&'p str>,
    pub(crate) program: Option<&'p str>,
}

impl Place<'_> {
    pub(crate) fn batch(number: u64) -> Self {
        Self {
            batch: Some(number),
            ..Self::default()
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, rule: Rule, place: Place<'_>, what: String) {
        if self.violations.len() >= VIOLATIONS_MAX {
            self.left_out += 1;
            return;
        }
        self.violations.push(Violation {
            rule,
            batch: place.batch,
            group: place.group.map(str::to_owned),
            program: place.program.map(str::to_owned),
            what,
        });
    }
}
