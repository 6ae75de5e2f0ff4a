//! `[engines]`: the inference engines to serve programs with.

use serde::{Deserialize, Serialize};
use treadle_model::EngineKind;

use super::section::{Form, Setting, section};

/// The kind of an engine, which decides how its load and tokens are queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Detected by querying the engine.
    #[default]
    Auto,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Any other server with the OpenAI API.
    Openai,
}

impl EngineChoice {
    pub(super) const CHOICES: &'static [&'static str] =
        &["auto", "vllm", "sglang", "llamacpp", "openai"];

    /// The kind; `None` if it is to be detected.
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

/// An engine: either its URL or a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Endpoint {
    /// URL without a path: `http://10.0.0.1:8000`.
    pub url: String,
    /// Its kind; `engines.kind` by default.
    pub kind: Option<EngineChoice>,
    /// Tokens that fit in its cache; reported by the engine by default.
    pub capacity_tokens: Option<u64>,
    /// Its profile: a file written by `treadle calibrate`, or a preset's name.
    pub profile: Option<String>,
}

impl Endpoint {
    /// An engine with nothing but its URL known.
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
        /// The engines: URLs, or tables with `url` and optionally `kind`, `capacity_tokens` (tokens that fit in the engine's cache; by default the engine reports it) and `profile` (a file written by `treadle calibrate`, or the name of a preset: the engine's speed until enough of its own steps have been measured; the engine is then not measured at the start). An environment variable or `--set` may also have URLs separated by commas.
        endpoints: Vec<Endpoint> = Vec::new(), "";
        /// The kind of engines that have none of their own; `auto` detects it.
        kind: EngineChoice = EngineChoice::Auto, "";
        /// Where engines may be registered: hosts (`gpu1`, `*.gpus.internal`), addresses and networks (`10.0.0.0/8`), optionally with `:port`. Empty for everywhere except the daemon itself, link-local addresses and cloud metadata addresses. The engines of `engines.endpoints` need no entry.
        allowed: Vec<String> = Vec::new(), "";
        /// How long an engine may take for a whole answer; long rollouts take hours.
        response_timeout_s: u64 = 14_400, "seconds", 1 ..= 604_800;
        /// How often a step is sent again when its engine fails before the first byte of an answer: it is unreachable, closes the connection, or answers 502, 503 or 504. Comments do not count as an answer. A busy engine (429, or 503 with `Retry-After` or a text that says so) gets no steps until that time; another engine gets the step at once. Without another engine, the answer is passed on, like any other error.
        retry_max: u32 = 2, "times", 0 ..= 100;
        /// Largest answer that is buffered before it is passed on, so that the step can be sent to another engine if the connection breaks. A larger answer that is not a stream is passed on as it arrives. An answer that is assembled, from a stream or after an interruption (`rollout.engine_steps_max`), is refused with 502 `answer_too_large` beyond this limit. No answer is generated again because of its size.
        answer_bytes_max: usize = 256 << 20, "bytes", 1 ..= 4_294_967_296_u64;
        /// Whether the speed of a new engine is measured: it gets three prompts of numbers and generates 34 tokens, about a second of work (up to five on a slow engine). The speed is also measured from the answers of steps, less precisely if they are not streamed.
        measure: bool = true, "";
        /// Request fields that are passed to engines although treadle does not know them, such as a sampling parameter of a newer engine. Nested fields are written with a dot (`vllm_xargs.name`), headers as `header:x-team`. Fields that control an engine (`kv_transfer_params`, `lora_path`, `id_slot`; docs/security.md) are passed only while there is a single tenant.
        pass_fields: Vec<String> = Vec::new(), "";
        fixed {
            /// How long an engine may take for the response head of a request that is not a step, such as `/tokenize`.
            forward_timeout_s: u64 = 60, "seconds", 1 ..= 3600;
            /// Bytes of all such answers at the same time.
            answers_bytes_max: u64 = 4 << 30, "bytes", 1 ..= 1_099_511_627_776_u64;
            /// How often the health and load of each engine are probed.
            probe_interval_ms: u64 = 1000, "milliseconds", 10 ..= 600_000;
            /// How long a connection to an engine may take to open.
            connect_timeout_ms: u64 = 5000, "milliseconds", 1 ..= 600_000;
        }
    }
}

impl EnginesConfig {
    /// Kind of an endpoint; `None` if it is to be detected.
    pub fn kind_of(&self, endpoint: &Endpoint) -> Option<EngineKind> {
        endpoint.kind.unwrap_or(self.kind).kind()
    }
}
