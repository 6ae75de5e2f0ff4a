//! The system prompt and the messages of a request as the messages of a chat.

use crate::chat::{Content, Message, refused};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use treadle_wire::error::RequestError;

/// How a block of Claude Code's system prompt begins that differs in every call. With it, no two
/// prompts would have a common prefix, so engines' own servers leave it out too.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

#[derive(Deserialize)]
struct Turn<'a> {
    role: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A block of content, with the fields of all types.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Block<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tool_use_id: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    tool_name: Option<String>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(rename = "type")]
    kind: String,
    media_type: Option<String>,
    data: Option<String>,
    url: Option<String>,
}

/// The messages of a chat for `system` and `messages`.
pub(super) fn messages(
    system: Option<&RawValue>,
    messages: &RawValue,
) -> Result<Vec<Message>, RequestError> {
    let turns: Vec<&RawValue> = serde_json::from_str(messages.get())
        .map_err(|_| refused("messages", "`messages` must be a list"))?;
    if turns.is_empty() {
        let message = "`messages` must have at least one message";
        return Err(refused("messages", message));
    }
    let mut chat = Chat::default();
    if let Some(system) = system {
        chat.instruct(system, "system")?;
    }
    for (at, turn) in turns.into_iter().enumerate() {
        chat.take(turn, &format!("messages[{at}]"))?;
    }
    Ok(chat.messages)
}

#[derive(Default)]
struct Chat {
    messages: Vec<Message>,
}

impl Chat {
    fn take(&mut self, turn: &RawValue, param: &str) -> Result<(), RequestError> {
        let turn: Turn<'_> =
            serde_json::from_str(turn.get()).map_err(|error| misshapen(param, &error))?;
        let content = format!("{param}.content");
        match turn.role.as_str() {
            "assistant" => self.say(turn.content, &content),
            "system" => self.instruct(turn.content, &content),
            "user" => self.ask(turn.content, &content),
            role => {
                let path = format!("{param}.role");
                let message = format!("`{path}` is `{role}`, which is no role");
                Err(refused(&path, &message))
            }
        }
    }

    /// A system message, which stays in its place.
    fn instruct(&mut self, content: &RawValue, param: &str) -> Result<(), RequestError> {
        let is_list = content.get().starts_with('[');
        let mut text = String::new();
        for (at, block) in blocks(content, param)?.into_iter().enumerate() {
            let more = block.text.unwrap_or_default();
            match block.kind.as_str() {
                "text" if is_list && more.starts_with(BILLING_HEADER) => {}
                "text" => text.push_str(&more),
                kind => return Err(unknown(kind, "system", &format!("{param}[{at}]"))),
            }
        }
        if !text.is_empty() {
            self.push("system", Some(Content::Text(text)));
        }
        Ok(())
    }

    /// A message of the model. Its blocks are pieces of one text, as they were generated.
    fn say(&mut self, content: &RawValue, param: &str) -> Result<(), RequestError> {
        let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for (at, block) in blocks(content, param)?.into_iter().enumerate() {
            match block.kind.as_str() {
                "text" => text.push_str(&block.text.unwrap_or_default()),
                "thinking" => reasoning.push_str(&block.thinking.unwrap_or_default()),
                // Only its provider can read it.
                "redacted_thinking" => {}
                "tool_use" => calls.push(call(block, &format!("{param}[{at}]"))?),
                kind => return Err(unknown(kind, "assistant", &format!("{param}[{at}]"))),
            }
        }
        let is_said = !text.is_empty() || calls.is_empty();
        let mut message = Message::new("assistant", is_said.then_some(Content::Text(text)));
        message.tool_calls = calls;
        message.set_reasoning(Some(reasoning).filter(|text| !text.is_empty()));
        self.messages.push(message);
        Ok(())
    }

    /// A message of the user: the results of tools, then the rest with the images of the results.
    fn ask(&mut self, content: &RawValue, param: &str) -> Result<(), RequestError> {
        let (mut images, mut parts) = (Vec::new(), Vec::new());
        let mut has_results = false;
        for (at, block) in blocks(content, param)?.into_iter().enumerate() {
            let path = format!("{param}[{at}]");
            match block.kind.as_str() {
                "text" => {
                    let text = block.text.filter(|text| !text.is_empty());
                    parts.extend(text.map(|text| json!({"type": "text", "text": text})));
                }
                "image" => parts.push(image(&block, &path)?),
                "tool_result" => {
                    has_results = true;
                    self.take_result(block, &path, &mut images)?;
                }
                kind => return Err(unknown(kind, "user", &path)),
            }
        }
        images.append(&mut parts);
        if !images.is_empty() {
            self.push("user", Some(Content::of_parts(images)));
        } else if !has_results {
            self.push("user", Some(Content::Text(String::new())));
        }
        Ok(())
    }

    /// The result of a tool, which is text in a chat; its images are for the user's message.
    fn take_result(
        &mut self,
        result: Block<'_>,
        param: &str,
        images: &mut Vec<Value>,
    ) -> Result<(), RequestError> {
        let id = present(result.tool_use_id, "tool_use_id", param)?;
        let param = format!("{param}.content");
        let within = result.content.map(|content| blocks(content, &param));
        let mut texts = Vec::new();
        for (at, block) in within.transpose()?.into_iter().flatten().enumerate() {
            let path = format!("{param}[{at}]");
            match block.kind.as_str() {
                "text" => texts.extend(block.text),
                "image" => images.push(image(&block, &path)?),
                "tool_reference" => texts.extend(block.tool_name),
                kind => return Err(unknown(kind, "tool", &path)),
            }
        }
        let mut message = Message::new("tool", Some(Content::Text(texts.join("\n"))));
        message.tool_call_id = Some(id);
        self.messages.push(message);
        Ok(())
    }

    fn push(&mut self, role: &'static str, content: Option<Content>) {
        self.messages.push(Message::new(role, content));
    }
}

/// The blocks of content; text is one block.
fn blocks<'a>(content: &'a RawValue, param: &str) -> Result<Vec<Block<'a>>, RequestError> {
    let wrong = |error: serde_json::Error| {
        let message = format!("`{param}` must be text or a list of blocks: {error}");
        refused(param, &message)
    };
    let json = content.get();
    if json.starts_with('"') {
        return Ok(vec![Block {
            kind: "text".into(),
            text: Some(serde_json::from_str(json).map_err(wrong)?),
            ..Block::default()
        }]);
    }
    let all: Vec<&RawValue> = serde_json::from_str(json).map_err(wrong)?;
    let all = all.into_iter().enumerate().map(|(at, block)| {
        serde_json::from_str(block.get())
            .map_err(|error| misshapen(&format!("{param}[{at}]"), &error))
    });
    all.collect()
}

/// A call of a tool. Its arguments stay as they are written, because the engine's cache has them so.
fn call(block: Block<'_>, param: &str) -> Result<Value, RequestError> {
    let id = present(block.id, "id", param)?;
    let name = present(block.name, "name", param)?;
    let input = block.input.map_or("{}", RawValue::get);
    if !input.starts_with('{') {
        let path = format!("{param}.input");
        return Err(refused(&path, &format!("`{path}` must be an object")));
    }
    let function = json!({"name": name, "arguments": input});
    Ok(json!({"id": id, "type": "function", "function": function}))
}

fn image(block: &Block<'_>, param: &str) -> Result<Value, RequestError> {
    let source = present(block.source, "source", param)?;
    let param = format!("{param}.source");
    let source: Source =
        serde_json::from_str(source.get()).map_err(|error| misshapen(&param, &error))?;
    let url = match source.kind.as_str() {
        "url" => present(source.url, "url", &param)?,
        "base64" => {
            let media_type = present(source.media_type, "media_type", &param)?;
            let data = present(source.data, "data", &param)?;
            format!("data:{media_type};base64,{data}")
        }
        kind => {
            let path = format!("{param}.type");
            let message = format!("`{path}` is `{kind}`; send a URL, or the image as base64");
            return Err(refused(&path, &message));
        }
    };
    Ok(json!({"type": "image_url", "image_url": {"url": url}}))
}

fn present<T>(value: Option<T>, field: &str, param: &str) -> Result<T, RequestError> {
    value.ok_or_else(|| {
        let path = format!("{param}.{field}");
        refused(&path, &format!("`{path}` is missing"))
    })
}

fn misshapen(param: &str, error: &serde_json::Error) -> RequestError {
    refused(param, &format!("`{param}` has the wrong shape: {error}"))
}

fn unknown(kind: &str, role: &str, param: &str) -> RequestError {
    let path = format!("{param}.type");
    let message =
        format!("`{path}` is `{kind}`, which no engine knows in a message of role {role}");
    refused(&path, &message)
}
