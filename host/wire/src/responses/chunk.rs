//! A chat completion of an engine: an event of its stream, or the whole.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Chunk {
    pub(super) model: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<ChatUsage>,
    pub(super) error: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Choice {
    pub(super) index: Option<u64>,
    /// In an event.
    pub(super) delta: Option<Delta>,
    /// In a body.
    pub(super) message: Option<Delta>,
    pub(super) finish_reason: Option<String>,
    pub(super) logprobs: Option<Logprobs>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CallDelta {
    pub(super) index: Option<usize>,
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionDelta>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
}

/// Log-probabilities have the same form in both APIs.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Logprobs {
    pub(super) content: Option<Vec<Box<RawValue>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct ChatUsage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    pub(super) completion_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) reasoning_tokens: Option<u64>,
}

impl ChatUsage {
    /// The form of `/v1/responses`.
    pub(super) fn json(self) -> String {
        let input = self.prompt_tokens.unwrap_or(0);
        let output = self.completion_tokens.unwrap_or(0);
        let cached = self.prompt_tokens_details.unwrap_or_default().cached_tokens;
        let details = self.completion_tokens_details.unwrap_or_default();
        serde_json::json!({
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": cached.unwrap_or(0)},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": details.reasoning_tokens.unwrap_or(0)},
            "total_tokens": input.saturating_add(output),
        })
        .to_string()
    }
}
