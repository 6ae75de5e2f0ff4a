//! One item of a response that is being built.

use super::items::PLAIN_REASONING;
use super::tools::ToolName;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The kind of an item.
#[derive(Debug)]
pub(super) enum Kind {
    Reasoning {
        /// Whether the client requested a form that it can send back.
        is_sent_back: bool,
    },
    Message {
        logprobs: Vec<Box<RawValue>>,
    },
    Call {
        call_id: String,
        tool: ToolName,
    },
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) kind: Kind,
    /// Text, or arguments.
    pub(super) text: String,
    pub(super) is_done: bool,
}

impl Item {
    /// A call's input, if its tool takes free text.
    pub(super) fn free_text(&self) -> Option<String> {
        match &self.kind {
            Kind::Call { tool, .. } if tool.is_custom => {
                let arguments = serde_json::from_str::<Value>(&self.text).unwrap_or_default();
                // If the model wrote no JSON, all of it is the input.
                let input = arguments["input"].as_str();
                Some(input.unwrap_or(&self.text).to_owned())
            }
            _ => None,
        }
    }

    /// Its only text part.
    pub(super) fn part(&self) -> String {
        let text = json!(self.text);
        match &self.kind {
            Kind::Message { logprobs } => {
                let logprobs = list(logprobs);
                format!(
                    r#"{{"type":"output_text","text":{text},"annotations":[],"logprobs":{logprobs}}}"#
                )
            }
            _ => format!(r#"{{"type":"reasoning_text","text":{text}}}"#),
        }
    }

    pub(super) fn json(&self, is_whole: bool) -> String {
        let status = if is_whole { "completed" } else { "incomplete" };
        let status = if self.is_done { status } else { "in_progress" };
        let id = json!(self.id);
        let content = if self.is_done {
            self.part()
        } else {
            String::new()
        };
        match &self.kind {
            Kind::Message { .. } => format!(
                r#"{{"type":"message","id":{id},"role":"assistant","status":"{status}","content":[{content}]}}"#
            ),
            Kind::Reasoning { is_sent_back } => {
                let sent_back = self.is_done && *is_sent_back;
                let sent_back = sent_back.then(|| [PLAIN_REASONING, &self.text].concat());
                let sent_back = json!(sent_back);
                format!(
                    r#"{{"type":"reasoning","id":{id},"summary":[],"content":[{content}],"encrypted_content":{sent_back},"status":"{status}"}}"#
                )
            }
            Kind::Call { call_id, tool } => {
                let mut call = json!({
                    "id": self.id, "call_id": call_id, "name": tool.name, "status": status,
                });
                if let Some(namespace) = &tool.namespace {
                    call["namespace"] = json!(namespace);
                }
                let (kind, name) = if tool.is_custom {
                    ("custom_tool_call", "input")
                } else {
                    ("function_call", "arguments")
                };
                call["type"] = kind.into();
                let text = self.free_text().unwrap_or_else(|| self.text.clone());
                call[name] = json!(if self.is_done { text } else { String::new() });
                call.to_string()
            }
        }
    }
}

/// A list of raw JSON values.
pub(super) fn list(all: &[Box<RawValue>]) -> String {
    let all: Vec<&str> = all.iter().map(|each| each.get()).collect();
    format!("[{}]", all.join(","))
}
