//! A step: one LLM call of a program, from its arrival to its end.

use serde::{Deserialize, Serialize};
use treadle_model::{ProgramId, Timestamp, WorkerId};

/// Where a step is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum StepState {
    /// In the queue.
    Waiting,
    /// At an engine.
    Running {
        /// The engine.
        worker: WorkerId,
        /// Since when.
        since: Timestamp,
    },
}

impl StepState {
    /// The engine that it is at.
    pub fn worker(self) -> Option<WorkerId> {
        match self {
            Self::Waiting => None,
            Self::Running { worker, .. } => Some(worker),
        }
    }
}

/// One step that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its program.
    pub program: ProgramId,
    /// When it arrived.
    pub arrived_at: Timestamp,
    /// Since when it would have waited, had it never been at an engine: what
    /// it spent there is not waiting.
    #[serde(default)]
    pub waits_since: Timestamp,
    /// Where it is.
    pub state: StepState,
    /// Prompt tokens, counted or estimated.
    pub prompt_tokens: u64,
    /// What the prompt takes at least: all of it if it was counted, half of
    /// what was estimated.
    #[serde(default)]
    pub prompt_tokens_least: u64,
    /// Size of the prompt.
    pub prompt_bytes: u64,
    /// Output tokens that it is expected to end with.
    pub output_tokens_expected: u64,
    /// Output tokens seen.
    pub output_tokens: u64,
    /// When the first output token was seen.
    pub first_token_at: Option<Timestamp>,
    /// When it was first sent to an engine.
    pub dispatched_at: Option<Timestamp>,
    /// How often it was sent to an engine.
    pub attempts: u32,
    /// How urgent it is; the greater goes first.
    #[serde(default)]
    pub priority: i32,
    /// A policy said where it goes; it waits for a seat there alone.
    #[serde(default)]
    pub routed: bool,
}

impl Step {
    /// Tokens that the program's place must hold for this step.
    pub fn demand_tokens(&self) -> u64 {
        let output = self.output_tokens.max(self.output_tokens_expected);
        self.prompt_tokens.saturating_add(output)
    }

    /// Tokens that it has produced so far, prompt included.
    pub fn context_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }
}
