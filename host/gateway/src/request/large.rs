//! A non-streaming response that exceeds the buffer: it is relayed as it arrives, and its usage is
//! parsed from a copy without long strings. It can no longer be retried.

use super::attempt::{finish_of, marked, too_slow};
use super::end::End;
use super::generate::Call;
use crate::guard::StepGuard;
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::http::response::Parts;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use treadle_core::programs::StepTokens;
use treadle_http::InUse;
use treadle_scheduler::Recording;
use treadle_wire::{Elided, Endpoint, usage_of_body};

/// Largest copy of a response without its long strings.
const ACCOUNT_BYTES_MAX: usize = 16 << 20;

/// A large response and its bytes so far.
pub(super) struct LargeAnswer {
    pub(super) parts: Parts,
    pub(super) begun: VecDeque<Bytes>,
    pub(super) rest: Incoming,
    /// Deadline for its last byte.
    pub(super) deadline: Instant,
    /// The permit for the bytes so far.
    pub(super) room: InUse<1>,
}

impl LargeAnswer {
    /// Relays the response to the client.
    pub(super) fn respond(self, call: &Call, mut guard: StepGuard) -> Response<Body> {
        let mut account = Elided::new(ACCOUNT_BYTES_MAX);
        self.begun.iter().for_each(|piece| account.push(piece));
        if !self.parts.status.is_success() {
            guard.failed(&format!("the engine answered {}", self.parts.status));
        }
        if let Some(capture) = call.capture() {
            capture.leave_out();
        }
        let body = LargeBody {
            pending: self.begun,
            last: None,
            upstream: Some(self.rest),
            overdue: Box::pin(tokio::time::sleep_until(self.deadline)),
            patience: call.app.response_timeout,
            endpoint: call.endpoint,
            account,
            guard,
            recorded: None,
            end: End::Orderly,
            _room: self.room,
        };
        marked(call, &self.parts, Body::new(body))
    }
}

struct LargeBody {
    pending: VecDeque<Bytes>,
    /// Held back until the step's end is on record.
    last: Option<Bytes>,
    upstream: Option<Incoming>,
    overdue: Pin<Box<Sleep>>,
    patience: Duration,
    endpoint: Endpoint,
    account: Elided,
    guard: StepGuard,
    recorded: Option<Recording>,
    end: End,
    _room: InUse<1>,
}

impl LargeBody {
    fn take(&mut self, piece: Bytes) {
        self.account.push(&piece);
        self.pending.extend(self.last.replace(piece));
    }

    /// Handles the end of the engine's response; a break does not matter if it is complete.
    fn finish(&mut self, broke: Option<&str>) {
        self.upstream = None;
        let account = self.account.text();
        if let Some(cause) = broke
            && account.is_none_or(|text| serde_json::from_slice::<IgnoredAny>(text).is_err())
        {
            return self.break_off(cause);
        }
        let usage = account.and_then(|text| usage_of_body(self.endpoint, text));
        let usage = usage.unwrap_or_default();
        let tokens = StepTokens {
            prompt: usage.prompt_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            cached: usage.cached_tokens,
        };
        let (finish, weights) = (finish_of(usage.finish), usage.weights);
        self.recorded = self.guard.finished(tokens, finish, weights.name());
        if self.recorded.is_none() {
            self.pending.extend(self.last.take());
        }
    }

    fn break_off(&mut self, cause: &str) {
        self.upstream = None;
        self.guard.failed(cause);
        self.end = End::BrokenAfterFlush;
    }
}

impl HttpBody for LargeBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(recorded) = self.recorded.as_mut() {
                let recorded = ready!(Pin::new(recorded).poll(context));
                self.recorded = None;
                let last = self.last.take();
                match recorded {
                    Ok(()) => self.pending.extend(last),
                    Err(_) => self.end = End::BrokenAfterFlush,
                }
                continue;
            }
            let Some(upstream) = self.upstream.as_mut() else {
                return self.end.poll(context);
            };
            let Poll::Ready(frame) = Pin::new(upstream).poll_frame(context) else {
                ready!(self.overdue.as_mut().poll(context));
                let cause = too_slow(self.patience);
                self.break_off(&cause);
                continue;
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.take(piece);
                    }
                }
                Some(Err(error)) => {
                    self.finish(Some(&format!("the engine aborted its response: {error}")));
                }
                None => self.finish(None),
            }
        }
    }
}
