//! `[engines]`: the inference engines to serve programs with.

use serde::{Deserialize, Serialize};
use treadle_model::EngineKind;

use super::section::{Form, Setting, section};

/// What an engine is, and so how it is asked for its load and its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Found out by asking it.
    #[default]
    Auto,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Any other that speaks the API of OpenAI.
    Openai,
}

impl EngineChoice {
    pub(super) const CHOICES: &'static [&'static str] =
        &["auto", "vllm", "sglang", "llamacpp", "openai"];

    /// The kind, unless it is to be found out.
    pub fn kind(self) -> Option<EngineKind> {
        match self {
            Self::Auto => None,
            Self::Vllm => Some(EngineKind::Vllm),
            Self::Sglang => Some(EngineKind::Sglang),
            Self::Llamacpp => Some(EngineKind::Llamacpp),
            Self::Openai => Some(EngineKind::Openai),
        }
    }
}

impl Setting for EngineChoice {
    const FORM: Form = Form::Choice(Self::CHOICES);
}

/// An engine: in a file either its URL alone or a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Endpoint {
    /// Where it listens, without a path: `http://10.0.0.1:8000`.
    pub url: String,
    /// Its kind; `engines.kind` by default.
    pub kind: Option<EngineChoice>,
    /// Tokens that fit in its cache; asked of the engine by default.
    pub capacity_tokens: Option<u64>,
    /// Its profile: a file as `treadle-bench calibrate` writes it, or a preset's name.
    pub profile: Option<String>,
}

impl Endpoint {
    /// One of which nothing but its address is known.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            kind: None,
            capacity_tokens: None,
            profile: None,
        }
    }

    /// Names of the fields of the table.
    pub(super) const FIELDS: &'static [&'static str] =
        &["url", "kind", "capacity_tokens", "profile"];
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Url(String),
    Table {
        url: String,
        kind: Option<EngineChoice>,
        capacity_tokens: Option<u64>,
        profile: Option<String>,
    },
}

impl From<Written> for Endpoint {
    fn from(written: Written) -> Self {
        match written {
            Written::Url(url) => Self::at(url),
            Written::Table {
                url,
                kind,
                capacity_tokens,
                profile,
            } => Self {
                url,
                kind,
                capacity_tokens,
                profile,
            },
        }
    }
}

impl Setting for Vec<Endpoint> {
    const FORM: Form = Form::Endpoints;
}

section! {
    /// The inference engines to serve programs with.
    EnginesConfig in "engines" {
        /// The engines: URLs, or tables with `url` and, where they differ, `kind`, `capacity_tokens` (tokens that fit in the engine's cache; the engine is asked where it is absent) and `profile` (a file of `treadle-bench calibrate`, or a preset's name: how fast the engine is until its own steps tell; it is not measured then). In an environment variable or after `--set`, URLs with commas between them also do.
        endpoints: Vec<Endpoint> = Vec::new(), "";
        /// The kind of engines without their own; `auto` detects it.
        kind: EngineChoice = EngineChoice::Auto, "";
        /// Where engines may be registered: hosts (`gpu1`, `*.gpus.internal`), addresses and networks (`10.0.0.0/8`), each with `:port` where only that one is meant. Empty for everywhere but the daemon itself, link-local addresses and those of cloud metadata. The engines of `engines.endpoints` need no entry.
        allowed: Vec<String> = Vec::new(), "";
        /// How long an engine may take for the whole of an answer; long rollouts take hours.
        response_timeout_s: u64 = 14_400, "seconds", 1 ..= 604_800;
        /// How often a step is sent again when its engine fails before the first byte of an answer: it can't be reached, ends the connection, or answers 502, 503 or 504. Comments are no answer. An engine that is busy (429, or 503 with `Retry-After` or with words to that effect) is not asked again before that time, and another one takes the step at once; without another its answer is passed on, as is any other error.
        retry_max: u32 = 2, "times", 0 ..= 100;
        /// Largest answer that is gathered before any of it goes on, so that the step can be sent elsewhere if its engine breaks it off. One that is not a stream and is larger passes on as it comes. One that is put together, of a stream or after it was interrupted (`rollout.engine_steps_max`), is refused with 502 `answer_too_large` beyond it; none is generated again because of its size.
        answer_bytes_max: usize = 256 << 20, "bytes", 1 ..= 4_294_967_296_u64;
        /// Whether a new engine is given three prompts of numbers and is asked for an answer of 34 tokens, a second of work in all (up to five on a slow one), to see how fast it is. The answers of steps show it too, those in one piece less well.
        measure: bool = true, "";
        /// Fields of requests that engines are given although treadle does not know them, such as one of a newer engine's sampling; those within others with a dot, as in `vllm_xargs.name`, and headers, as in `header:x-team`. One that steers an engine (`kv_transfer_params`, `lora_path`, `id_slot`; docs/security.md) passes only while there is one tenant.
        pass_fields: Vec<String> = Vec::new(), "";
        fixed {
            /// How long an engine may take for the head of an answer to a request that is no step, such as `/tokenize`.
            forward_timeout_s: u64 = 60, "seconds", 1 ..= 3600;
            /// Bytes of all such answers at once.
            answers_bytes_max: u64 = 4 << 30, "bytes", 1 ..= 1_099_511_627_776_u64;
            /// How often each engine is asked for its health and load.
            probe_interval_ms: u64 = 1000, "milliseconds", 10 ..= 600_000;
            /// How long a connection to an engine may take to open.
            connect_timeout_ms: u64 = 5000, "milliseconds", 1 ..= 600_000;
        }
    }
}

impl EnginesConfig {
    /// Kind of one of the endpoints, unless it is to be found out.
    pub fn kind_of(&self, endpoint: &Endpoint) -> Option<EngineKind> {
        endpoint.kind.unwrap_or(self.kind).kind()
    }
}
