//! The world `priority`: the order of programs that wait for a place, and which running steps are
//! preempted.

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Waiting programs, one row each.
    QueueColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Tokens generated so far, all steps together.
        output_tokens: u64,
        /// LLM calls finished so far.
        steps: u32,
        /// Time in the queue, in milliseconds.
        waited_ms: u64,
        /// Predicted tokens still to be generated, -1 without a prediction.
        remaining_tokens: f64,
        /// Predicted seconds still to be spent in tools, -1 without a prediction.
        remaining_tool_s: f64,
    }
}

/// Running steps, one row each, and the waiting programs. Has no extra columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct PreemptColumns<'a> {
    /// The score of each running step's program.
    pub running_score: &'a [f64],
    /// How long each step has run, in milliseconds.
    pub running_ms: &'a [u64],
    /// The score of each waiting program; its length is the number of waiting programs.
    pub waiting_score: &'a [f64],
}

impl PreemptColumns<'_> {
    /// Number of running steps.
    pub fn len(&self) -> usize {
        self.running_score.len()
    }

    /// Whether no step runs.
    pub fn is_empty(&self) -> bool {
        self.running_score.is_empty()
    }

    /// Checks that the columns of running steps are of one length.
    ///
    /// # Errors
    /// [`PolicyError::invalid_input`], naming the column.
    pub fn check(&self) -> Result<(), PolicyError> {
        crate::columns::check_length("running_ms", self.running_ms.len(), self.len())
    }
}

/// A policy of the world `priority`.
pub trait PriorityPolicy: Policy {
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["score"];

    /// A finite score for each waiting program. The highest goes first; on equal
    /// scores the host takes the one that has waited longest.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// For each running step, whether to preempt it for a waiting one; at most as many as programs
    /// wait. The default leaves the decision to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let _ = steps;
        Err(PolicyError::not_supported())
    }
}
