//! Items of a request's `input` as the messages of a chat.

use super::tools::chat_name;
use crate::chat::{Content, Message, refused};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use treadle_wire::error::RequestError;

/// Prefix of reasoning in `encrypted_content`, which is not encrypted, since it belongs to the
/// client.
pub(super) const PLAIN_REASONING: &str = "plain:";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    call_id: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    summary: Option<Vec<Text>>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Text {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<String>,
    detail: Option<String>,
    file_data: Option<String>,
    filename: Option<String>,
    #[serde(borrow)]
    input_audio: Option<&'a RawValue>,
}

/// The messages of a request: its instructions, and its items.
pub(super) fn messages(
    instructions: Option<&RawValue>,
    items: &str,
) -> Result<Vec<Message>, RequestError> {
    let mut chat = Chat::default();
    if let Some(instructions) = instructions {
        let wrong = |_| refused("instructions", "`instructions` must be text");
        let text: String = serde_json::from_str(instructions.get()).map_err(wrong)?;
        chat.say_in_front(&text);
    }
    let list = format!("[{items}]");
    let items: Vec<&RawValue> = serde_json::from_str(&list)
        .map_err(|error| refused("input", &format!("`input` is no list of items: {error}")))?;
    for (at, item) in items.into_iter().enumerate() {
        chat.take(item, &format!("input[{at}]"))?;
    }
    if chat.messages.is_empty() {
        return Err(refused("input", "`input` must have at least one item"));
    }
    Ok(chat.messages)
}

#[derive(Default)]
struct Chat {
    messages: Vec<Message>,
    /// Reasoning of the next message.
    reasoning: Option<String>,
}

impl Chat {
    fn take(&mut self, item: &RawValue, param: &str) -> Result<(), RequestError> {
        let item: Item<'_> = serde_json::from_str(item.get()).map_err(|error| {
            let message = format!("`{param}` has the wrong shape: {error}");
            refused(param, &message)
        })?;
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.take_message(&item, param),
            "function_call" | "custom_tool_call" => self.take_call(item, param),
            "function_call_output" | "custom_tool_call_output" => self.take_output(item, param),
            "reasoning" => {
                self.reasoning = reasoning_of(&item).or(self.reasoning.take());
                Ok(())
            }
            // Calls of a provider's own tools are not part of engines' prompts.
            kind if kind.ends_with("_call") || kind.ends_with("_call_output") => Ok(()),
            "item_reference" => {
                let message = format!("`{param}` refers to an item that is not held; send it");
                Err(refused(param, &message))
            }
            kind => {
                let message = format!("`{param}` has the type `{kind}`, which no engine knows");
                Err(refused(param, &message))
            }
        }
    }

    fn take_message(&mut self, item: &Item<'_>, param: &str) -> Result<(), RequestError> {
        let content = content(item.content, &format!("{param}.content"))?;
        let role = match item.role.as_deref() {
            Some("assistant") => {
                self.say(content);
                return Ok(());
            }
            Some("system" | "developer") => {
                if self.is_at_front() {
                    self.say_in_front(&content.text());
                    return Ok(());
                }
                "system"
            }
            Some("user") | None => "user",
            Some(role) => {
                let message = format!("`{param}.role` is `{role}`, which is no role");
                return Err(refused(&format!("{param}.role"), &message));
            }
        };
        self.reasoning = None;
        self.push(role, Some(content));
        Ok(())
    }

    /// Adds text to the only system message, as some models' templates accept no second one.
    fn say_in_front(&mut self, text: &str) {
        match self.messages.first_mut().and_then(|m| m.content.as_mut()) {
            Some(Content::Text(so_far)) => {
                so_far.push_str("\n\n");
                so_far.push_str(text);
            }
            _ => self.push("system", Some(Content::Text(text.to_owned()))),
        }
    }

    fn is_at_front(&self) -> bool {
        self.messages.len() < 2 && self.messages.iter().all(|message| message.role == "system")
    }

    /// Adds text of the model, to which its following tool calls are attached.
    fn say(&mut self, content: Content) {
        let reasoning = self.reasoning.take();
        self.push("assistant", Some(content.plain()));
        if let Some(message) = self.messages.last_mut() {
            message.set_reasoning(reasoning);
        }
    }

    fn take_call(&mut self, item: Item<'_>, param: &str) -> Result<(), RequestError> {
        let missing = |field: &str| {
            let path = format!("{param}.{field}");
            refused(&path, &format!("`{path}` is missing"))
        };
        let name = item.name.ok_or_else(|| missing("name"))?;
        let id = item.call_id.ok_or_else(|| missing("call_id"))?;
        let arguments = match (item.arguments, item.input) {
            (Some(arguments), _) => arguments,
            (None, Some(input)) => json!({"input": input}).to_string(),
            (None, None) => return Err(missing("arguments")),
        };
        let name = chat_name(item.namespace.as_deref(), &name);
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        let reasoning = self.reasoning.take();
        let goes_on = self.messages.last().is_some_and(|m| m.role == "assistant");
        if !goes_on || reasoning.is_some() {
            self.push("assistant", None);
        }
        if let Some(message) = self.messages.last_mut() {
            if reasoning.is_some() {
                message.set_reasoning(reasoning);
            }
            message.tool_calls.push(call);
        }
        Ok(())
    }

    fn take_output(&mut self, item: Item<'_>, param: &str) -> Result<(), RequestError> {
        let path = format!("{param}.call_id");
        let id = item
            .call_id
            .ok_or_else(|| refused(&path, &format!("`{path}` is missing")))?;
        let output = content(item.output, &format!("{param}.output"))?;
        self.push("tool", Some(output.plain()));
        if let Some(message) = self.messages.last_mut() {
            message.tool_call_id = Some(id);
        }
        Ok(())
    }

    fn push(&mut self, role: &'static str, content: Option<Content>) {
        self.messages.push(Message::new(role, content));
    }
}

/// The readable reasoning of an item.
fn reasoning_of(item: &Item<'_>) -> Option<String> {
    let parts = item.content.map(RawValue::get);
    let parts = parts.and_then(|parts| serde_json::from_str::<Vec<Text>>(parts).ok());
    let joined = |parts: &[Text]| {
        let texts = parts.iter().filter_map(|part| part.text.as_deref());
        Some(texts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
    };
    let plain = item.encrypted_content.as_deref();
    let plain = plain.and_then(|text| text.strip_prefix(PLAIN_REASONING));
    parts
        .as_deref()
        .and_then(joined)
        .or_else(|| plain.map(str::to_owned))
        .or_else(|| item.summary.as_deref().and_then(joined))
}

/// Text, or a list of parts.
fn content(content: Option<&RawValue>, param: &str) -> Result<Content, RequestError> {
    let content = content.map_or("\"\"", RawValue::get);
    let wrong = |error: serde_json::Error| {
        let message = format!("`{param}` must be text or a list of parts: {error}");
        refused(param, &message)
    };
    if !content.starts_with('[') {
        return serde_json::from_str(content)
            .map(Content::Text)
            .map_err(wrong);
    }
    let parts: Vec<Part<'_>> = serde_json::from_str(content).map_err(wrong)?;
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(at, part)| chat_part(part, &format!("{param}[{at}]")));
    let parts = parts.collect::<Result<Vec<Value>, RequestError>>()?;
    Ok(Content::of_parts(parts))
}

fn chat_part(part: Part<'_>, param: &str) -> Result<Value, RequestError> {
    let missing = |field: &str| {
        let path = format!("{param}.{field}");
        let message = format!("`{path}` is missing: files that a provider holds are not there");
        refused(&path, &message)
    };
    match part.kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "refusal" => {
            let text = part.text.or(part.refusal).unwrap_or_default();
            Ok(json!({"type": "text", "text": text}))
        }
        "input_image" => {
            let mut image = json!({"url": part.image_url.ok_or_else(|| missing("image_url"))?});
            if let Some(detail) = part.detail {
                image["detail"] = detail.into();
            }
            Ok(json!({"type": "image_url", "image_url": image}))
        }
        "input_file" => {
            let data = part.file_data.ok_or_else(|| missing("file_data"))?;
            let file = json!({"file_data": data, "filename": part.filename});
            Ok(json!({"type": "file", "file": file}))
        }
        "input_audio" => {
            let audio = part.input_audio.ok_or_else(|| missing("input_audio"))?;
            let audio: Value = serde_json::from_str(audio.get()).unwrap_or_default();
            Ok(json!({"type": "input_audio", "input_audio": audio}))
        }
        kind => {
            let message = format!("`{param}.type` is `{kind}`, which no engine knows");
            Err(refused(param, &message))
        }
    }
}
