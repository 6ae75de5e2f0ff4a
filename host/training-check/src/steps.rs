//! The captured steps of a member, as `GET /api/v1/jobs/{job}/members/{program}/steps` answers them.

use crate::report::{Finding, Rule};
use crate::versions::{Bounds, Versions};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// Steps of a member.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    excluded: Vec<Excluded>,
}

/// A step as its engine reported it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) number: u64,
    pub(crate) prompt: Vec<i32>,
    pub(crate) output: Vec<i32>,
    #[serde(deserialize_with = "exact")]
    pub(crate) logprobs: Vec<f32>,
    /// The oldest version, of all of it if there are no ranges.
    version: u64,
    #[serde(default)]
    versions: Vec<Ranged>,
}

/// A range of the output, its oldest and its newest version.
#[derive(Clone, Debug, Deserialize)]
struct Ranged {
    start: usize,
    end: usize,
    version: u64,
    newest: Option<u64>,
}

impl Step {
    /// The versions of its output.
    pub(crate) fn versions(&self) -> Versions {
        let ranges = self.versions.iter();
        let bounds = |oldest: u64, newest: Option<u64>| Bounds {
            oldest,
            newest: newest.unwrap_or(oldest),
        };
        let mut ranges: Vec<_> = ranges
            .map(|range| (range.start..range.end, bounds(range.version, range.newest)))
            .collect();
        if ranges.is_empty() {
            ranges.push((0..self.output.len(), bounds(self.version, None)));
        }
        Versions::of(ranges, self.output.len())
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Excluded {
    step: u64,
}

/// Numbers with all their bits: parsed as f64 first, they could be rounded twice. What is no number
/// is null there, and equals nothing.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let inside = raw.get().strip_prefix('[');
    let inside = inside.and_then(|text| text.strip_suffix(']'));
    let wrong = || D::Error::custom("`logprobs` is a list of numbers");
    let inside = inside.ok_or_else(wrong)?.trim();
    if inside.is_empty() {
        return Ok(Vec::new());
    }
    let values = inside.split(',').map(|text| match text.trim() {
        "null" => Ok(f32::NAN),
        text => text.parse().map_err(|_| wrong()),
    });
    values.collect()
}

impl Steps {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Whether each step is excluded.
    pub(crate) fn excluded(&self) -> Vec<bool> {
        let excluded: BTreeSet<u64> = self.excluded.iter().map(|row| row.step).collect();
        let steps = self.steps.iter();
        steps.map(|step| excluded.contains(&step.number)).collect()
    }

    /// What is wrong with the steps themselves.
    pub(crate) fn faults(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut add = |what| found.push(Finding::of(Rule::Steps, what));
        let mut known = BTreeSet::new();
        for (step, is_excluded) in self.steps.iter().zip(self.excluded()) {
            let number = step.number;
            if !known.insert(number) {
                add(format!("there are two steps {number}"));
            }
            let (tokens, logprobs) = (step.output.len(), step.logprobs.len());
            if tokens != logprobs && !is_excluded {
                add(format!(
                    "step {number} has {logprobs} log-probabilities for {tokens} tokens"
                ));
            }
        }
        let mut listed = BTreeSet::new();
        for Excluded { step } in &self.excluded {
            if !known.contains(step) {
                add(format!("step {step} is excluded, but it is not stored"));
            }
            if !listed.insert(step) {
                add(format!("step {step} is excluded twice"));
            }
        }
        found
    }
}
