//! OpenAI's Responses API, `/v1/responses`: parsing requests, translating them to chat completions,
//! and translating chat completions to responses.
//!
//! Engines store no conversations for treadle: `previous_response_id` is replaced by the items of
//! that conversation, and tools that a provider would run itself, such as `web_search`, are
//! removed.

mod answer;
mod chat;
mod events;
mod item;
mod items;
mod tools;

pub use answer::{AnswerHead, ResponseBuilder};
pub use chat::ChatForm;

use crate::chat::{Fields, read_fields, refused};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use treadle_wire::error::RequestError;

/// Fields that need a provider's own accounts and storage.
const REFUSED: [(&str, &str); 3] = [
    (
        "background",
        "background responses are not supported; leave `background` out, and use `stream`",
    ),
    (
        "conversation",
        "conversations are not stored; leave `conversation` out, and use `previous_response_id` or \
         send the whole `input`",
    ),
    (
        "prompt",
        "prompt templates are not stored; leave `prompt` out, and send `instructions` and `input`",
    ),
];

/// A request to `/v1/responses`.
#[derive(Clone, Debug)]
pub struct ResponsesRequest {
    fields: Fields,
}

impl ResponsesRequest {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// `invalid_json` if it is not an object, `invalid_field` for unsupported features.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        read_fields(body, &REFUSED).map(|fields| Self { fields })
    }

    /// Whether the answer may be continued by its id: unless `store` is `false`.
    pub fn stores(&self) -> bool {
        self.text_of("store") != Some("false")
    }

    /// The answer that this request continues.
    ///
    /// # Errors
    ///
    /// `invalid_field` if it is not a string.
    pub fn previous(&self) -> Result<Option<String>, RequestError> {
        let name = "previous_response_id";
        let Some(id) = self.fields.get(name) else {
            return Ok(None);
        };
        serde_json::from_str(id.get())
            .map(Some)
            .map_err(|_| refused(name, "`previous_response_id` must be a string"))
    }

    /// The items of `input` as in a list, without brackets. Text is one message.
    ///
    /// # Errors
    ///
    /// `invalid_field` if it is neither text nor a list.
    pub fn items(&self) -> Result<String, RequestError> {
        let input = self.text_of("input").unwrap_or("[]");
        if input.starts_with('"') {
            let message = r#"{"type":"message","role":"user","content":"#;
            return Ok([message, input, "}"].concat());
        }
        let list = input
            .strip_prefix('[')
            .and_then(|list| list.strip_suffix(']'));
        let list = list.ok_or_else(|| refused("input", "`input` must be text or a list"))?;
        Ok(list.trim().to_owned())
    }

    /// The body for engines, with `history`, the items of the conversation that it continues, in
    /// pieces as returned by [`Self::items`]; `None` if it is unchanged.
    ///
    /// # Errors
    ///
    /// `invalid_field` if a field that has to be changed has the wrong shape.
    pub fn for_engine(&self, history: Option<&[&str]>) -> Result<Option<Vec<u8>>, RequestError> {
        let mut fields = self.fields.clone();
        let mut is_changed = false;
        fields.remove("previous_response_id");
        if let Some(history) = history {
            let own = self.items()?;
            let pieces = history.iter().copied().chain([own.as_str()]);
            let pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty()).collect();
            fields.insert("input".into(), raw(format!("[{}]", pieces.join(",")))?);
            is_changed = true;
        }
        if self.stores() {
            fields.insert("store".into(), raw("false".into())?);
            is_changed = true;
        }
        if let Some(tools) = self.fields.get("tools") {
            let kept = tools::without_hosted(tools)?;
            if let Some(kept) = kept {
                fields.insert("tools".into(), raw(kept)?);
                is_changed = true;
            }
        }
        if !is_changed {
            return Ok(None);
        }
        serde_json::to_vec(&fields).map(Some).map_err(|error| {
            let message = format!("the body can't be written again: {error}");
            refused("input", &message)
        })
    }

    /// Whether it offers the model any tools.
    pub fn has_tools(&self) -> bool {
        self.text_of("tools").is_some_and(|tools| tools != "[]")
    }

    fn text_of(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.get())
    }
}

/// The parts of a response that are stored so that it can be continued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answered {
    /// The id by which it is continued.
    pub id: String,
    /// Its items, in the form of [`ResponsesRequest::items`].
    pub items: String,
}

impl Answered {
    /// Reads a whole response; `None` if it can't be continued.
    pub fn of_body(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Response<'a> {
            id: String,
            status: Cow<'a, str>,
            #[serde(borrow)]
            output: Vec<&'a RawValue>,
        }
        let response: Response<'_> = serde_json::from_slice(body).ok()?;
        if !matches!(&*response.status, "completed" | "incomplete") {
            return None;
        }
        let items: Vec<&str> = response.output.iter().map(|item| item.get()).collect();
        Some(Self {
            id: response.id,
            items: items.join(","),
        })
    }

    /// Reads an event of a stream; `None` for all but the last one of a complete response.
    pub fn of_event(event: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(rename = "type")]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            response: Option<&'a RawValue>,
        }
        // Deltas are many and short, so they are skipped without parsing.
        let ends = |kind: &str| memchr::memmem::find(event, kind.as_bytes()).is_some();
        if !ends("response.completed") && !ends("response.incomplete") {
            return None;
        }
        let event: Event<'_> = serde_json::from_slice(event).ok()?;
        let is_last = matches!(&*event.kind, "response.completed" | "response.incomplete");
        Self::of_body(event.response.filter(|_| is_last)?.get().as_bytes())
    }
}

fn raw(json: String) -> Result<Box<RawValue>, RequestError> {
    RawValue::from_string(json).map_err(|error| {
        let message = format!("`input` can't be put behind what it continues: {error}");
        refused("input", &message)
    })
}

#[cfg(test)]
mod tests;
