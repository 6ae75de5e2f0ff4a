//! Bodies of requests that need no placement: their fields are checked like those of steps.

use super::body::{check_outermost, text_of};
use super::engine_fields::{ForeignFields, passes};
use super::fields;
use super::form::look_at;
use super::media::MediaTargets;
use super::places::Place;
use crate::error::{ErrorCode, RequestError};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A request that any engine with its model can answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forwarded {
    /// `/tokenize`.
    Tokenize,
    /// `/detokenize`.
    Detokenize,
    /// `/v1/messages/count_tokens`.
    CountTokens,
}

/// The parts of its body that decide whether and where it is sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ForwardedHead {
    /// The requested model.
    pub model: Option<String>,
    /// Fields that are only sent to engines if the operator allows them.
    pub foreign: ForeignFields,
    /// URLs that its engine would fetch.
    pub media: MediaTargets,
}

/// Fields of vLLM's, SGLang's and llama.cpp's `/tokenize`.
const TOKENIZE: &[&str] = &[
    "add_generation_prompt",
    "add_special",
    "add_special_tokens",
    "chat_template_kwargs",
    "content",
    "continue_final_message",
    "media_io_kwargs",
    "messages",
    "mm_processor_kwargs",
    "parse_special",
    "prompt",
    "return_token_strs",
    "tools",
    "with_pieces",
];
const DETOKENIZE: &[&str] = &["skip_special_tokens", "tokens"];
/// Other fields of `/v1/messages`, which clients also send here.
const COUNT_TOKENS: &[&str] = &["max_tokens", "messages", "stream", "system", "tools"];

impl Forwarded {
    fn takes(self, name: &str) -> bool {
        name == "model"
            || match self {
                Self::Tokenize => TOKENIZE.contains(&name),
                Self::Detokenize => DETOKENIZE.contains(&name),
                Self::CountTokens => COUNT_TOKENS.contains(&name) || passes(name),
            }
    }
}

impl ForwardedHead {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// `invalid_json`, `body_not_object`, `invalid_field` if a name occurs twice or the model is
    /// not a string.
    pub fn parse(kind: Forwarded, body: &[u8]) -> Result<Self, RequestError> {
        let text = text_of(body)?;
        check_outermost(text)?;
        let form = look_at(text, Place::Body)?;
        let all: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(text).map_err(|error| RequestError {
                code: ErrorCode::InvalidJson,
                param: None,
                message: format!("the body is not JSON: {error}"),
            })?;
        let mut foreign = ForeignFields::default();
        for name in all.keys().filter(|name| !kind.takes(name)) {
            foreign.add("", name);
        }
        foreign.append(form.foreign);
        let model = all.get("model").filter(|raw| raw.get() != "null");
        Ok(Self {
            model: model.map(|raw| fields::text(raw, "model")).transpose()?,
            foreign,
            media: form.media,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: Forwarded, body: &str) -> Option<String> {
        let head = ForwardedHead::parse(kind, body.as_bytes());
        let checked = head.and_then(|head| head.foreign.check(&[], true));
        checked.err().map(|error| error.param.unwrap_or_default())
    }

    #[test]
    fn only_listed_fields_are_forwarded() {
        use Forwarded::{CountTokens, Detokenize, Tokenize};
        for (kind, body) in [
            (
                Tokenize,
                r#"{"model":"m","prompt":"a","add_special_tokens":false}"#,
            ),
            (Tokenize, r#"{"content":"a","with_pieces":true}"#),
            (
                Tokenize,
                r#"{"messages":[],"tools":[],"chat_template_kwargs":{"enable_thinking":true}}"#,
            ),
            (Detokenize, r#"{"model":null,"tokens":[1]}"#),
            (
                CountTokens,
                r#"{"model":"m","messages":[],"system":"s","thinking":{"type":"enabled"}}"#,
            ),
        ] {
            assert_eq!(refused(kind, body), None, "{body}");
        }
        for (kind, body, param) in [
            (
                Tokenize,
                r#"{"prompt":"a","chat_template":"x"}"#,
                "chat_template",
            ),
            (
                Tokenize,
                r#"{"messages":[],"chat_template_kwargs":{"chat_template":"x"}}"#,
                "chat_template_kwargs.chat_template",
            ),
            (Tokenize, r#"{"prompt":"a","prompt":"b"}"#, "prompt"),
            (Detokenize, r#"{"tokens":[1],"prompt":"x"}"#, "prompt"),
            (
                CountTokens,
                r#"{"messages":[],"kv_transfer_params":{}}"#,
                "kv_transfer_params",
            ),
            (CountTokens, r#"{"messages":[],"model":5}"#, "model"),
        ] {
            assert_eq!(refused(kind, body).as_deref(), Some(param), "{body}");
        }
    }
}
