//! The world `prediction`: how much of each program remains.

use std::ops::Range;

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Live programs, one row each.
    LiveColumns
    rows {
        /// An opaque number, the same for programs of one group: samples of one task.
        group: u64,
        /// Context length in tokens.
        tokens: u64,
        /// Tokens generated so far, all steps together.
        output_tokens: u64,
        /// LLM calls finished so far.
        steps: u32,
        /// Time in tools so far, in milliseconds.
        tool_ms: u64,
    }
}

columns! {
    /// Finished programs: what was known at some step, and what followed. A program has one row for
    /// each step at which it was observed.
    FinishedColumns
    rows {
        /// An opaque number, the same for programs of one group: samples of one task.
        group: u64,
        /// Context length in tokens.
        tokens: u64,
        /// Tokens generated up to that step, all steps together.
        output_tokens: u64,
        /// LLM calls finished up to that step.
        steps: u32,
        /// Time in tools up to that step, in milliseconds.
        tool_ms: u64,
        /// Tokens that were generated after that step.
        remaining_tokens: u64,
        /// Time in tools after that step, in milliseconds.
        remaining_tool_ms: u64,
    }
}

impl FinishedColumns<'_> {
    /// Groups consecutive rows by program, as far as the columns show it: the same group and total
    /// tokens, at increasing steps; two rows at one step are before and after its tool returned.
    pub fn programs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let begun = start;
            if begun >= self.len() {
                return None;
            }
            let follows = |row: &usize| {
                let before = row - 1;
                let step = self.steps[before];
                let goes_on = step < self.steps[*row]
                    || (step > 0
                        && step == self.steps[*row]
                        && self.tool_ms[before] <= self.tool_ms[*row]);
                self.group[before] == self.group[*row]
                    && goes_on
                    && self.total_tokens(before) == self.total_tokens(*row)
            };
            start = begun + 1 + (begun + 1..self.len()).take_while(follows).count();
            Some(begun..start)
        })
    }

    /// Total tokens that the program of a row generated.
    pub fn total_tokens(&self, row: usize) -> u64 {
        self.output_tokens[row].saturating_add(self.remaining_tokens[row])
    }
}

/// Estimates, one entry per program in each list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estimates {
    /// Tokens still to be generated: the mean, finite and not negative.
    pub remaining_tokens: Vec<f64>,
    /// Their 90th percentile, at least the mean.
    pub remaining_tokens_p90: Vec<f64>,
    /// Seconds still to be spent in tools, finite and not negative.
    pub remaining_tool_s: Vec<f64>,
}

/// A policy of the world `prediction`. It is called while a program's tool runs, and again when
/// that has returned; no step waits for the answer.
pub trait PredictionPolicy: Policy {
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["predict"];

    /// Estimates for live programs.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError>;

    /// Learns from finished programs. The default learns nothing.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the previously learnt state stays.
    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_program_stand_together() {
        let zeros = [0; 6];
        let finished = FinishedColumns {
            group: &[1, 1, 1, 1, 2, 2],
            tokens: &zeros,
            output_tokens: &[0, 10, 0, 10, 0, 10],
            steps: &[0, 1, 0, 1, 0, 1],
            tool_ms: &zeros,
            remaining_tokens: &[30, 20, 30, 20, 30, 25],
            remaining_tool_ms: &zeros,
            extra: &[],
        };
        let programs: Vec<_> = finished.programs().collect();
        assert_eq!(programs, [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(FinishedColumns::default().programs().next(), None);
        let returned = FinishedColumns {
            steps: &[0, 1, 1, 1, 1, 2],
            tool_ms: &[0, 0, 70, 0, 0, 0],
            group: &[1; 6],
            remaining_tokens: &[30, 20, 30, 20, 30, 20],
            output_tokens: &[0, 10, 0, 10, 0, 10],
            ..finished
        };
        let programs: Vec<_> = returned.programs().collect();
        assert_eq!(programs, [0..3, 3..6]);
    }
}
