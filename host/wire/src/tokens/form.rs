//! Answers of engines in OpenAI's forms, as far as their tokens are read.

use super::versions::NamedSpan;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer<'a> {
    #[serde(borrow)]
    pub(super) prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, rename = "__verbose")]
    pub(super) verbose: Option<&'a RawValue>,
    /// SGLang's.
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
}

impl<'a> Answer<'a> {
    pub(super) fn choices(&self) -> &[Choice<'a>] {
        self.choices.as_deref().unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) weight_versions: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    content: Option<String>,
}

impl Choice<'_> {
    /// Its texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let said = self.message.into_iter().chain(self.delta);
        let said = said.filter_map(|said| serde_json::from_str::<Message>(said.get()).ok());
        let text = self.text.map(RawValue::get);
        let text = text.and_then(|text| serde_json::from_str(text).ok());
        said.filter_map(|said| said.content).chain(text)
    }
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
}

/// What SGLang adds to answers in one piece.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) weight_versions: Vec<NamedSpan>,
}

/// llama.cpp's own form of an answer.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Verbose {
    pub(super) prompt: Option<String>,
    pub(super) tokens: Vec<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Logprobs {
    /// Of chat, and of vLLM's own API.
    pub(super) content: Option<Vec<Entry>>,
    /// Of completions.
    pub(super) token_logprobs: Option<Vec<Option<f32>>>,
}

#[derive(Deserialize)]
pub(super) struct Entry {
    /// llama.cpp's addition.
    pub(super) id: Option<i32>,
    pub(super) logprob: Option<f32>,
}
