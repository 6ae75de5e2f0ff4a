//! Anthropic's Messages API on top of the simulated chat: requests are converted to chats, and the
//! chats' answers back.

mod answers;

use super::error::ApiError;
use super::request::parse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) use answers::MessageAnswer;

#[derive(Deserialize)]
struct Body {
    messages: Vec<Map<String, Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Fields with the same name in a chat.
const SAME: [&str; 7] = [
    "cache_salt",
    "max_tokens",
    "model",
    "priority",
    "seed",
    "stream",
    "temperature",
];

/// Converts a request to a chat.
pub(super) fn to_chat(body: &[u8]) -> Result<Value, ApiError> {
    let Body { messages, rest } = parse(body)?;
    let mut chat = Map::new();
    for name in SAME {
        if let Some(value) = rest.get(name) {
            chat.insert(name.into(), value.clone());
        }
    }
    let mut all = Vec::new();
    if let Some(system) = rest.get("system") {
        all.push(json!({"role": "system", "content": text_of(system)}));
    }
    for message in &messages {
        add_message(&mut all, message);
    }
    chat.insert("messages".into(), all.into());
    let tools = rest.get("tools").and_then(Value::as_array);
    let tools = tools.into_iter().flatten().filter_map(function_of);
    let tools: Vec<Value> = tools.collect();
    if !tools.is_empty() {
        chat.insert("tools".into(), tools.into());
    }
    let choice = rest.get("tool_choice").map(|choice| {
        match (choice["type"].as_str(), choice["name"].as_str()) {
            (Some("any"), _) => json!("required"),
            (Some("tool"), Some(name)) => json!({"type": "function", "function": {"name": name}}),
            (Some("none"), _) => json!("none"),
            _ => json!("auto"),
        }
    });
    chat.insert("tool_choice".into(), choice.into());
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    chat.insert("stream_options".into(), options);
    Ok(Value::Object(chat))
}

/// The chat form of a tool that the client runs.
fn function_of(tool: &Value) -> Option<Value> {
    let (name, schema) = (tool.get("name")?, tool.get("input_schema")?);
    let function = json!({
        "name": name, "description": tool["description"], "parameters": schema,
    });
    Some(json!({"type": "function", "function": function}))
}

/// Adds a message; results of tools become messages of their own.
fn add_message(all: &mut Vec<Value>, message: &Map<String, Value>) {
    let role = message.get("role").cloned().unwrap_or_default();
    let content = message.get("content").cloned().unwrap_or_default();
    let Value::Array(blocks) = &content else {
        all.push(json!({"role": role, "content": content}));
        return;
    };
    let (mut text, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_result") => all.push(json!({
                "role": "tool", "tool_call_id": block["tool_use_id"],
                "content": text_of(&block["content"]),
            })),
            Some("tool_use") => calls.push(json!({
                "id": block["id"], "type": "function",
                "function": {"name": block["name"], "arguments": block["input"].to_string()},
            })),
            _ => text.extend(block["text"].as_str()),
        }
    }
    if text.is_empty() && calls.is_empty() {
        return;
    }
    let mut said = json!({"role": role, "content": text.concat()});
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    all.push(said);
}

/// The text of a string or of a list of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_a_chat() {
        let body = json!({
            "model": "m", "max_tokens": 9, "stream": true,
            "system": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}],
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "done"},
                    {"type": "text", "text": "and?"},
                ]},
            ],
            "tools": [
                {"name": "f", "description": "d", "input_schema": {"type": "object"}},
                {"type": "web_search_20260101", "name": "web_search"},
            ],
            "tool_choice": {"type": "any"},
            "thinking": {"type": "adaptive"},
        });
        let chat = to_chat(body.to_string().as_bytes()).expect("a chat");
        let roles = chat["messages"].as_array().expect("messages").iter();
        let roles: Vec<&str> = roles
            .filter_map(|message| message["role"].as_str())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(chat["messages"][0]["content"], "be brief");
        assert_eq!(
            chat["messages"][2]["tool_calls"][0]["function"]["arguments"],
            r#"{"a":1}"#
        );
        assert_eq!(chat["tools"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&chat["tool_choice"], &chat["max_tokens"]),
            (&json!("required"), &json!(9))
        );
    }
}
