//! Injected faults, for tests of the server's clients.

use std::io;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};

/// Faults of generation requests. All are off by default; several can be on at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Cut the connection after this many events of a stream, or in the middle of another body.
    pub close_after_events: Option<u32>,
    /// Send an event that is not JSON after the first one, or answer other requests with HTML.
    pub garbage_sse: bool,
    /// Accept the request and never respond.
    pub never_answer: bool,
    /// Respond with this HTTP status (400 to 599) and an error body.
    pub error_status: Option<u16>,
    /// Serve no `/v1/responses`, like older engines; independent of `requests`.
    pub no_responses: bool,
    /// Wait this long in real time before the response's headers, in milliseconds.
    pub header_delay_ms: u64,
    /// Number of affected generation requests; all if absent.
    pub requests: Option<u32>,
}

impl Faults {
    /// Combines two sets; `other` takes precedence.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self {
            close_after_events: other.close_after_events.or(self.close_after_events),
            garbage_sse: self.garbage_sse || other.garbage_sse,
            never_answer: self.never_answer || other.never_answer,
            no_responses: self.no_responses || other.no_responses,
            error_status: other.error_status.or(self.error_status),
            header_delay_ms: self.header_delay_ms.max(other.header_delay_ms),
            requests: other.requests.or(self.requests),
        }
    }
}

/// A text that is not a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "fault {0:?}: use close-after-events=N, garbage-sse, never-answer, error-status=400..599, \
     header-delay-ms=N or requests=N"
)]
pub struct UnknownFault(String);

impl FromStr for Faults {
    type Err = UnknownFault;

    /// Parses one fault, such as `close-after-events=3` or `garbage-sse`.
    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let unknown = || UnknownFault(text.to_owned());
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let number = || value.parse::<u32>().map_err(|_| unknown());
        let mut faults = Self::default();
        match key {
            "close-after-events" => faults.close_after_events = Some(number()?),
            "garbage-sse" if value.is_empty() => faults.garbage_sse = true,
            "never-answer" if value.is_empty() => faults.never_answer = true,
            "no-responses" if value.is_empty() => faults.no_responses = true,
            "error-status" => {
                let status = number()? as u16;
                faults.error_status = Some(status).filter(|each| (400..600).contains(each));
                faults.error_status.ok_or_else(unknown)?;
            }
            "header-delay-ms" => faults.header_delay_ms = u64::from(number()?),
            "requests" => faults.requests = Some(number()?),
            _ => return Err(unknown()),
        }
        Ok(faults)
    }
}

/// The event of the garbage fault.
const GARBAGE_EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":\xff<<garbage\n\n";
const GARBAGE_BODY: &str = "<html><body>garbage</body></html>";

/// The events of a stream as a body, with faults injected.
pub(super) fn event_body<S>(events: S, faults: &Faults) -> Body
where
    S: Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    let limit = faults.close_after_events;
    let garbage = faults.garbage_sse;
    if limit.is_none() && !garbage {
        return Body::from_stream(events);
    }
    let events = events.enumerate().then(move |(place, event)| async move {
        if limit.is_some_and(|limit| place >= limit as usize) {
            return cut_after_flush().await;
        }
        let Ok(event) = event else { return event };
        let spoiled = garbage && place == 0;
        Ok(if spoiled {
            [&event, GARBAGE_EVENT].concat().into()
        } else {
            event
        })
    });
    Body::from_stream(events)
}

/// A whole body, with faults injected.
pub(super) fn whole_body(body: Bytes, faults: &Faults) -> Body {
    if faults.garbage_sse {
        return Body::from(GARBAGE_BODY);
    }
    if faults.close_after_events.is_none() {
        return Body::from(body);
    }
    let half = stream::iter([Ok(body.slice(..body.len() / 2))]);
    Body::from_stream(half.chain(stream::once(cut_after_flush())))
}

/// An answer whose connection breaks before its body.
pub(super) fn broken_answer() -> axum::response::Response {
    axum::response::Response::new(Body::from_stream(stream::once(cut_after_flush())))
}

/// The error that ends a connection in the middle of a body. It waits once, so that the server
/// flushes what came before.
async fn cut_after_flush() -> io::Result<Bytes> {
    tokio::task::yield_now().await;
    Err(io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "cut by a requested fault",
    ))
}

/// The active faults.
#[derive(Default)]
pub(super) struct FaultSwitch(Mutex<Faults>);

impl FaultSwitch {
    pub(super) fn set(&self, faults: Faults) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    pub(super) fn get(&self) -> Faults {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The faults for the next request, which it counts.
    pub(super) fn take(&self) -> Faults {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut faults.requests {
            Some(0) => return Faults::default(),
            Some(left) => *left -= 1,
            None => {}
        }
        faults.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_one_by_one_and_put_together() {
        let parse = |text: &str| text.parse::<Faults>();
        let both = parse("close-after-events=3").unwrap();
        let both = both.with(&parse("garbage-sse").unwrap());
        assert_eq!((both.close_after_events, both.garbage_sse), (Some(3), true));
        for wrong in [
            "",
            "close-after-events",
            "garbage-sse=1",
            "error-status=200",
            "explode",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fault_can_be_limited_to_a_number_of_requests() {
        let switch = FaultSwitch::default();
        switch.set(Faults {
            never_answer: true,
            requests: Some(2),
            ..Faults::default()
        });
        let taken: Vec<bool> = (0..3).map(|_| switch.take().never_answer).collect();
        assert_eq!(taken, [true, true, false]);
    }
}
