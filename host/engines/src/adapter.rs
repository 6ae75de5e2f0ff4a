//! Queries an engine for its kind, capacity, health and load.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;
use treadle_core::Event;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, WorkerRole};
use treadle_http::Upstream;
use treadle_model::{ClientName, EngineKind, NAME_BYTES_MAX, TOKENS_MAX, WorkerId, endpoint_of};
use treadle_wire::engines::{EngineFacts, GPUS_MAX, llama_cpp, sglang, vllm};
use treadle_wire::{EngineReading, models_of};
use treadle_wire::{ErrorBody, ErrorCode};

/// Timeout of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Most ranks of one address that are told apart, whatever its engine reports.
const RANKS_MAX: usize = 1_024;
/// Largest accepted response of a probe.
const PROBE_BYTES_MAX: usize = 4 << 20;

/// What the owner of an engine declared about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// Its software; `None` to detect it.
    pub kind: Option<EngineKind>,
    /// Size of its KV cache, in tokens; overrides the value that it reports.
    pub capacity_tokens: Option<u64>,
    /// Number of GPUs that it runs on; overrides the value that it reports.
    pub gpus: Option<u32>,
    /// Its class of hardware; `None` leaves it as it is.
    pub class: Option<Box<str>>,
    /// Its role; `None` leaves it as it is.
    pub role: Option<WorkerRole>,
    /// Its speeds; if declared, they are not measured.
    pub speeds: Option<DeclaredSpeeds>,
}

/// The declared speeds of an engine; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeclaredSpeeds {
    /// Prompt tokens that it computes per second.
    pub prefill_tokens_per_s: u64,
    /// Microseconds per token when it generates a single answer.
    pub token_us: u64,
    /// Microseconds that each further concurrent answer adds to that, for all answers.
    pub step_us: u64,
}

impl Declared {
    /// Parses a client's declaration; the error names the invalid field and the valid values.
    pub fn new(kind: Option<&str>, capacity_tokens: Option<u64>) -> Result<Self, ErrorBody> {
        let kind = match kind {
            None | Some("auto") => None,
            Some(word) => Some(EngineKind::from_name(word).ok_or_else(|| {
                let known: Vec<_> = EngineKind::ALL.iter().map(|kind| kind.as_str()).collect();
                let known = known.join(", ");
                let message = format!("`kind` is `{word}`; it must be auto, {known}");
                ErrorBody::new(ErrorCode::InvalidField, message).with_param("kind")
            })?),
        };
        if capacity_tokens.is_some_and(|tokens| !(1..=TOKENS_MAX).contains(&tokens)) {
            let message = format!(
                "`capacity_tokens` must be a whole number from 1 to {TOKENS_MAX}; leave it out to \
                 have the engine asked"
            );
            let error = ErrorBody::new(ErrorCode::InvalidField, message);
            return Err(error.with_param("capacity_tokens"));
        }
        Ok(Self {
            kind,
            capacity_tokens,
            ..Self::default()
        })
    }

    /// This declaration with a number of GPUs.
    pub fn on_gpus(self, gpus: Option<u32>) -> Result<Self, ErrorBody> {
        if gpus.is_some_and(|gpus| !(1..=GPUS_MAX).contains(&gpus)) {
            let message = format!(
                "`gpus` must be a whole number from 1 to {GPUS_MAX}; leave it out if it is not \
                 known"
            );
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param("gpus"));
        }
        Ok(Self { gpus, ..self })
    }

    /// This declaration with a class of hardware.
    pub fn of_class(self, class: Option<&str>) -> Result<Self, ErrorBody> {
        let class = class.map(class_named).transpose()?.flatten();
        Ok(Self { class, ..self })
    }

    /// This declaration with a role.
    pub fn with_role(self, role: Option<&str>) -> Result<Self, ErrorBody> {
        let role = role.map(role_named).transpose()?;
        Ok(Self { role, ..self })
    }

    /// What it says of a registered engine beyond its kind and capacity.
    pub(super) fn events(&self, worker: WorkerId) -> impl Iterator<Item = Event> {
        let class = self.class.as_ref().map(|class| {
            let class = Some(class.clone());
            ProgramEvent::WorkerClassSet { worker, class }
        });
        let role = self.role.map(|role| ProgramEvent::WorkerRoleSet {
            worker,
            role,
            bootstrap_port: None,
        });
        let speeds = self.speeds.map(|speeds| ProgramEvent::WorkerSpeedRead {
            worker,
            prefill_tokens_per_s: speeds.prefill_tokens_per_s,
            token_us: speeds.token_us,
            step_us: speeds.step_us,
            declared: true,
        });
        let told = class.into_iter().chain(role).chain(speeds);
        told.map(Event::Program)
    }
}

/// A class of hardware as its operator named it; `None` for an empty text.
///
/// # Errors
/// It is no name, or too long.
pub fn class_named(class: &str) -> Result<Option<Box<str>>, ErrorBody> {
    if class.is_empty() {
        return Ok(None);
    }
    let class = ClientName::parse_class("class", class).map_err(|error| {
        ErrorBody::new(ErrorCode::InvalidField, error.to_string()).with_param("class")
    })?;
    Ok(Some(Box::from(&*class)))
}

/// The role of this name.
///
/// # Errors
/// There is no such role.
pub fn role_named(role: &str) -> Result<WorkerRole, ErrorBody> {
    WorkerRole::from_name(role).ok_or_else(|| {
        let known = WorkerRole::ALL.map(WorkerRole::as_str).join(", ");
        let message = format!("`role` is `{role}`; it must be one of {known}");
        ErrorBody::new(ErrorCode::InvalidField, message).with_param("role")
    })
}

/// What an engine is, as last read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detected {
    /// Its software.
    pub kind: EngineKind,
    /// Its memory and limits.
    pub capacity: Capacity,
}

/// Queries the kind and capacity of an engine. Fails if it does not answer.
pub async fn read_engine(
    upstream: &Upstream,
    url: &str,
    declared: &Declared,
) -> Result<Detected, String> {
    let (kind, reading) = match declared.kind {
        Some(kind) => {
            let reading = read_as(upstream, url, kind).await;
            if reading.is_none() {
                check_health(upstream, url, kind).await?;
            }
            (kind, reading)
        }
        None => detect(upstream, url).await?,
    };
    let mut capacity = reading.map_or_else(Capacity::default, |reading| Capacity {
        tokens: reading.capacity_tokens,
        context_tokens_max: reading.context_tokens_max,
        slots: reading.slots.and_then(|slots| u32::try_from(slots).ok()),
        gpus: reading.gpus,
        offloads: reading.offloads,
    });
    if capacity.context_tokens_max.is_none() && kind != EngineKind::Llamacpp {
        capacity.context_tokens_max = context_of_models(upstream, url).await;
    }
    capacity.tokens = declared.capacity_tokens.or(capacity.tokens);
    capacity.gpus = declared.gpus.or(capacity.gpus);
    Ok(Detected { kind, capacity })
}

/// Detects the software by an endpoint that only it has.
async fn detect(
    upstream: &Upstream,
    url: &str,
) -> Result<(EngineKind, Option<EngineReading>), String> {
    for kind in [EngineKind::Llamacpp, EngineKind::Sglang, EngineKind::Vllm] {
        if let Some(reading) = read_as(upstream, url, kind).await {
            return Ok((kind, Some(reading)));
        }
    }
    let (status, body) = fetch(upstream, Method::GET, url, "/v1/models", None).await?;
    if status.is_success() && !models_of(&body).is_empty() {
        return Ok((EngineKind::Openai, None));
    }
    Err(format!(
        "/v1/models returns {status} and lists no model: this is not an inference engine, or one \
         that has to be named with its kind, such as `--kind openai`"
    ))
}

/// Whether an engine accepts work. A 5xx response means that it is loading its model or has failed;
/// without a health page it is at least reachable.
pub(super) async fn check_health(
    upstream: &Upstream,
    url: &str,
    kind: EngineKind,
) -> Result<(), String> {
    let page = match kind {
        // Its health page generates a token, which an engine paused for a weight update can't.
        EngineKind::Sglang => "/v1/models",
        _ => "/health",
    };
    let (status, _) = fetch(upstream, Method::GET, url, page, None).await?;
    if status.is_server_error() {
        return Err(format!("{page} returns {status}"));
    }
    Ok(())
}

async fn read_as(upstream: &Upstream, url: &str, kind: EngineKind) -> Option<EngineReading> {
    let page = async |path: &str| {
        let (status, body) = fetch(upstream, Method::GET, url, path, None).await.ok()?;
        status.is_success().then_some(body)
    };
    match kind {
        EngineKind::Llamacpp => llama_cpp::reading_of_props(&page("/props").await?),
        EngineKind::Sglang => sglang::reading_of_server_info(&page("/server_info").await?),
        EngineKind::Vllm => {
            let text = page("/metrics").await?;
            let text = metrics_at(url, kind, &String::from_utf8_lossy(&text));
            let reading = vllm::reading_of_metrics(&text);
            reading.capacity_tokens.is_some().then_some(reading)
        }
        EngineKind::Openai => None,
    }
}

/// Queries an engine's load and what its cache has saved.
pub(super) async fn read_load(
    upstream: &Upstream,
    url: &str,
    kind: EngineKind,
) -> Option<EngineReading> {
    let text = async |path: &str| {
        let (status, body) = fetch(upstream, Method::GET, url, path, None).await.ok()?;
        status
            .is_success()
            .then(|| String::from_utf8_lossy(&body).into_owned())
    };
    match kind {
        EngineKind::Llamacpp => {
            let counted =
                llama_cpp::reading_of_metrics(&text("/metrics").await.unwrap_or_default());
            let slots = llama_cpp::reading_of_slots(text("/slots").await?.as_bytes())?;
            Some(counted.or(slots))
        }
        EngineKind::Sglang => {
            let text = metrics_at(url, kind, &text("/metrics").await?);
            Some(sglang::reading_of_metrics(&text))
        }
        EngineKind::Vllm => {
            let text = metrics_at(url, kind, &text("/metrics").await?);
            Some(vllm::reading_of_metrics(&text))
        }
        EngineKind::Openai => None,
    }
}

/// What a page of metrics says of the rank that a worker is, or of all.
fn metrics_at(url: &str, kind: EngineKind, text: &str) -> String {
    match (endpoint_of(url).1, kind) {
        (Some(rank), EngineKind::Vllm) => vllm::metrics_of_rank(text, rank),
        (Some(rank), EngineKind::Sglang) => sglang::metrics_of_rank(text, rank),
        _ => text.to_owned(),
    }
}

/// How many ranks of data parallelism are behind an address: each has a cache of its own, so each
/// is a worker. They are numbered from 0. `None` if the engine does not tell now.
pub(super) async fn read_ranks(upstream: &Upstream, url: &str, kind: EngineKind) -> Option<u32> {
    let page = async |path: &str| {
        let (status, body) = fetch(upstream, Method::GET, url, path, None).await.ok()?;
        status.is_success().then_some(body)
    };
    let ranks = match kind {
        EngineKind::Vllm => {
            let text = page("/metrics").await?;
            vllm::ranks_of_metrics(&String::from_utf8_lossy(&text))
        }
        EngineKind::Sglang => sglang::ranks_of_server_info(&page("/server_info").await?),
        EngineKind::Llamacpp | EngineKind::Openai => return Some(1),
    };
    u32::try_from(ranks.min(RANKS_MAX))
        .ok()
        .filter(|ranks| *ranks > 0)
}

/// The model that an engine serves, by its first name, and its further names and models, including
/// adapters.
pub(super) async fn names_of_models(
    upstream: &Upstream,
    url: &str,
    kind: EngineKind,
) -> Option<(Box<str>, Vec<Box<str>>)> {
    let page = async |path: &str| {
        let answer = fetch(upstream, Method::GET, url, path, None).await.ok();
        answer.filter(|(status, _)| status.is_success())
    };
    let models = models_of(&page("/v1/models").await?.1);
    let is_kept = |id: &String| !id.is_empty() && id.len() <= NAME_BYTES_MAX;
    let (adapters, own): (Vec<_>, Vec<_>) = models.into_iter().partition(|model| model.is_adapter);
    let mut own: Vec<String> = own.into_iter().map(|model| model.id).collect();
    if kind == EngineKind::Sglang {
        let started_as = sglang::model_of_server_info(&page("/server_info").await?.1);
        own = started_as.map_or(own, |name| vec![name]);
    }
    let adapters = adapters.into_iter().map(|model| model.id);
    let names = own.into_iter().chain(adapters);
    let mut names = names.filter(is_kept).map(Box::from);
    let first = names.next()?;
    let mut others: Vec<Box<str>> = names.filter(|name| *name != first).collect();
    others.sort_unstable();
    others.dedup();
    Some((first, others))
}

/// Queries an engine's static facts.
pub(super) async fn read_facts(upstream: &Upstream, url: &str, kind: EngineKind) -> EngineFacts {
    let page = async |path: &str| {
        let asked = fetch(upstream, Method::GET, url, path, None).await.ok();
        let (status, body) = asked.unwrap_or_default();
        if status.is_success() {
            body
        } else {
            Bytes::new()
        }
    };
    match kind {
        EngineKind::Vllm => vllm::facts_of_version(&page("/version").await),
        EngineKind::Sglang => sglang::facts_of_server_info(&page("/server_info").await),
        EngineKind::Llamacpp => llama_cpp::facts_of_props(&page("/props").await),
        // The gateway sends it no priorities.
        EngineKind::Openai => EngineFacts {
            priorities: Some(false),
            ..EngineFacts::default()
        },
    }
}

async fn context_of_models(upstream: &Upstream, url: &str) -> Option<u64> {
    let (status, body) = fetch(upstream, Method::GET, url, "/v1/models", None)
        .await
        .ok()?;
    let models = status.is_success().then(|| models_of(&body))?;
    models
        .iter()
        .filter_map(|model| model.context_tokens_max)
        .min()
}

/// Status and body of a response, whatever they are.
pub(super) async fn fetch(
    upstream: &Upstream,
    method: Method,
    url: &str,
    path: &str,
    json: Option<&Value>,
) -> Result<(StatusCode, Bytes), String> {
    let base = url.trim_end_matches('/');
    let mut headers = HeaderMap::new();
    if json.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let body = json.map_or_else(Bytes::new, |json| json.to_string().into());
    let answer = async {
        let response = upstream
            .send(method, base, path, &headers, body)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), PROBE_BYTES_MAX)
            .collect()
            .await;
        body.map(|body| (status, body.to_bytes()))
            .map_err(|error| error.to_string())
    };
    let timeout = PROBE_TIMEOUT.as_secs();
    tokio::time::timeout(PROBE_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(format!("no answer to {path} within {timeout} s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn impossible_declarations_are_refused() {
        for capacity in [0, TOKENS_MAX + 1, u64::MAX] {
            let error = Declared::new(None, Some(capacity)).expect_err("it is refused");
            assert_eq!(error.param.as_deref(), Some("capacity_tokens"), "{error:?}");
        }
        let error = Declared::new(Some("abacus"), None).expect_err("it is refused");
        assert!(error.message.contains("`kind` is `abacus`"), "{error:?}");
        let declared = Declared::new(Some("vllm"), Some(TOKENS_MAX)).expect("it is one");
        let kind = Some(EngineKind::Vllm);
        assert_eq!(
            (declared.kind, declared.capacity_tokens),
            (kind, Some(TOKENS_MAX))
        );
        assert_eq!(Declared::new(Some("auto"), None), Ok(Declared::default()));
        let error = Declared::default().with_role(Some("prefil"));
        let error = error.expect_err("it is refused");
        assert!(error.message.contains("both, prefill, decode"), "{error:?}");
        for gpus in [0, GPUS_MAX + 1] {
            let error = declared
                .clone()
                .on_gpus(Some(gpus))
                .expect_err("it is refused");
            assert_eq!(error.param.as_deref(), Some("gpus"), "{error:?}");
        }
    }
    /// Serves an engine that returns 503 for all requests except the list of models.
    async fn paused_engine() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1_024];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let lists = request[..read].starts_with(b"GET /v1/models ");
                let status = if lists { "200 OK" } else { "503 Busy" };
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
                let answer = format!("{head}content-length: 2\r\n\r\n{{}}");
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        url
    }

    #[tokio::test]
    async fn a_paused_sglang_answers_though_its_health_page_does_not() {
        let (url, upstream) = (paused_engine().await, Upstream::new(PROBE_TIMEOUT));
        let sglang = check_health(&upstream, &url, EngineKind::Sglang).await;
        assert_eq!(sglang, Ok(()));
        let vllm = check_health(&upstream, &url, EngineKind::Vllm).await;
        assert!(vllm.unwrap_err().contains("/health returns 503"));
    }
}
