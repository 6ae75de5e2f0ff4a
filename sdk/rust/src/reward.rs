//! The world `reward`: what a finished program is worth, and which are trained on.

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Finished programs, one row each.
    AnswerColumns
    rows {
        /// The program's final answer.
        answer: String,
        /// What it is compared with; empty where there is none.
        reference: String,
        /// Tokens generated, all steps together.
        output_tokens: u64,
        /// LLM calls.
        steps: u32,
    }
}

columns! {
    /// Finished programs that could be trained on, one row each.
    CandidateColumns
    rows {
        /// An opaque number, the same for programs with the same prompt.
        group: u64,
        /// What `score` gave.
        reward: f64,
        /// How many weight versions old the program is.
        staleness: u32,
        /// Tokens generated, all steps together.
        output_tokens: u64,
    }
    beside {
        /// The most rows that may be selected.
        wanted: u32,
    }
}

/// Rewards, one entry per program in each column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// The reward of each program, finite.
    pub totals: Vec<f64>,
    /// Names of the parts that make it up; may be empty.
    pub part_names: Vec<String>,
    /// Part after part, each as long as `totals`.
    pub parts: Vec<f64>,
}

/// A policy of the world `reward`.
pub trait RewardPolicy: Policy {
    /// Rewards of finished programs.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError>;

    /// The rows to train on: distinct, at most `wanted`, best first. The default
    /// leaves it to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn select(&mut self, programs: &CandidateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}
