//! The request that asks for tokens.

use super::ask_native::{ask_sglang, ask_vllm};
use super::place::places;
use super::read::{Hidden, TokenReader};
use super::request::{NotCaptured, TokenRequest, prompt_ids};
use crate::{Endpoint, insert_fields, remove_fields};
use serde::Deserialize;
use serde_json::value::RawValue;
use treadle_model::EngineKind;

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
    #[serde(borrow)]
    post_sampling_probs: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

/// The form of a completion.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Form {
    Text,
    Chat,
    /// A chat that is answered in one piece.
    WholeChat,
}

impl Form {
    /// Whether this kind of engine is asked for it in one piece. Streams of llama.cpp lack the stop
    /// token, and with tools it refuses log-probabilities in them. SGLang's lack log-probabilities of
    /// tokens without text, such as the stop token, unless the server has a parser.
    fn is_whole_at(self, engine: EngineKind) -> bool {
        match engine {
            EngineKind::Llamacpp => true,
            EngineKind::Sglang => self != Self::Text,
            EngineKind::Vllm | EngineKind::Openai => self == Self::WholeChat,
        }
    }
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
            ("post_sampling_probs", is(self.post_sampling_probs, "true")),
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
        match (endpoint, engine) {
            (_, EngineKind::Openai) => Err(NotCaptured::Engine("openai")),
            (Endpoint::ChatCompletions, _) => Self::ask_openai(engine, body, streams, Form::Chat),
            (Endpoint::Completions, _) => Self::ask_openai(engine, body, streams, Form::Text),
            (Endpoint::VllmGenerate, EngineKind::Vllm) => ask_vllm(body),
            (Endpoint::SglangGenerate, EngineKind::Sglang) => ask_sglang(body),
            (Endpoint::VllmGenerate | Endpoint::SglangGenerate, _) => {
                Err(NotCaptured::Foreign(endpoint.path(), engine))
            }
            (Endpoint::Messages | Endpoint::Responses, _) => {
                Err(NotCaptured::Endpoint(endpoint.path()))
            }
        }
    }

    /// The request of a chat that also asks for tokens, and for the whole answer.
    ///
    /// # Errors
    /// [`NotCaptured`] if they can't be had.
    pub fn ask_whole(engine: EngineKind, body: &[u8], streams: bool) -> Result<Self, NotCaptured> {
        match engine {
            EngineKind::Openai => Err(NotCaptured::Engine("openai")),
            _ => Self::ask_openai(engine, body, streams, Form::WholeChat),
        }
    }

    /// A chat or text completion of OpenAI's API.
    fn ask_openai(
        engine: EngineKind,
        body: &[u8],
        streams: bool,
        form: Form,
    ) -> Result<Self, NotCaptured> {
        let is_chat = form != Form::Text;
        let fields: Fields<'_> =
            serde_json::from_slice(body).map_err(|_| NotCaptured::Malformed)?;
        if let Some(field) = fields.obstacle() {
            return Err(NotCaptured::Field(field));
        }
        let asks = |field: Option<&RawValue>| field.is_some_and(|f| f.get() != "false");
        let is_played = streams && form.is_whole_at(engine);
        let options = fields.stream_options.map(RawValue::get);
        let options = options.and_then(|text| serde_json::from_str::<StreamOptions>(text).ok());
        let options = options.unwrap_or_default();
        // llama.cpp takes 0 for none.
        let is_none = |field: &&RawValue| engine == EngineKind::Llamacpp && field.get() == "0";
        let hidden = Hidden {
            ids: !asks(fields.return_token_ids),
            prompt: !asks(fields.return_token_ids),
            logprobs: !asks(fields.logprobs.filter(|field| !is_none(field))),
            usage: streams && options.include_usage != Some(true),
        };
        let mut wanted = Vec::new();
        let mut set = |name, value: String| wanted.push((name, value));
        let truth = || "true".to_owned();
        if hidden.logprobs {
            let of_completions = if engine == EngineKind::Llamacpp {
                "1"
            } else {
                "0"
            };
            let value = if is_chat { "true" } else { of_completions };
            set("logprobs", value.to_owned());
        }
        if engine == EngineKind::Llamacpp {
            if hidden.logprobs && is_chat {
                set("top_logprobs", "1".to_owned());
            }
            set("verbose", truth());
            set("return_tokens", truth());
        } else {
            set("return_token_ids", truth());
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
        let reader = TokenReader::new(hidden, engine);
        let prompt = fields.prompt.filter(|_| !is_chat).map(prompt_ids);
        Ok(Self {
            body,
            reader: reader.after(prompt.transpose()?.unwrap_or_default()),
            is_played,
        })
    }
}
