//! Agent workloads: the LLM calls of programs, step by step, and the times of their tools.
//!
//! A workload is a list of [`AgentRun`]s, from a seeded generator ([`RolloutWorkload`] for agentic
//! RL as published, [`LognormalAgents`] for any other shape) or from a recorded trace
//! ([`load_trace`]). [`ContextChain`] turns a run into block hashes for the engine model,
//! [`ChatScript`] into chat requests for a real server.

mod chat;
mod context;
mod demand;
mod lognormal;
pub(crate) mod rollout;
mod sessions;
mod trace;

pub use chat::{ChatMessage, ChatScript};
pub use context::ContextChain;
pub use demand::peak_demand_tokens;
pub use lognormal::{LognormalAgents, LognormalParameter, WorkloadError};
pub use rollout::{AgentModel, AgentTask, OUTPUT_TOKENS_MAX, RolloutWorkload, parameters_markdown};
pub use sessions::{AgentSessions, SESSION_TOKEN_DIVISOR, Subagents};
pub use trace::{TraceError, TraceOptions, TraceSample, load_trace, write_trace};

/// The result of the tool call after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolResult {
    /// There was no tool call, or its result is unknown.
    #[default]
    None,
    /// Success: tests passed, a document was found, an equation was solved.
    Ok,
    /// Failure: an error, a failed test, nothing found.
    Failed,
}

impl ToolResult {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ok => "ok",
            Self::Failed => "failed",
        }
    }

    /// The result with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::None, Self::Ok, Self::Failed]
            .into_iter()
            .find(|result| result.name() == name)
    }
}

/// One LLM call of a run and the tool call after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStep {
    /// The whole prompt, in tokens.
    pub input_tokens: u32,
    /// Number of leading prompt tokens that are the context after the previous step (prompt and
    /// answer). Less than that whole context means that the run dropped or compacted the rest. 0
    /// for the first step: what it shares with other runs is in [`AgentRun`].
    pub reused_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
    /// Time from the answer to the next step's request, in microseconds.
    pub tool_us: u64,
    /// The result of the tool call.
    pub tool_result: ToolResult,
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

    /// Scales the token counts, keeping at least one input and one output token and the same reuse.
    pub fn scale_tokens(&mut self, factor: f64) {
        let scale = |tokens: u32| (f64::from(tokens) * factor) as u32;
        self.system_tokens = scale(self.system_tokens);
        self.group_tokens = scale(self.group_tokens);
        let mut before: Option<(AgentStep, AgentStep)> = None;
        for step in &mut self.steps {
            let planned = *step;
            step.input_tokens = scale(planned.input_tokens).max(1);
            step.output_tokens = scale(planned.output_tokens).max(1);
            step.reused_tokens = match before {
                // Rounding must not turn a context that only grows into a compacted one.
                Some((planned_before, scaled))
                    if planned.reused_tokens >= planned_before.context_tokens() =>
                {
                    step.input_tokens = step.input_tokens.max(scaled.context_tokens());
                    scaled.context_tokens()
                }
                _ => scale(planned.reused_tokens).min(step.input_tokens),
            };
            before = Some((planned, *step));
        }
    }

    /// Ends the run before the first step whose context exceeds the limit; true if that cut steps
    /// off. The last remaining step has no tool after it. No step may remain.
    pub fn truncate_at(&mut self, context_limit_tokens: u32) -> bool {
        let fits = |step: &AgentStep| step.context_tokens() <= context_limit_tokens;
        let Some(first) = self.steps.iter().position(|step| !fits(step)) else {
            return false;
        };
        self.steps.truncate(first);
        if let Some(last) = self.steps.last_mut() {
            last.tool_us = 0;
            last.tool_result = ToolResult::None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_only_grows_does_so_at_any_scale() {
        let runs = LognormalAgents::default().generate().unwrap();
        for factor in [0.003, 0.1, 0.37, 1.0, 2.5] {
            for mut run in runs.clone() {
                let planned = run.clone();
                run.scale_tokens(factor);
                for pair in run.steps.windows(2) {
                    assert_eq!(pair[1].reused_tokens, pair[0].context_tokens());
                    assert!(pair[1].input_tokens >= pair[1].reused_tokens);
                }
                let (now, before) = (run.final_context_tokens(), planned.final_context_tokens());
                let off = f64::from(now) - f64::from(before) * factor;
                // Each step rounds twice.
                assert!(
                    off.abs() <= 2.0 * run.steps.len() as f64 + 2.0,
                    "{factor}: {off}"
                );
                if (factor - 1.0).abs() < 1e-9 {
                    assert_eq!(run, planned);
                }
            }
        }
    }
}
