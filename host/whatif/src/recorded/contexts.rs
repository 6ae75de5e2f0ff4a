//! How much of its context each step reused.

use super::recorder::RecordedStep;
use treadle_simulator::workload::{AgentStep, ToolResult};

/// A step to replay, and whether its reuse is a guess. A prompt that contains the whole previous
/// context reused it; a somewhat shorter one reused the previous prompt; of a prompt that shrank,
/// only the shared segments and what the engine found in its cache are known to be reused.
pub(super) fn replayed(
    before: Option<AgentStep>,
    step: &RecordedStep,
    shared: u64,
) -> (AgentStep, bool) {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX / 4);
    let input = tokens(step.tokens.prompt.max(1));
    let mut next = AgentStep {
        input_tokens: input,
        reused_tokens: 0,
        output_tokens: tokens(step.tokens.output.max(1)),
        tool_us: 0,
        tool_result: ToolResult::None,
    };
    let Some(before) = before else {
        return (next, false);
    };
    if input >= before.context_tokens() {
        next.reused_tokens = before.context_tokens();
    } else if input >= before.input_tokens {
        next.reused_tokens = before.input_tokens;
    } else {
        let known = tokens(shared.max(step.tokens.cached.unwrap_or(0)));
        next.reused_tokens = known.min(input).min(before.context_tokens());
        return (next, true);
    }
    (next, false)
}
