//! The request that asks for tokens.

use super::place::places;
use super::read::{Hidden, TokenReader};
use crate::{Endpoint, insert_fields, remove_fields};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use treadle_model::EngineKind;

/// A request that asks its engine for tokens.
#[derive(Debug)]
pub struct TokenRequest {
    /// Its body.
    pub body: Vec<u8>,
    /// Reads the answer.
    pub reader: TokenReader,
    /// The client asked for a stream and the engine can't give tokens in one: the body asks for the
    /// whole answer.
    pub is_played: bool,
}

/// Why an answer's tokens can't be had.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum NotCaptured {
    /// The path has none.
    #[error("the tokens of {0} are not captured; use /v1/chat/completions")]
    Endpoint(&'static str),
    /// The kind of engine has none.
    #[error("engines of kind {0} report no token ids")]
    Engine(&'static str),
    /// A field of the request hides or changes them.
    #[error("the tokens of requests with `{0}` are not captured")]
    Field(&'static str),
    /// The body is no JSON object.
    #[error("the body is not a JSON object")]
    Malformed,
}

/// Fields of a request that concern tokens.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    return_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow)]
    include_reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    echo: Option<&'a RawValue>,
    #[serde(borrow)]
    suffix: Option<&'a RawValue>,
    #[serde(borrow)]
    use_beam_search: Option<&'a RawValue>,
    #[serde(borrow)]
    best_of: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl Fields<'_> {
    /// A field that hides tokens, or answers others than those that were sampled.
    fn obstacle(&self) -> Option<&'static str> {
        let is = |field: Option<&RawValue>, value: &str| field.is_some_and(|f| f.get() == value);
        let isnt = |field: Option<&RawValue>, value: &str| field.is_some_and(|f| f.get() != value);
        let obstacles = [
            ("include_reasoning", is(self.include_reasoning, "false")),
            ("echo", is(self.echo, "true")),
            ("use_beam_search", is(self.use_beam_search, "true")),
            ("suffix", self.suffix.is_some()),
            ("best_of", isnt(self.best_of, "1")),
        ];
        let found = obstacles.into_iter().find(|(_, is_set)| *is_set);
        found.map(|(name, _)| name)
    }
}

impl TokenRequest {
    /// The request that also asks for tokens.
    ///
    /// # Errors
    /// [`NotCaptured`] if they can't be had.
    pub fn ask(
        endpoint: Endpoint,
        engine: EngineKind,
        body: &[u8],
        streams: bool,
    ) -> Result<Self, NotCaptured> {
        let is_chat = match endpoint {
            Endpoint::ChatCompletions => true,
            Endpoint::Completions if engine != EngineKind::Llamacpp => false,
            _ => return Err(NotCaptured::Endpoint(endpoint.path())),
        };
        let fields: Fields<'_> =
            serde_json::from_slice(body).map_err(|_| NotCaptured::Malformed)?;
        if let Some(field) = fields.obstacle() {
            return Err(NotCaptured::Field(field));
        }
        let asks = |field: Option<&RawValue>| field.is_some_and(|f| f.get() != "false");
        // Streams of llama.cpp lack the stop token, and with tools it refuses log-probabilities in
        // them. SGLang's lack log-probabilities of tokens without text, such as the stop token,
        // unless the server has a parser.
        let is_whole_only = matches!(engine, EngineKind::Llamacpp | EngineKind::Sglang);
        let is_played = streams && is_chat && is_whole_only;
        let options = fields.stream_options.map(RawValue::get);
        let options = options.and_then(|text| serde_json::from_str::<StreamOptions>(text).ok());
        let options = options.unwrap_or_default();
        let hidden = Hidden {
            ids: !asks(fields.return_token_ids),
            logprobs: !asks(fields.logprobs),
            usage: streams && options.include_usage != Some(true),
        };
        let mut wanted = Vec::new();
        let mut set = |name, value: String| wanted.push((name, value));
        let truth = || "true".to_owned();
        if hidden.logprobs {
            set("logprobs", if is_chat { truth() } else { "0".to_owned() });
        }
        match engine {
            EngineKind::Vllm | EngineKind::Sglang => set("return_token_ids", truth()),
            EngineKind::Llamacpp => {
                if hidden.logprobs {
                    set("top_logprobs", "1".to_owned());
                }
                set("verbose", truth());
                set("return_tokens", truth());
            }
            EngineKind::Openai => return Err(NotCaptured::Engine("openai")),
        }
        if is_played {
            set("stream", "false".to_owned());
        } else if streams {
            let each = options.continuous_usage_stats == Some(true);
            let each = if each {
                ",\"continuous_usage_stats\":true"
            } else {
                ""
            };
            set(
                "stream_options",
                format!("{{\"include_usage\":true{each}}}"),
            );
        }
        let names = wanted.iter().map(|(name, _)| *name);
        // A request that is no stream has none.
        let names: Vec<&str> = names.chain(is_played.then_some("stream_options")).collect();
        let body = remove_fields(body, places(body, &names));
        let body = insert_fields(&body, &wanted).ok_or(NotCaptured::Malformed)?;
        Ok(Self {
            body,
            reader: TokenReader::new(hidden, engine),
            is_played,
        })
    }
}
