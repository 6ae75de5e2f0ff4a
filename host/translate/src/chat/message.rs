//! A message of a chat.

use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Message {
    pub(crate) role: &'static str,
    pub(crate) content: Option<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<Value>,
    /// SGLang's and llama.cpp's name of it, and vLLM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Value>),
}

impl Message {
    /// A message with nothing but this content.
    pub(crate) fn new(role: &'static str, content: Option<Content>) -> Self {
        Self {
            role,
            content,
            ..Self::default()
        }
    }

    /// Sets the reasoning, under both of its names.
    pub(crate) fn set_reasoning(&mut self, reasoning: Option<String>) {
        self.reasoning.clone_from(&reasoning);
        self.reasoning_content = reasoning;
    }
}

impl Content {
    /// These parts, or the text of the only one.
    pub(crate) fn of_parts(mut parts: Vec<Value>) -> Self {
        if let [Value::Object(part)] = parts.as_mut_slice()
            && let Some(Value::String(text)) = part.remove("text")
        {
            return Self::Text(text);
        }
        Self::Parts(parts)
    }

    fn has_text_only(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Parts(parts) => parts.iter().all(|part| part["type"] == "text"),
        }
    }

    /// All of its text, with a line break between parts.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts = parts.iter().filter_map(|part| part["text"].as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Converts the content to plain text, if it only has text.
    pub(crate) fn plain(self) -> Self {
        if self.has_text_only() {
            Self::Text(self.text())
        } else {
            self
        }
    }
}
