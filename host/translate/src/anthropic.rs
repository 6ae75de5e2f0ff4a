//! Anthropic's Messages API, `/v1/messages`: translating requests to chat completions, and chat
//! completions to messages.
//!
//! Every message becomes chat messages of its own, whatever follows it. So a conversation that is
//! continued has the chat messages that it had before, byte by byte, and new ones behind them.

mod answer;
mod tools;
mod turns;

pub use answer::MessageBuilder;

use crate::chat::{
    Fields, effort, put, put_text, read_fields, refused, response_format, write_fields,
};
use serde_json::json;
use serde_json::value::RawValue;
use treadle_wire::error::RequestError;

/// Fields that are translated or have no equivalent. All others are the same in both APIs.
const NOT_OF_CHATS: [&str; 20] = [
    "betas",
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "mcp_servers",
    "messages",
    "metadata",
    "output_config",
    "output_format",
    "parallel_tool_calls",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream_options",
    "system",
    "thinking",
    "tool_choice",
    "tools",
    "user_profile_id",
];

/// Fields that need a provider's own services, or have another name by now.
const REFUSED: [(&str, &str); 3] = [
    (
        "container",
        "engines have no containers; leave `container` out",
    ),
    (
        "mcp_servers",
        "engines call no MCP servers; leave `mcp_servers` out, and offer their tools in `tools`",
    ),
    (
        "output_format",
        "`output_format` is not supported; use `output_config.format`",
    ),
];

/// A request to `/v1/messages`.
#[derive(Clone, Debug)]
pub struct MessagesRequest {
    fields: Fields,
}

impl MessagesRequest {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// `invalid_json` if it is not an object, `invalid_field` for unsupported features.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        read_fields(body, &REFUSED).map(|fields| Self { fields })
    }

    /// The body of a request for a chat completion.
    ///
    /// # Errors
    ///
    /// `invalid_field` for features without an equivalent in chats.
    pub fn to_chat(&self) -> Result<Vec<u8>, RequestError> {
        let shared = self.fields.iter();
        let shared = shared.filter(|(name, _)| !NOT_OF_CHATS.contains(&name.as_str()));
        let mut chat: Fields = shared.map(|(name, v)| (name.clone(), v.clone())).collect();
        let messages = self.given("messages");
        let messages = messages.ok_or_else(|| refused("messages", "`messages` is missing"))?;
        let messages = turns::messages(self.given("system"), messages)?;
        put(&mut chat, "messages", &messages)?;
        self.put_tools(&mut chat)?;
        if let Some(stops) = self.given("stop_sequences") {
            put(&mut chat, "stop", stops)?;
        }
        if let Some(output) = self.given("output_config") {
            if let Some(format) = response_format(output, "output_config")? {
                put(&mut chat, "response_format", &format)?;
            }
            if let Some(effort) = effort(output) {
                put(&mut chat, "reasoning_effort", &effort)?;
            }
        }
        if self.streams() {
            put(&mut chat, "stream_options", &json!({"include_usage": true}))?;
        }
        write_fields(&chat)
    }

    /// Whether the answer is a stream of events.
    pub fn streams(&self) -> bool {
        self.given("stream")
            .is_some_and(|value| value.get() == "true")
    }

    fn given(&self, name: &str) -> Option<&RawValue> {
        self.fields.get(name).map(|value| &**value)
    }

    /// Without tools there is no choice of them.
    fn put_tools(&self, chat: &mut Fields) -> Result<(), RequestError> {
        let functions = self.given("tools").map(tools::functions).transpose()?;
        let choice = self.given("tool_choice").map(tools::choice).transpose()?;
        let Some(functions) = functions.filter(|all| !all.is_empty()) else {
            return Ok(());
        };
        put_text(chat, "tools", format!("[{}]", functions.join(",")))?;
        if let Some(choice) = choice {
            put(chat, "tool_choice", &choice.tool)?;
            if choice.is_sequential {
                put(chat, "parallel_tool_calls", &false)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
