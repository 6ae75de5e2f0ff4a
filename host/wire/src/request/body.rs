//! The one pass over a request's body.

use super::engine_fields::{ForeignFields, OwnedField, OwnedKind, passes};
use super::fields::invalid;
use super::form::look_at;
use super::media::MediaTargets;
use super::messages::{MessagesDraft, MessagesSeed};
use super::places::Place;
use super::prompt::{Accepts, PromptDraft, PromptSeed};
use super::value_hash::{ValueHash, mix};
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, RequestError};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::fmt;

/// Most characters of a parser's message that are shown.
const COMPLAINT_CHARS_MAX: usize = 300;

/// The result of the pass: digests of prompts, and small fields as raw text.
#[derive(Default)]
pub(super) struct Draft<'a> {
    pub(super) model: Option<&'a RawValue>,
    pub(super) stream: Option<&'a RawValue>,
    pub(super) stream_options: Option<&'a RawValue>,
    pub(super) max_tokens: Option<&'a RawValue>,
    pub(super) max_completion_tokens: Option<&'a RawValue>,
    /// Of `/v1/responses`.
    pub(super) max_output_tokens: Option<&'a RawValue>,
    pub(super) sampling_params: Option<&'a RawValue>,
    pub(super) program_id: Option<&'a RawValue>,
    pub(super) session_id: Option<&'a RawValue>,
    pub(super) parent_program_id: Option<&'a RawValue>,
    pub(super) agent_hint: Option<&'a RawValue>,
    pub(super) extra_body: Option<&'a RawValue>,
    pub(super) vllm_xargs: Option<&'a RawValue>,
    pub(super) rid: Option<&'a RawValue>,
    pub(super) request_id: Option<&'a RawValue>,
    pub(super) prompt_cache_key: Option<&'a RawValue>,
    /// `messages`, or `input` of `/v1/responses`.
    pub(super) messages: Option<MessagesDraft>,
    /// `prompt`, `token_ids`, or `input_ids`.
    pub(super) prompt: Option<PromptDraft>,
    /// `text`.
    pub(super) text: Option<PromptDraft>,
    /// `system`, or `instructions`.
    pub(super) system: Preamble,
    pub(super) tools: Preamble,
    /// A priority that is not `null`.
    pub(super) has_priority: bool,
    /// Fields that treadle sets itself if tenants share engines.
    pub(super) owned: Vec<OwnedField>,
    /// Fields that may not be sent to engines.
    pub(super) foreign: ForeignFields,
    /// URLs that its engine would fetch.
    pub(super) media: MediaTargets,
}

/// A part of a chat prompt that precedes its messages.
#[derive(Clone, Copy, Default)]
pub(super) struct Preamble {
    pub(super) hash: Option<u64>,
    pub(super) bytes: u64,
}

impl Preamble {
    /// The hash of a prompt's prefix that follows this part.
    pub(super) fn before(self, hash: u64) -> u64 {
        self.hash.map_or(hash, |preamble| mix(preamble, hash))
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Model,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    SamplingParams,
    ProgramId,
    SessionId,
    ParentProgramId,
    AgentHint,
    ExtraBody,
    VllmXargs,
    Rid,
    RequestId,
    Priority,
    CacheSalt,
    ExtraKey,
    Messages,
    Input,
    System,
    Instructions,
    PreviousResponseId,
    PromptCacheKey,
    Tools,
    Prompt,
    TokenIds,
    InputIds,
    Text,
    #[serde(other)]
    Other,
}

/// A field's name as it stands in the body.
struct Name<'a> {
    field: Field,
    /// Absent if it is written with escapes.
    text: Option<&'a str>,
}

/// Reads a name; records those that may not be sent to engines.
struct NameSeed<'f>(&'f mut ForeignFields);

impl NameSeed<'_> {
    fn name<'a, E: Error>(self, name: &str, text: Option<&'a str>) -> Result<Name<'a>, E> {
        let field = Field::deserialize(StrDeserializer::<E>::new(name))?;
        let is_foreign = match field {
            Field::Other => !passes(name),
            // It could not be cut out.
            Field::Priority | Field::CacheSalt | Field::ExtraKey => text.is_none(),
            _ => false,
        };
        if is_foreign {
            self.0.add("", name);
        }
        Ok(Name { field, text })
    }
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Name<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name<'de>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for NameSeed<'_> {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        self.name(name, Some(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        self.name(name, None)
    }
}

impl<'a> Draft<'a> {
    /// Reads a whole body. It must be one JSON object in UTF-8.
    pub(super) fn read(endpoint: Endpoint, body: &'a [u8]) -> Result<Self, RequestError> {
        let text = text_of(body)?;
        check_outermost(text)?;
        let form = look_at(text, Place::Body)?;
        let at_field = Cell::new("");
        let at_message = Cell::new(None);
        let reader = Reader {
            endpoint,
            text,
            at_field: &at_field,
            at_message: &at_message,
        };
        let mut parser = serde_json::Deserializer::from_str(text);
        let read = parser.deserialize_map(reader);
        let mut body = read
            .and_then(|body| parser.end().map(|()| body))
            .map_err(|error| fault(&error, at_field.get(), at_message.get()))?;
        body.foreign.append(form.foreign);
        body.media = form.media;
        Ok(body)
    }
}

/// The body as text.
pub(super) fn text_of(body: &[u8]) -> Result<&str, RequestError> {
    std::str::from_utf8(body).map_err(|error| RequestError {
        code: ErrorCode::InvalidJson,
        param: None,
        message: format!("the body is not UTF-8 from byte {} on", error.valid_up_to()),
    })
}

/// Distinguishes a list or a scalar from what is not JSON at all.
pub(super) fn check_outermost(text: &str) -> Result<(), RequestError> {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r']);
    if trimmed.starts_with('{') {
        return Ok(());
    }
    let (code, message) = if trimmed.is_empty() {
        (
            ErrorCode::InvalidJson,
            "the body is empty; send a JSON object".to_owned(),
        )
    } else {
        match serde_json::from_str::<IgnoredAny>(trimmed) {
            Ok(_) => (
                ErrorCode::BodyNotObject,
                "the body must be a JSON object, not a list or a single value".to_owned(),
            ),
            Err(error) => (
                ErrorCode::InvalidJson,
                format!("the body is not JSON: {error}"),
            ),
        }
    };
    Err(RequestError {
        code,
        param: None,
        message,
    })
}

/// Malformed JSON, or a large field of the wrong shape.
fn fault(error: &serde_json::Error, field: &str, message: Option<usize>) -> RequestError {
    let complaint: String = error
        .to_string()
        .chars()
        .take(COMPLAINT_CHARS_MAX)
        .collect();
    if !error.is_data() {
        return RequestError {
            code: ErrorCode::InvalidJson,
            param: None,
            message: format!("the body is not JSON: {complaint}"),
        };
    }
    let param = match message {
        Some(index) => format!("{field}[{index}]"),
        None => field.to_owned(),
    };
    let mut fault = invalid(&param, "");
    fault.message = format!("`{param}` has the wrong shape: {complaint}");
    fault
}

struct Reader<'p, 'a> {
    endpoint: Endpoint,
    text: &'a str,
    at_field: &'p Cell<&'static str>,
    at_message: &'p Cell<Option<usize>>,
}

impl<'de> Visitor<'de> for Reader<'_, 'de> {
    type Value = Draft<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Draft<'de>, A::Error> {
        let mut body = Draft::default();
        while let Some(name) = map.next_key_seed(NameSeed(&mut body.foreign))? {
            match name.field {
                Field::Model => body.model = map.next_value()?,
                Field::Stream => body.stream = map.next_value()?,
                Field::StreamOptions => body.stream_options = map.next_value()?,
                Field::MaxTokens => body.max_tokens = map.next_value()?,
                Field::MaxCompletionTokens => body.max_completion_tokens = map.next_value()?,
                Field::MaxOutputTokens => body.max_output_tokens = map.next_value()?,
                Field::PromptCacheKey => body.prompt_cache_key = map.next_value()?,
                Field::SamplingParams => body.sampling_params = map.next_value()?,
                Field::ProgramId => body.program_id = map.next_value()?,
                Field::SessionId => body.session_id = map.next_value()?,
                Field::ParentProgramId => body.parent_program_id = map.next_value()?,
                Field::AgentHint => body.agent_hint = map.next_value()?,
                Field::ExtraBody => body.extra_body = map.next_value()?,
                Field::VllmXargs => body.vllm_xargs = map.next_value()?,
                Field::Rid => body.rid = map.next_value()?,
                Field::RequestId => body.request_id = map.next_value()?,
                Field::Priority | Field::CacheSalt | Field::ExtraKey => {
                    self.read_owned(&name, &mut body, &mut map)?;
                }
                prompt => self.read_prompt_part(prompt, &mut body, &mut map)?,
            }
        }
        Ok(body)
    }
}

impl<'a> Reader<'_, 'a> {
    /// Reads a field that treadle sets itself, and records its position.
    fn read_owned<A: MapAccess<'a>>(
        &self,
        name: &Name<'a>,
        body: &mut Draft<'a>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let value = map.next_value::<&'a RawValue>()?.get();
        let kind = match name.field {
            Field::Priority => OwnedKind::Priority,
            _ => OwnedKind::Salt,
        };
        if kind == OwnedKind::Priority {
            body.has_priority = value != "null";
        }
        let begin_of = |part: &str| part.as_ptr().addr() - self.text.as_ptr().addr();
        if let Some(text) = name.text {
            // The quote before the name belongs to it.
            let span = begin_of(text) - 1..begin_of(value) + value.len();
            body.owned.push(OwnedField { kind, span });
        }
        Ok(())
    }

    /// Reads a field that is part of the endpoint's prompt, and skips every other.
    fn read_prompt_part<A: MapAccess<'a>>(
        &self,
        field: Field,
        body: &mut Draft<'a>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        use Endpoint::{
            ChatCompletions, Completions, Messages, Responses, SglangGenerate, VllmGenerate,
        };
        match (self.endpoint, field) {
            (ChatCompletions | Messages, Field::Messages) => {
                self.at_field.set("messages");
                let at = self.at_message;
                body.messages = map.next_value_seed(MessagesSeed {
                    at,
                    may_be_text: false,
                })?;
            }
            (Responses, Field::Input) => {
                self.at_field.set("input");
                let at = self.at_message;
                body.messages = map.next_value_seed(MessagesSeed {
                    at,
                    may_be_text: true,
                })?;
            }
            (ChatCompletions | Messages | Responses, Field::Tools) => body.tools = preamble(map)?,
            (Messages, Field::System) | (Responses, Field::Instructions) => {
                body.system = preamble(map)?;
            }
            (Completions, Field::Prompt) => {
                self.at_field.set("prompt");
                body.prompt = map.next_value_seed(PromptSeed(Accepts::TextOrIds))?;
            }
            (VllmGenerate, Field::TokenIds) => {
                self.at_field.set("token_ids");
                body.prompt = map.next_value_seed(PromptSeed(Accepts::Ids))?;
            }
            (SglangGenerate, Field::InputIds) => {
                self.at_field.set("input_ids");
                body.prompt = map.next_value_seed(PromptSeed(Accepts::Ids))?;
            }
            (SglangGenerate, Field::Text) => {
                self.at_field.set("text");
                body.text = map.next_value_seed(PromptSeed(Accepts::Text))?;
            }
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn preamble<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Preamble, A::Error> {
    let mut bytes = 0;
    let hash = map.next_value_seed(ValueHash::of_content(&mut bytes))?;
    Ok(Preamble { hash, bytes })
}
