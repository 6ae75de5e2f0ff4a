//! The control protocols of engines: what each call is for each software, and what its answers
//! mean. A call that changes weights is sent once; whatever does not clearly say that nothing has
//! changed counts as failed.

mod exchange;
mod llama_cpp;
mod sglang;
mod vllm;

pub use exchange::{EngineRequest, Exchange, NoAnswer};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::time::Duration;
use treadle_core::weights::{Answer, Call, Checksum, Weights};
use treadle_model::{EngineKind, WEIGHTS_BYTES_MAX};

/// Longest time of a call that loads weights.
const APPLY_TIMEOUT: Duration = Duration::from_mins(30);
/// Longest time of any other call: a pause waits for the step under way, a checksum reads all
/// weights.
const CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest words of an engine that are kept.
const WORDS_MAX: usize = 400;

/// One engine.
#[derive(Clone, Copy)]
pub struct Engine<'e> {
    /// What carries requests there.
    pub upstream: &'e dyn Exchange,
    /// Its base URL.
    pub url: &'e str,
    /// Its software.
    pub kind: EngineKind,
}

/// Makes a call.
pub async fn call(engine: Engine<'_>, call: Call, weights: &Weights) -> Answer {
    match engine.kind {
        EngineKind::Vllm => vllm::call(engine, call, weights).await,
        EngineKind::Sglang => sglang::call(engine, call, weights).await,
        EngineKind::Llamacpp => llama_cpp::call(engine, call, weights).await,
        EngineKind::Openai => refused(
            "its software is not known, so treadle can't load weights there; register it with its \
             `kind`",
        ),
    }
}

impl Engine<'_> {
    async fn get(self, path: &str) -> Result<(StatusCode, Bytes), NoAnswer> {
        self.send(Method::GET, path, None, CALL_TIMEOUT).await
    }

    async fn post(self, path: &str, body: &Value) -> Result<(StatusCode, Bytes), NoAnswer> {
        self.send(Method::POST, path, Some(body), CALL_TIMEOUT)
            .await
    }

    async fn apply(self, path: &str, body: &Value) -> Result<(StatusCode, Bytes), NoAnswer> {
        self.send(Method::POST, path, Some(body), APPLY_TIMEOUT)
            .await
    }

    async fn send(
        self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let request = EngineRequest {
            method,
            url: self.url,
            path,
            body: body.unwrap_or_default(),
            timeout,
        };
        self.upstream.exchange(request).await
    }
}

/// Nothing has changed.
fn refused(cause: &str) -> Answer {
    Answer::Refused {
        cause: cause.into(),
    }
}

/// What has changed is not known.
fn failed(cause: &str) -> Answer {
    Answer::Failed {
        cause: cause.into(),
    }
}

fn unanswered(cause: NoAnswer) -> Answer {
    match cause {
        NoAnswer::NotSent(cause) => refused(&cause),
        NoAnswer::Lost(cause) => failed(&cause),
    }
}

/// An engine's words, for a human.
fn words(path: &str, status: StatusCode, body: &[u8]) -> String {
    let page: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = ["/error/message", "/error", "/message", "/detail"];
    let said = said.iter().find_map(|at| page.pointer(at)?.as_str());
    let text = String::from_utf8_lossy(body);
    let said: String = said
        .unwrap_or(&text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(WORDS_MAX)
        .collect();
    format!("{path} returned {status}: {}", said.trim())
}

/// The answer to a call that succeeds with status 200 and changes no weights.
fn plain(path: &str, answer: Result<(StatusCode, Bytes), NoAnswer>) -> Answer {
    match answer {
        Ok((status, _)) if status.is_success() => Answer::Done,
        Ok((status, body)) if status.is_client_error() => refused(&words(path, status, &body)),
        Ok((status, body)) => failed(&words(path, status, &body)),
        Err(cause) => unanswered(cause),
    }
}

/// A version's name, if it is one.
fn name_in(value: &Value) -> Option<Box<str>> {
    let name = value.as_str()?;
    (1..=WEIGHTS_BYTES_MAX)
        .contains(&name.len())
        .then(|| name.into())
}

/// One checksum of many: of the same tensors on the same ranks, in the order of their names.
fn combined<'t>(tensors: impl Iterator<Item = (&'t str, &'t str)>) -> Option<Checksum> {
    let (mut layout, mut value) = (Sha256::new(), Sha256::new());
    let mut any = false;
    let mut sorted: Vec<(&str, &str)> = tensors.collect();
    sorted.sort_unstable();
    for (name, digest) in sorted {
        any = true;
        layout.update(name.as_bytes());
        layout.update([0]);
        value.update(name.as_bytes());
        value.update([0]);
        value.update(digest.as_bytes());
        value.update([0]);
    }
    any.then(|| Checksum {
        layout: short(&layout.finalize()),
        value: short(&value.finalize()),
    })
}

fn short(digest: &[u8]) -> Box<str> {
    let mut text = String::new();
    for byte in digest.iter().take(16) {
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
pub(crate) mod tests;
