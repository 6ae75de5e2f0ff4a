//! A chat completion of an engine: an event of its stream, or the whole.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Chunk {
    pub(crate) model: Option<String>,
    pub(crate) choices: Option<Vec<Choice>>,
    pub(crate) usage: Option<ChatUsage>,
    pub(crate) error: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Choice {
    pub(crate) index: Option<u64>,
    /// In an event.
    pub(crate) delta: Option<Delta>,
    /// In a body.
    pub(crate) message: Option<Delta>,
    pub(crate) finish_reason: Option<String>,
    /// The stop sequence or token that ended it: vLLM's name, and SGLang's.
    pub(crate) stop_reason: Option<Value>,
    pub(crate) matched_stop: Option<Value>,
    pub(crate) logprobs: Option<Logprobs>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    pub(crate) tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct CallDelta {
    pub(crate) index: Option<usize>,
    pub(crate) id: Option<String>,
    pub(crate) function: Option<FunctionDelta>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct FunctionDelta {
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
}

/// Log-probabilities have the same form in both APIs.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Logprobs {
    pub(crate) content: Option<Vec<Box<RawValue>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct ChatUsage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
    pub(crate) completion_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct PromptDetails {
    pub(crate) cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct OutputDetails {
    pub(crate) reasoning_tokens: Option<u64>,
}

impl Delta {
    /// The reasoning that it adds, under any of its names.
    pub(crate) fn take_reasoning(&mut self) -> Option<String> {
        present(self.reasoning_content.take()).or(present(self.reasoning.take()))
    }

    /// The text that it adds.
    pub(crate) fn take_text(&mut self) -> Option<String> {
        present(self.content.take()).or(present(self.refusal.take()))
    }
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
