//! Causes of failed attempts: for the journal, the client and the scheduler.

use super::generate::Call;
use crate::routing::SchedulerClient;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::response::Parts;
use hyper::{HeaderMap, StatusCode, header};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_http::retry_after;
use treadle_model::{Span, WorkerId};
use treadle_scheduler::Dispatch;
use treadle_wire::{TurnedAway, words_of};

/// Largest stored error response of an engine.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// Assumed busy time of an engine that does not report one.
const BUSY_GUESS: Duration = Duration::from_secs(1);

/// Why an attempt failed.
pub(super) struct Cause {
    text: String,
    busy: Option<Box<BusyAnswer>>,
}

/// The response of a busy engine, which the client gets if no other engine accepts the step.
pub(super) struct BusyAnswer {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    wait: Duration,
}

impl BusyAnswer {
    /// How long the engine is busy.
    pub(super) fn wait(&self) -> Span {
        Span::from_micros(u64::try_from(self.wait.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Cause {
    /// The engine's response, if it was busy.
    pub(super) fn into_busy(self) -> Option<Box<BusyAnswer>> {
        self.busy
    }

    /// A reference to the engine's response, if it was busy.
    pub(super) fn busy(&self) -> Option<&BusyAnswer> {
        self.busy.as_deref()
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self { text, busy: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Statuses with which engines and their proxies answer "not now".
pub(super) fn may_turn_away(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Reads the body of an engine's refusal.
pub(super) async fn refusal_of(body: Incoming) -> Bytes {
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .unwrap_or_default()
}

/// The cause if an engine turned the request away; `None` for other responses.
pub(super) fn turned_away(
    call: &Call,
    dispatch: &Dispatch,
    parts: &Parts,
    body: &Bytes,
) -> Option<Cause> {
    let told = wait_of(&parts.headers);
    let meaning = TurnedAway::of(parts.status.as_u16(), told.is_some(), body)?;
    let text = format!("the engine answered {}{}", parts.status, in_words(body));
    let busy = (meaning == TurnedAway::Busy).then(|| {
        Box::new(BusyAnswer {
            parts: parts.clone(),
            body: body.clone(),
            wait: told.unwrap_or(BUSY_GUESS),
        })
    });
    if meaning == TurnedAway::Down {
        is_down(&call.client, dispatch.worker, &text);
    }
    Some(Cause { text, busy })
}

/// An engine's error message, to follow its status.
pub(super) fn in_words(body: &[u8]) -> String {
    let words = words_of(body);
    if words.is_empty() {
        words
    } else {
        format!(": {words}")
    }
}

/// Whether a body has an error and no answer, as proxies send it with any status.
pub(super) fn is_error(body: &[u8]) -> bool {
    /// Fields of answers.
    const ANSWERS: [&str; 6] = [
        "choices",
        "content",
        "output",
        "output_ids",
        "text",
        "token_ids",
    ];
    if body.len() > REFUSAL_BYTES_MAX {
        return false;
    }
    let fields: Option<BTreeMap<&str, &RawValue>> = serde_json::from_slice(body).ok();
    fields.is_some_and(|fields| {
        let has_error = fields
            .get("error")
            .is_some_and(|error| error.get() != "null");
        has_error && !ANSWERS.iter().any(|answer| fields.contains_key(answer))
    })
}

/// Reports an engine as down before the failure, so that the scheduler does not choose it again.
pub(super) fn is_down(client: &SchedulerClient, worker: WorkerId, cause: &str) {
    client.event(Event::Program(ProgramEvent::WorkerLost {
        worker,
        cause: cause.into(),
    }));
}

fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    headers
        .contains_key(header::RETRY_AFTER)
        .then(|| retry_after(headers).max(BUSY_GUESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_answer_whatever_its_status() {
        for (body, expected) in [
            (r#"{"error":{"message":"CUDA error"}}"#, true),
            (r#"{"error":"CUDA error"}"#, true),
            (r#"{"error":null}"#, false),
            (r#"{"error":{"message":"cut"},"choices":[]}"#, false),
            (
                r#"{"status":"failed","error":{"code":"x"},"output":[]}"#,
                false,
            ),
            ("error", false),
        ] {
            assert_eq!(is_error(body.as_bytes()), expected, "{body}");
        }
    }
}
