//! Translates a request to `/v1/responses` to one to `/v1/chat/completions`.

use super::items::messages;
use super::tools::{ChatTools, ToolNames};
use super::{Fields, ResponsesRequest, refused};
use crate::error::RequestError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

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

#[derive(Deserialize)]
struct TextFormat<'a> {
    #[serde(borrow)]
    format: Option<Format<'a>>,
}

#[derive(Deserialize)]
struct Format<'a> {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    strict: Option<bool>,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<JsonSchema<'a>>,
}

/// Kept as raw text, because engines generate fields in the order of the schema.
#[derive(Serialize)]
struct JsonSchema<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
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
        if let Some(format) = given("text").map_or(Ok(None), response_format)? {
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
        let body = serde_json::to_vec(&chat).map_err(|error| unwritten(&error))?;
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

/// `text.format` in the form of a chat: `None` for plain text.
fn response_format(text: &RawValue) -> Result<Option<ResponseFormat<'_>>, RequestError> {
    let wrong = |error: serde_json::Error| {
        let message = format!("`text` must be an object with a format: {error}");
        refused("text", &message)
    };
    let text: TextFormat<'_> = serde_json::from_str(text.get()).map_err(wrong)?;
    let Some(format) = text.format else {
        return Ok(None);
    };
    match format.kind.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(ResponseFormat {
            kind: "json_object",
            json_schema: None,
        })),
        "json_schema" => {
            let missing = || refused("text.format.schema", "`text.format.schema` is missing");
            let schema = format.schema.ok_or_else(missing)?;
            Ok(Some(ResponseFormat {
                kind: "json_schema",
                json_schema: Some(JsonSchema {
                    name: format.name.unwrap_or_else(|| "answer".into()),
                    description: format.description,
                    schema,
                    strict: format.strict,
                }),
            }))
        }
        kind => {
            let message = format!("`text.format.type` is `{kind}`, which no engine knows");
            Err(refused("text.format.type", &message))
        }
    }
}

fn effort(reasoning: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Reasoning {
        effort: Option<String>,
    }
    serde_json::from_str::<Reasoning>(reasoning.get())
        .ok()?
        .effort
}

fn put<T: Serialize + ?Sized>(
    chat: &mut Fields,
    name: &str,
    value: &T,
) -> Result<(), RequestError> {
    chat.insert(
        name.to_owned(),
        to_raw_value(value).map_err(|error| unwritten(&error))?,
    );
    Ok(())
}

fn put_text(chat: &mut Fields, name: &str, json: String) -> Result<(), RequestError> {
    chat.insert(
        name.to_owned(),
        RawValue::from_string(json).map_err(|error| unwritten(&error))?,
    );
    Ok(())
}

fn unwritten(error: &serde_json::Error) -> RequestError {
    refused(
        "input",
        &format!("the request can't be written as a chat: {error}"),
    )
}
