//! Why an attempt failed: for the journal, for the client, and for the scheduler.

use super::generate::Call;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::response::Parts;
use hyper::{HeaderMap, StatusCode, header};
use std::fmt;
use std::time::Duration;
use treadle_core::{Event, ProgramEvent};
use treadle_http::retry_after;
use treadle_model::Span;
use treadle_scheduler::Dispatch;
use treadle_wire::{TurnedAway, words_of};

/// Bytes of an engine's refusal that are kept, at most.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// How long an engine is taken to be busy that does not say for how long.
const BUSY_GUESS: Duration = Duration::from_secs(1);

/// Why an attempt failed.
pub(super) struct Cause {
    text: String,
    busy: Option<Box<BusyAnswer>>,
}

/// What a busy engine answered: its client sees it where no other engine takes the step.
pub(super) struct BusyAnswer {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    wait: Duration,
}

impl BusyAnswer {
    /// For how long the engine is busy.
    pub(super) fn wait(&self) -> Span {
        Span::from_micros(u64::try_from(self.wait.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Cause {
    /// The answer of the engine, if it was busy.
    pub(super) fn into_busy(self) -> Option<Box<BusyAnswer>> {
        self.busy
    }

    /// The same before it is taken.
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

/// What an engine that does not answer for now said.
pub(super) async fn refusal_of(body: Incoming) -> Bytes {
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .unwrap_or_default()
}

/// The cause that an engine's refusal is; nothing if it is an answer.
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
        is_down(call, dispatch, &text);
    }
    Some(Cause { text, busy })
}

/// What an engine says of a failure, behind its status.
pub(super) fn in_words(body: &[u8]) -> String {
    let words = words_of(body);
    if words.is_empty() {
        words
    } else {
        format!(": {words}")
    }
}

/// Reported before the failure, so that the scheduler does not choose the engine again.
pub(super) fn is_down(call: &Call, dispatch: &Dispatch, cause: &str) {
    call.client.event(Event::Program(ProgramEvent::WorkerLost {
        worker: dispatch.worker,
        cause: cause.into(),
    }));
}

fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    headers
        .contains_key(header::RETRY_AFTER)
        .then(|| retry_after(headers).max(BUSY_GUESS))
}
