//! Decisions that differ between two sets of policies, with their reasons.
//!
//! Two replays drift apart after the first difference, so comparing decisions at equal times is
//! useless. Instead each program's sequence of decisions is compared: the first one of another
//! kind, or about another engine, is its difference.

use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_core::programs::{Because, Decision, DecisionKind};
use utoipa::ToSchema;

/// A decision in short, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfDecision)]
pub struct Choice {
    /// Time of the decision, in seconds of virtual time.
    pub at_s: f64,
    /// The kind of decision.
    #[schema(value_type = String)]
    pub kind: DecisionKind,
    /// The engine, by its index among the recorded ones.
    pub worker: u32,
    /// The policy that decided.
    pub policy: Box<str>,
    /// The reason for the decision.
    #[schema(value_type = String)]
    pub because: Because,
    /// The program's demand at the engine, in tokens.
    pub need_tokens: u64,
    /// Tokens in use at the engine before the decision.
    pub used_tokens: u64,
    /// KV memory of the engine, in tokens.
    pub capacity_tokens: Option<u64>,
    /// How long the step had waited, or the tool call had lasted, in seconds.
    pub waited_s: f64,
    /// The score that a policy gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Number of alternatives that were considered.
    pub alternatives: usize,
}

impl Choice {
    fn is_same(&self, other: &Self) -> bool {
        (self.kind, self.worker) == (other.kind, other.worker)
    }
}

/// The first difference between two sets about one program.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfDifference)]
pub struct Difference {
    /// The program.
    pub program: Box<str>,
    /// Number of equal decisions before it.
    pub same_before: usize,
    /// The first set's decision; absent if it made no further one about the program.
    pub ours: Option<Choice>,
    /// The other set's decision.
    pub theirs: Option<Choice>,
}

impl Difference {
    fn at_s(&self) -> f64 {
        let times = [&self.ours, &self.theirs].into_iter().flatten();
        times.map(|choice| choice.at_s).fold(f64::MAX, f64::min)
    }
}

/// The decisions about each program, up to a limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    by_program: BTreeMap<Box<str>, Vec<Choice>>,
    count: usize,
    max: usize,
    /// Time from which decisions are missing because the limit was reached.
    full_at_us: Option<u64>,
    now_us: u64,
}

impl Choices {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    pub(super) fn at(&mut self, now_us: u64, _: &Event) {
        self.now_us = now_us;
    }

    pub(super) fn add(&mut self, decision: &Decision) {
        if self.count == self.max {
            self.full_at_us.get_or_insert(self.now_us);
            return;
        }
        self.count += 1;
        let of_program = self.by_program.entry(decision.key.clone()).or_default();
        of_program.push(decision.into());
    }

    /// The number of decisions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of programs with a difference, and the first `max` differences by time. Decisions
    /// after the time at which either set reached its limit are not compared.
    pub fn differences(&self, other: &Self, max: usize) -> (usize, Vec<Difference>) {
        let full_at_us = self.full_at_us.into_iter().chain(other.full_at_us).min();
        let until_s = full_at_us.map_or(f64::MAX, |us| us as f64 / 1e6);
        let nobody = Vec::new();
        let names = self.by_program.keys().chain(
            other
                .by_program
                .keys()
                .filter(|name| !self.by_program.contains_key(*name)),
        );
        let mut all: Vec<Difference> = names
            .filter_map(|program| {
                let ours = self.by_program.get(program).unwrap_or(&nobody);
                let theirs = other.by_program.get(program).unwrap_or(&nobody);
                let difference = parting(program, ours, theirs)?;
                (difference.at_s() < until_s).then_some(difference)
            })
            .collect();
        all.sort_by(|a, b| {
            let by_time = a.at_s().total_cmp(&b.at_s());
            by_time.then_with(|| a.program.cmp(&b.program))
        });
        let count = all.len();
        all.truncate(max);
        (count, all)
    }
}

fn parting(program: &str, ours: &[Choice], theirs: &[Choice]) -> Option<Difference> {
    let pairs = ours.iter().zip(theirs);
    let same_before = pairs.take_while(|(a, b)| a.is_same(b)).count();
    let (ours, theirs) = (ours.get(same_before), theirs.get(same_before));
    (ours.is_some() || theirs.is_some()).then(|| Difference {
        program: program.into(),
        same_before,
        ours: ours.cloned(),
        theirs: theirs.cloned(),
    })
}
