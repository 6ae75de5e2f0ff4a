//! `[engines]`: the inference engines to serve programs with.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use treadle_core::programs::WorkerRole;
use treadle_model::{ClientName, EngineKind};

use super::section::{Form, Setting, section};
use super::tls::is_loopback_host;
use super::{ConfigError, conflict};

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
    /// Its class of hardware, such as `h20`.
    pub class: Option<String>,
    /// Its role: `both`, `prefill` or `decode`.
    pub role: Option<String>,
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
            class: None,
            role: None,
            profile: None,
        }
    }

    /// Names of the fields of the table.
    pub(super) const FIELDS: &'static [&'static str] =
        &["url", "kind", "capacity_tokens", "class", "role", "profile"];
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Url(String),
    Table {
        url: String,
        kind: Option<EngineChoice>,
        capacity_tokens: Option<u64>,
        class: Option<String>,
        role: Option<String>,
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
                class,
                role,
                profile,
            } => Self {
                url,
                kind,
                capacity_tokens,
                class,
                role,
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
        /// The engines: URLs, or tables with `url` and optionally `kind`, `capacity_tokens` (tokens that fit in the engine's cache; by default the engine reports it), `class` (its class of hardware, such as `h20`, which training jobs name in `affinity`), `role` (`both`, `prefill` or `decode`; docs/guides/roles.md) and `profile` (a file written by `treadle calibrate`, or the name of a preset: the engine's speed until enough of its own steps have been measured; the engine is then not measured at the start). An environment variable or `--set` may also have URLs separated by commas.
        endpoints: Vec<Endpoint> = Vec::new(), "";
        /// The kind of engines that have none of their own; `auto` detects it.
        kind: EngineChoice = EngineChoice::Auto, "";
        /// Where engines may be registered: hosts (`gpu1`, `*.gpus.internal`), addresses and networks (`10.0.0.0/8`), optionally with `:port`. Empty for everywhere except the daemon itself, link-local addresses and cloud metadata addresses. The engines of `engines.endpoints` need no entry.
        allowed: Vec<String> = Vec::new(), "";
        /// Ports at which a job's trainer controls single engines, as `JOB@127.0.0.1:9001`: the first engine of `engines.endpoints` at this port, the next one at the next. For slime, which takes a host and a port but no path (docs/weights.md); other trainers need none. Whoever calls them needs what `POST /api/v1/jobs/{job}/weights` needs. Empty for none.
        relay: String = String::new(), "";
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

/// A port at which a trainer controls one engine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RelayPort {
    /// The trainer's job.
    pub job: String,
    /// The port.
    pub listen: SocketAddr,
    /// The engine's URL.
    pub engine: String,
}

impl RelayPort {
    /// Whether a URL leads to this port.
    pub fn is_at(&self, url: &str) -> bool {
        let Ok(url) = url.parse::<http::Uri>() else {
            return false;
        };
        let (own, host) = (self.listen.ip(), url.host().unwrap_or_default());
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let is_local = is_loopback_host(host) && (own.is_loopback() || own.is_unspecified());
        let is_own = own.is_unspecified() || address == Some(own) || is_local;
        url.port_u16() == Some(self.listen.port()) && is_own
    }
}

impl EnginesConfig {
    /// The ports of `engines.relay`.
    pub fn relay_ports(&self) -> Vec<RelayPort> {
        self.first_relay_port().map_or_else(Vec::new, |first| {
            let ports = first.listen.port()..=u16::MAX;
            let ports = ports.zip(&self.endpoints);
            let ports = ports.map(|(port, endpoint)| RelayPort {
                job: first.job.clone(),
                listen: SocketAddr::new(first.listen.ip(), port),
                engine: endpoint.url.clone(),
            });
            ports.collect()
        })
    }

    fn first_relay_port(&self) -> Option<RelayPort> {
        let (job, listen) = self.relay.split_once('@')?;
        Some(RelayPort {
            job: job.to_owned(),
            listen: listen.parse().ok()?,
            engine: String::new(),
        })
    }

    /// Rules across several values.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for class in self.endpoints.iter().filter_map(|e| e.class.as_deref()) {
            ClientName::parse_class("class", class).map_err(|error| {
                let remedy = "give each class of hardware a short name, such as h20";
                conflict("engines.endpoints", error.to_string(), remedy)
            })?;
        }
        for role in self.endpoints.iter().filter_map(|e| e.role.as_deref()) {
            if WorkerRole::from_name(role).is_none() {
                let remedy = "give each engine the role both, prefill or decode, or none";
                let problem = format!("has the role `{role}`");
                return Err(conflict("engines.endpoints", problem, remedy));
            }
        }
        let wrong = |problem: &str| {
            let remedy = "write it as JOB@ADDRESS:PORT, such as math@127.0.0.1:9001";
            Err(conflict("engines.relay", problem.to_owned(), remedy))
        };
        if self.relay.is_empty() {
            return Ok(());
        }
        let Some(first) = self.first_relay_port() else {
            return wrong("is no job and address");
        };
        if ClientName::parse("job", first.job).is_err() {
            return wrong("has no name of a job before the @");
        }
        let count = self.endpoints.len();
        if first.listen.port() == 0 || count == 0 || self.relay_ports().len() < count {
            return wrong("needs engines.endpoints, and a port for each, up from the one it names");
        }
        Ok(())
    }

    /// Kind of an endpoint; `None` if it is to be detected.
    pub fn kind_of(&self, endpoint: &Endpoint) -> Option<EngineKind> {
        endpoint.kind.unwrap_or(self.kind).kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_one_of_three() {
        let checked = |role: &str| {
            let mut engines = EnginesConfig::default();
            let endpoint = Endpoint::at("http://a:1");
            engines.endpoints.push(Endpoint {
                role: Some(role.to_owned()),
                ..endpoint
            });
            engines.check().map_err(|error| error.to_string())
        };
        for role in WorkerRole::ALL.map(WorkerRole::as_str) {
            assert_eq!(checked(role), Ok(()));
        }
        let error = checked("half").expect_err("it is refused");
        assert!(error.contains("has the role `half`"), "{error}");
    }
}
