//! Messages as they are compared: what a client sends back against what it was answered.

use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;
use xxhash_rust::xxh3::xxh3_64;

/// Names under which engines and clients have an answer's thinking.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// A message without its text: hashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Mark {
    /// All but the thinking.
    said: u64,
    /// The thinking, if it has any.
    thought: Option<u64>,
}

impl Mark {
    pub(super) fn of(message: &Value) -> Self {
        let Some(fields) = message.as_object() else {
            return Self {
                said: hash_of(message),
                thought: None,
            };
        };
        let thoughts = THOUGHTS
            .iter()
            .filter_map(|name| fields.get(*name)?.as_str());
        let mut thoughts = thoughts.map(str::trim).filter(|text| !text.is_empty());
        let thought = thoughts.next().map(|text| xxh3_64(text.as_bytes()));
        Self {
            said: hash_of(&Value::Object(said(fields))),
            thought,
        }
    }

    /// Whether a client that got `self` may send `again` for it: without its thinking, or with that.
    pub(super) fn is_sent_as(self, again: Self) -> bool {
        self.said == again.said && (again.thought.is_none() || again.thought == self.thought)
    }

    /// Whether they are the same but for the thinking.
    pub(super) fn says(self, other: Self) -> bool {
        self.said == other.said
    }
}

/// A message without its thinking and without what stands for nothing.
fn said(fields: &Map<String, Value>) -> Map<String, Value> {
    let is_answer = fields.get("role").is_some_and(|role| role == "assistant");
    let own = fields
        .iter()
        .filter(|(name, _)| !THOUGHTS.contains(&name.as_str()));
    let own = own.map(|(name, value)| {
        let value = match name.as_str() {
            "content" => text_of(value, is_answer).map_or_else(|| value.clone(), Value::from),
            "tool_calls" => calls_of(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    own.filter(|(_, value)| !is_empty(value)).collect()
}

/// The text of a content that has nothing else. White space around an answer does not count.
fn text_of(content: &Value, is_answer: bool) -> Option<String> {
    let text = match content {
        Value::String(text) => Cow::Borrowed(&**text),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.get("text")?.as_str());
            texts.collect::<Option<String>>()?.into()
        }
        _ => return None,
    };
    Some(if is_answer {
        text.trim().to_owned()
    } else {
        text.into_owned()
    })
}

/// Calls with their arguments as values. Those of streams have an index in addition.
fn calls_of(calls: &Value) -> Value {
    let calls = calls.as_array().into_iter().flatten().map(|call| {
        let mut call = call.clone();
        if let Some(fields) = call.as_object_mut() {
            fields.remove("index");
        }
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(Ok(parsed)) = arguments.as_str().map(serde_json::from_str)
        {
            *arguments = parsed;
        }
        call
    });
    calls.collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// A hash that is the same whatever the order of fields.
pub(super) fn hash_of(value: &Value) -> u64 {
    let mut text = String::new();
    write(value, &mut text);
    xxh3_64(text.as_bytes())
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in fields {
                let _ = write!(out, "{}:", Value::from(&**name));
                write(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for value in list {
                write(value, out);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// The only answer of a chat completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AnswerMessage {
    pub(super) mark: Mark,
    /// It ended by itself, and not because of a limit or of a text to stop at.
    pub(super) is_ended: bool,
}

impl AnswerMessage {
    /// `None` if the body is no chat completion with one answer.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let [choice] = body["choices"].as_array()?.as_slice() else {
            return None;
        };
        let end = choice["finish_reason"].as_str()?;
        // vLLM and SGLang name what ended the answer: a text, or the id of a stop token.
        let is_text = |name: &str| choice[name].is_string();
        let is_ended = matches!(end, "stop" | "tool_calls");
        Some(Self {
            mark: Mark::of(choice.get("message")?),
            is_ended: is_ended && !is_text("stop_reason") && !is_text("matched_stop"),
        })
    }
}
