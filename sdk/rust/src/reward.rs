//! The world `reward`: what a finished program is worth.

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Finished programs, one row each.
    AnswerColumns
    rows {
        /// The program's final answer.
        answer: String,
        /// The expected answer; empty without one.
        reference: String,
        /// Tokens generated, all steps together.
        output_tokens: u64,
        /// LLM calls.
        steps: u32,
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
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["score"];

    /// Rewards of finished programs.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError>;
}
