//! Arranges step by step: each step adds the units that save most time per unit.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use treadle_plugin::FreeUnits;

use crate::queue::{Choice, Waiting};

/// Whether this is optimal for interchangeable units: each step is one unit, and saves no more than
/// the one before.
pub(crate) fn are_exact(candidates: &[Waiting]) -> bool {
    candidates.iter().all(|waiting| {
        let saved = |pair: &[Choice]| pair[0].us - pair[1].us;
        let one_by_one = |pair: &[Choice]| pair[1].units == pair[0].units + 1;
        waiting.choices.windows(2).all(one_by_one)
            && waiting
                .choices
                .windows(3)
                .all(|three| saved(&three[..2]) >= saved(&three[1..]))
    })
}

/// Arranges without a table, from the free units.
#[derive(Debug)]
pub(crate) struct Steps<'q> {
    candidates: &'q [Waiting],
    free: FreeUnits,
}

impl<'q> Steps<'q> {
    pub(crate) fn new(candidates: &'q [Waiting], free: FreeUnits) -> Self {
        Self { candidates, free }
    }

    /// The choices for the first `head` candidates.
    pub(crate) fn head(&self, head: usize) -> Vec<Choice> {
        let candidates = &self.candidates[..head];
        let mut free = self.free;
        let mut at = vec![0; head];
        for waiting in candidates {
            free.take(waiting.least().units);
        }
        let best = |row: usize, now: usize, free: &FreeUnits| {
            let choices = &candidates[row].choices;
            let mut back = *free;
            back.give_back(choices[now].units);
            let fits = |to: &usize| back.fits(choices[*to].units);
            let steps = (now + 1..choices.len()).filter(fits);
            let steps = steps.map(|to| Step {
                saved_us: choices[now].us - choices[to].us,
                units: choices[to].units - choices[now].units,
                row,
                to,
            });
            steps.max()
        };
        let rows = 0..head;
        let mut steps: BinaryHeap<Step> = rows.filter_map(|row| best(row, 0, &free)).collect();
        while let Some(step) = steps.pop() {
            let choices = &candidates[step.row].choices;
            free.give_back(choices[at[step.row]].units);
            if free.take(choices[step.to].units) {
                at[step.row] = step.to;
            } else {
                free.take(choices[at[step.row]].units);
            }
            // If it no longer fits, a smaller one may.
            steps.extend(best(step.row, at[step.row], &free));
        }
        let chosen = candidates.iter().zip(at);
        chosen.map(|(waiting, at)| waiting.choices[at]).collect()
    }
}

/// An option with more units for one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    saved_us: u64,
    units: u32,
    row: usize,
    to: usize,
}

impl Ord for Step {
    /// By the time that each unit saves; then the first candidate, and the smaller step.
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (
            u128::from(self.saved_us) * u128::from(other.units),
            u128::from(other.saved_us) * u128::from(self.units),
        );
        own.cmp(&others)
            .then(other.row.cmp(&self.row))
            .then(other.to.cmp(&self.to))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
