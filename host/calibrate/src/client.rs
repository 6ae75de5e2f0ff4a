//! One request to the engine that is measured: a streamed completion whose events are timed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::Instant;
use treadle_core::memory::Capacity;
use treadle_model::EngineKind;
use treadle_wire::{Endpoint, SseScanner, StreamUsage, models_of};

use super::CalibrateError;
use super::disturbance::Watch;
use treadle_engines::{Declared, Detected, read_engine};
use treadle_http::Upstream;

const COMPLETIONS: &str = "/v1/completions";
const MODELS: &str = "/v1/models";
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for one answer: a long prompt on a slow machine.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);
/// Largest event, error and list of models, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of an error's body that are reported.
const REPLY_BYTES_MAX: usize = 300;

/// An engine that answers.
#[derive(Clone)]
pub(super) struct Target {
    upstream: Upstream,
    url: Arc<str>,
    /// The model that is asked for.
    pub(super) model: Arc<str>,
    /// Its software.
    pub(super) kind: EngineKind,
    /// The capacity that it reports.
    pub(super) capacity: Capacity,
}

/// When each event of an answer came; it grows while the answer does.
#[derive(Clone, Default)]
pub(super) struct Stamps(Arc<Mutex<Vec<Instant>>>);

impl Stamps {
    fn push(&self, at: Instant) {
        if let Ok(mut all) = self.0.lock() {
            all.push(at);
        }
    }

    /// Those so far.
    pub(super) fn all(&self) -> Vec<Instant> {
        self.0.lock().map_or_else(|_| Vec::new(), |all| all.clone())
    }
}

/// What to ask for.
pub(super) struct Request {
    /// Token ids.
    pub(super) prompt: Vec<u32>,
    /// Tokens wanted.
    pub(super) output_tokens: u32,
    /// The slot to pin it to, where the engine has numbered ones.
    pub(super) slot: Option<u32>,
}

/// An answer that came to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) sent_at: Instant,
    /// When each event with output came.
    pub(super) tokens_at: Vec<Instant>,
    pub(super) ended_at: Instant,
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// `None` if the engine does not report it.
    pub(super) cached_tokens: Option<u64>,
}

impl Target {
    /// Finds out what answers at `url`, and which model it has, unless it is named.
    pub(super) async fn find(url: &str, model: Option<&str>) -> Result<Self, CalibrateError> {
        let url = url.trim_end_matches('/');
        let upstream = Upstream::new(CONNECT_TIMEOUT);
        let unreachable = |cause: String| CalibrateError::Unreachable {
            url: url.to_owned(),
            cause,
        };
        let Detected { kind, capacity } = read_engine(&upstream, url, &Declared::default())
            .await
            .map_err(unreachable)?;
        let mut target = Self {
            upstream,
            url: url.into(),
            model: model.unwrap_or_default().into(),
            kind,
            capacity,
        };
        if model.is_none() {
            target.model = target.first_model().await?;
        }
        Ok(target)
    }

    async fn first_model(&self) -> Result<Arc<str>, CalibrateError> {
        let none = || CalibrateError::NoModel {
            url: self.url.to_string(),
        };
        let asked = self.upstream.get(&self.url, MODELS).await;
        let body = Limited::new(asked.map_err(|_| none())?.into_body(), BYTES_MAX);
        let read = tokio::time::timeout(ANSWER_TIMEOUT, body.collect()).await;
        let body = read.map_err(|_| none())?.map_err(|_| none())?.to_bytes();
        let models = models_of(&body);
        models
            .first()
            .map(|model| model.id.as_str().into())
            .ok_or_else(none)
    }

    /// Its processes, if they are on this machine.
    pub(super) fn watch(&self) -> Option<Watch> {
        Watch::of(&self.url)
    }

    /// Whether requests can be pinned to numbered slots.
    pub(super) fn has_slots(&self) -> bool {
        self.kind == EngineKind::Llamacpp
    }

    /// Sends a request and times its answer.
    pub(super) async fn complete(&self, request: Request) -> Result<Answer, CalibrateError> {
        self.complete_into(request, Stamps::default()).await
    }

    /// The same; the times can be read while the answer comes. Dropping the future ends the
    /// request.
    pub(super) async fn complete_into(
        &self,
        request: Request,
        stamps: Stamps,
    ) -> Result<Answer, CalibrateError> {
        let timeout = ANSWER_TIMEOUT;
        let answer = tokio::time::timeout(timeout, self.exchange(request, stamps));
        answer.await.unwrap_or_else(|_| {
            let seconds = timeout.as_secs();
            let what = format!("no end of an answer within {seconds} s");
            Err(CalibrateError::Broken(what))
        })
    }

    fn body(&self, request: &Request) -> Value {
        let mut body = json!({
            "model": &*self.model,
            "prompt": request.prompt,
            "max_tokens": request.output_tokens,
            "ignore_eos": true,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(slot) = request.slot.filter(|_| self.has_slots()) {
            body["id_slot"] = json!(slot);
        }
        body
    }

    async fn exchange(&self, request: Request, stamps: Stamps) -> Result<Answer, CalibrateError> {
        let body = self.body(&request).to_string();
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let broken = |error: &dyn std::fmt::Display| CalibrateError::Broken(error.to_string());
        let sent_at = Instant::now();
        let upstream = &self.upstream;
        let sent = upstream.send(Method::POST, &self.url, COMPLETIONS, &headers, body.into());
        let response = sent.await.map_err(|error| broken(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(refusal(status.as_u16(), response.into_body()).await);
        }
        let mut usage = StreamUsage::new(Endpoint::Completions);
        let mut events = SseScanner::new(BYTES_MAX);
        let mut body = response.into_body();
        let mut whole = true;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            let at = Instant::now();
            let mut take = |event: &[u8]| {
                let before = usage.output_tokens_seen();
                usage.observe(event);
                if usage.output_tokens_seen() > before {
                    stamps.push(at);
                }
            };
            if let Some(data) = frame.data_ref() {
                whole = events.feed(data, &mut take).is_ok();
            }
        }
        if let Some(error) = usage.error() {
            return Err(broken(&error));
        }
        if !whole || !events.saw_done() {
            return Err(broken(&"its stream has no [DONE]"));
        }
        answer(sent_at, stamps.all(), &usage)
    }
}

fn answer(
    sent_at: Instant,
    tokens_at: Vec<Instant>,
    usage: &StreamUsage,
) -> Result<Answer, CalibrateError> {
    let told = usage.usage();
    let prompt_tokens = told
        .prompt_tokens
        .ok_or(CalibrateError::NoUsage("usage.prompt_tokens"))?;
    let output_tokens = told
        .output_tokens
        .ok_or(CalibrateError::NoUsage("usage.completion_tokens"))?;
    Ok(Answer {
        sent_at,
        tokens_at,
        ended_at: Instant::now(),
        prompt_tokens,
        output_tokens,
        cached_tokens: told.cached_tokens,
    })
}

async fn refusal(status: u16, body: Incoming) -> CalibrateError {
    let body = Limited::new(body, BYTES_MAX).collect().await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&body[..body.len().min(REPLY_BYTES_MAX)]);
    CalibrateError::Refused {
        path: COMPLETIONS,
        status,
        said: said.trim().to_owned(),
        remedy: match status {
            401 | 403 => "; calibrate at an address that asks for no key",
            404 => "; name the model that it serves with --model, and an engine with completions",
            400 => "; it must take token ids as a prompt; lower --context-max if that is too long",
            429 | 503 => "; leave the engine alone while it is calibrated",
            _ => "",
        },
    }
}

impl Answer {
    /// From sending to the first output, in microseconds.
    pub(super) fn first_token_us(&self) -> Option<f64> {
        let first = self.tokens_at.first()?;
        Some(micros(*first - self.sent_at))
    }
}

/// A duration in microseconds.
pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
