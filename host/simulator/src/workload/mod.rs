//! Agent workloads: what programs ask of engines, step by step, and the time that their tools take.
//!
//! A workload is a list of [`AgentRun`]s, from a seeded generator ([`LognormalAgents`]) or from a
//! recorded trace ([`load_trace`]). [`ContextChain`] turns a run into block hashes for the engine
//! model, [`ChatScript`] into chat requests for a real server.

mod chat;
mod context;
mod demand;
mod lognormal;
mod trace;

pub use chat::{ChatMessage, ChatScript, render_prompt};
pub use context::ContextChain;
pub use demand::peak_demand_tokens;
pub use lognormal::{LognormalAgents, LognormalParameter, WorkloadError};
pub use trace::{TraceError, TraceOptions, TraceSample, load_trace};

/// One LLM call of a run and the tool call after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentStep {
    /// The whole prompt, in tokens.
    pub input_tokens: u32,
    /// How much of the front of the prompt is the context as the previous step left it (prompt and
    /// answer), in tokens. Less than that whole context means that the run dropped or compacted the
    /// rest. For the first step 0: what it shares with other runs is in [`AgentRun`].
    pub reused_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
    /// From the answer to the next step's request, in microseconds.
    pub tool_us: u64,
}

impl AgentStep {
    /// Prompt and answer, in tokens.
    pub fn context_tokens(&self) -> u32 {
        self.input_tokens + self.output_tokens
    }

    /// Prompt tokens that were not in the run's previous context.
    pub fn fresh_tokens(&self) -> u32 {
        self.input_tokens - self.reused_tokens.min(self.input_tokens)
    }
}

/// One agent program: its steps in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRun {
    /// Name, unique in the workload.
    pub id: String,
    /// Runs of one group share the group's prompt.
    pub group: u32,
    /// Leading tokens of every prompt that all runs of the workload share.
    pub system_tokens: u32,
    /// Tokens after those that the runs of the group share.
    pub group_tokens: u32,
    /// The steps, at least one.
    pub steps: Vec<AgentStep>,
}

impl AgentRun {
    /// The context after the last step, in tokens.
    pub fn final_context_tokens(&self) -> u32 {
        self.steps.last().map_or(0, AgentStep::context_tokens)
    }

    /// All tokens generated.
    pub fn output_tokens(&self) -> u64 {
        self.steps
            .iter()
            .map(|step| u64::from(step.output_tokens))
            .sum()
    }

    /// Ends the run before the first step whose context exceeds the limit; true if that cut steps
    /// off. The last step left has no tool after it. All steps may go.
    pub fn truncate_at(&mut self, context_limit_tokens: u32) -> bool {
        let fits = |step: &AgentStep| step.context_tokens() <= context_limit_tokens;
        let Some(first) = self.steps.iter().position(|step| !fits(step)) else {
            return false;
        };
        self.steps.truncate(first);
        if let Some(last) = self.steps.last_mut() {
            last.tool_us = 0;
        }
        true
    }
}
