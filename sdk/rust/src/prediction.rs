//! The world `prediction`: how much of each program is still to come.

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Live programs, one row each.
    LiveColumns
    rows {
        /// An opaque number, the same for programs with the same prompt.
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
    /// Programs that have finished: what was known at some step, and what then came.
    /// A program gives several rows, one for each step looked at.
    FinishedColumns
    rows {
        /// An opaque number, the same for programs with the same prompt.
        group: u64,
        /// Context length in tokens.
        tokens: u64,
        /// Tokens generated until then, all steps together.
        output_tokens: u64,
        /// LLM calls finished until then.
        steps: u32,
        /// Time in tools until then, in milliseconds.
        tool_ms: u64,
        /// Tokens that were generated after that step.
        remaining_tokens: u64,
        /// Time in tools after that step, in milliseconds.
        remaining_tool_ms: u64,
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

/// A policy of the world `prediction`. It is asked while a program's tool runs,
/// never while a step waits for the answer.
pub trait PredictionPolicy: Policy {
    /// Estimates for live programs.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError>;

    /// Learns from programs that have finished. The default leaves it.
    ///
    /// # Errors
    /// Any [`PolicyError`]; what was learnt before stays.
    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}
