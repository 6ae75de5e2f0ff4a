//! Translates a request to `/v1/responses` to one to `/v1/chat/completions`.

use super::ResponsesRequest;
use super::items::messages;
use super::tools::{ChatTools, ToolNames};
use crate::chat::{Fields, effort, put, put_text, response_format, write_fields};
use serde_json::json;
use treadle_wire::error::RequestError;

/// Fields that are translated or have no equivalent. All others are the same in both APIs.
const NOT_OF_CHATS: [&str; 26] = [
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "truncation",
];

/// The request as one for a chat completion.
#[derive(Debug)]
pub struct ChatForm {
    /// The body.
    pub body: Vec<u8>,
    /// The tools of its functions.
    pub(super) names: ToolNames,
}

impl ResponsesRequest {
    /// The request as one for a chat completion.
    ///
    /// # Errors
    ///
    /// `invalid_field` for features without an equivalent in chats.
    pub fn to_chat(&self) -> Result<ChatForm, RequestError> {
        let given = |name: &str| self.fields.get(name).map(|value| &**value);
        let mut chat: Fields = self.fields.clone();
        chat.retain(|name, _| !NOT_OF_CHATS.contains(&name.as_str()));
        let items = self.items()?;
        put(
            &mut chat,
            "messages",
            &messages(given("instructions"), &items)?,
        )?;
        let mut tools = given("tools").map_or_else(|| Ok(ChatTools::default()), ChatTools::of)?;
        let choice = given("tool_choice").map(|choice| tools.choice(choice));
        let choice = choice.transpose()?;
        if !tools.is_empty() {
            put_text(&mut chat, "tools", tools.json())?;
            if let Some(choice) = choice {
                put_text(&mut chat, "tool_choice", choice)?;
            }
            if let Some(parallel) = given("parallel_tool_calls") {
                put(&mut chat, "parallel_tool_calls", parallel)?;
            }
        }
        if let Some(tokens) = given("max_output_tokens") {
            put(&mut chat, "max_tokens", tokens)?;
        }
        if let Some(format) =
            given("text").map_or(Ok(None), |text| response_format(text, "text"))?
        {
            put(&mut chat, "response_format", &format)?;
        }
        if let Some(effort) = given("reasoning").and_then(effort) {
            put(&mut chat, "reasoning_effort", &effort)?;
        }
        if self.wants("message.output_text.logprobs") {
            put(&mut chat, "logprobs", &true)?;
            if let Some(most) = given("top_logprobs") {
                put(&mut chat, "top_logprobs", most)?;
            }
        }
        if self.streams() {
            put(&mut chat, "stream_options", &json!({"include_usage": true}))?;
        }
        let body = write_fields(&chat)?;
        let names = tools.names;
        Ok(ChatForm { body, names })
    }

    /// Whether the answer is a stream of events.
    pub fn streams(&self) -> bool {
        self.text_of("stream") == Some("true")
    }

    /// Whether `include` has this.
    pub(super) fn wants(&self, what: &str) -> bool {
        let include = self.text_of("include").unwrap_or("[]");
        let include = serde_json::from_str::<Vec<String>>(include).unwrap_or_default();
        include.iter().any(|each| each == what)
    }
}
