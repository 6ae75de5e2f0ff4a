//! Event streams: bytes are forwarded as they come; their content is read beside.
//!
//! A stream that breaks off, or that is not an event stream, ends with an error event and a broken
//! connection, never with a silent end.

use super::attempt::{finish_of, mark, too_slow};
use super::generate::{Call, GatewayState};
use super::interruption::{Interruptible, StreamAction};
use crate::bodies::PayloadCapture;
use crate::guard::StepGuard;
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use treadle_core::StepTokens;
use treadle_http::end_to_end;
use treadle_scheduler::Recording;
use treadle_wire::{ErrorBody, ErrorCode, SseError, SseScanner, StreamUsage};

/// Output tokens after which progress is reported.
const PROGRESS_TOKENS: u64 = 64;
/// Time after which progress is reported.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// An answer whose first bytes are here.
pub(super) struct StreamAnswer {
    pub(super) parts: hyper::http::response::Parts,
    pub(super) first: Bytes,
    pub(super) rest: Incoming,
    /// When the last of it must be here.
    pub(super) deadline: tokio::time::Instant,
}

/// Waits for the first bytes, until which the attempt may be repeated.
pub(super) async fn first_frame(mut body: Incoming) -> Result<(Bytes, Incoming), String> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the engine broke its stream off: {e}"))?;
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            return Ok((data, body));
        }
    }
    Err("the engine ended its stream before the first event".into())
}

impl StreamAnswer {
    pub(super) fn respond(
        self,
        call: &Call,
        guard: StepGuard,
        interruptible: Option<Interruptible>,
    ) -> Response<Body> {
        let stream = StepStream {
            upstream: Some(self.rest),
            overdue: Box::pin(tokio::time::sleep_until(self.deadline)),
            pending: VecDeque::new(),
            scanner: SseScanner::default(),
            usage: StreamUsage::new(call.endpoint),
            guard,
            app: call.app.clone(),
            interruptible,
            recorded: None,
            kept: call.capture().map(Kept::new),
            reported_at: None,
            reported_tokens: 0,
            end: End::Orderly,
        };
        let mut stream = stream;
        stream.take(self.first);
        let mut response = Response::new(Body::new(stream));
        *response.status_mut() = self.parts.status;
        *response.headers_mut() = end_to_end(&self.parts.headers);
        mark(call, &mut response);
        response
    }
}

/// How the stream ends once its last bytes are handed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// As the engine's did.
    Orderly,
    /// With a broken connection, as soon as what came before is on its way.
    BrokenAfterFlush,
    /// With a broken connection.
    Broken,
}

struct StepStream {
    upstream: Option<Incoming>,
    overdue: Pin<Box<Sleep>>,
    pending: VecDeque<Bytes>,
    scanner: SseScanner,
    usage: StreamUsage,
    guard: StepGuard,
    app: Arc<GatewayState>,
    interruptible: Option<Interruptible>,
    /// Holds the last bytes back until the step's end is on record.
    recorded: Option<Recording>,
    /// What came, to be kept once the step is over.
    kept: Option<Kept>,
    reported_at: Option<Instant>,
    reported_tokens: u64,
    end: End,
}

/// The pieces of an answer, shared with those on their way to the client.
struct Kept {
    capture: PayloadCapture,
    pieces: Vec<Bytes>,
    bytes: u64,
}

impl Kept {
    fn new(capture: PayloadCapture) -> Self {
        Self {
            capture,
            pieces: Vec::new(),
            bytes: 0,
        }
    }

    /// Beyond the bound one piece more is kept, so that the whole is left out and counted.
    fn add(&mut self, piece: &Bytes) {
        if self.bytes <= self.capture.answer_bytes_max() {
            self.bytes += piece.len() as u64;
            self.pieces.push(piece.clone());
        }
    }
}

impl StepStream {
    /// Reads the content of the bytes, then queues them for the client.
    fn take(&mut self, data: Bytes) {
        let data = match self.read(data) {
            Ok(data) => data,
            Err(error) => {
                return self.break_off(&format!("the engine sent no valid event stream: {error}"));
            }
        };
        if let Some(kept) = &mut self.kept {
            kept.add(&data);
        }
        self.pending.push_back(data);
        self.report_progress();
        if self.scanner.saw_done() {
            self.finish();
        }
        self.interrupt();
    }

    /// Reads the content of the bytes; what the client is to see of them.
    fn read(&mut self, data: Bytes) -> Result<Bytes, SseError> {
        let usage = &mut self.usage;
        let (data, is_observed) = match &mut self.interruptible {
            Some(interruptible) => {
                let is_observed = interruptible.observes();
                (interruptible.passed(data, usage)?, is_observed)
            }
            None => (data, false),
        };
        self.scanner.feed(&data, &mut |event| {
            if !is_observed {
                usage.observe(event);
            }
        })?;
        Ok(data)
    }

    /// Drops the engine's request, if the scheduler wants that and the rest can be requested later.
    fn interrupt(&mut self) {
        let is_over = self.usage.usage().finish.is_some() || self.scanner.saw_done();
        let (counted, is_between) = (
            self.usage.output_tokens_reported(),
            self.scanner.ended_cleanly(),
        );
        if let Some(interruptible) = &mut self.interruptible
            && !is_over
            && interruptible.interrupts(counted, is_between)
        {
            self.upstream = None;
        }
    }

    /// Follows the scheduler's instructions; true if there is no engine to read from.
    fn poll_instructions(&mut self, context: &mut Context<'_>) -> bool {
        let Some(interruptible) = &mut self.interruptible else {
            return false;
        };
        match interruptible.poll_instructions(context) {
            StreamAction::Nothing => false,
            StreamAction::Wait => true,
            StreamAction::Read(incoming) => {
                self.upstream = Some(incoming);
                let timeout = self.app.response_timeout;
                let deadline = tokio::time::Instant::now() + timeout;
                self.overdue.as_mut().reset(deadline);
                false
            }
            StreamAction::BreakOff { cause, is_known } => {
                self.interruptible = None;
                if is_known {
                    self.guard.settle();
                }
                self.break_off(&cause);
                false
            }
        }
    }

    /// Reports progress to the scheduler, by count and by time.
    fn report_progress(&mut self) {
        let seen = self.usage.output_tokens_seen();
        if seen == 0 {
            return;
        }
        let Some(reported_at) = self.reported_at else {
            self.reported_at = Some(Instant::now());
            return self.guard.first_token();
        };
        if seen - self.reported_tokens >= PROGRESS_TOKENS
            || (seen > self.reported_tokens && reported_at.elapsed() >= PROGRESS_PAUSE)
        {
            self.reported_at = Some(Instant::now());
            self.reported_tokens = seen;
            self.guard.progressed(seen);
        }
    }

    fn finish(&mut self) {
        let usage = self.usage.usage();
        let tokens = StepTokens {
            prompt: usage.prompt_tokens.unwrap_or(0),
            output: usage
                .output_tokens
                .unwrap_or_else(|| self.usage.output_tokens_seen()),
            cached: usage.cached_tokens,
        };
        if let Some(recorded) =
            self.guard
                .finished(tokens, finish_of(usage.finish), usage.weights.name())
        {
            self.recorded = Some(recorded);
            if let Some(kept) = self.kept.take() {
                kept.capture.file(&kept.pieces);
            }
        }
    }

    fn end(&mut self) {
        self.upstream = None;
        if self.scanner.saw_done() {
            return;
        }
        let complete = self.usage.usage().finish.is_some() && self.scanner.ended_cleanly();
        if complete {
            // Some engines end with the finish reason and no [DONE].
            self.finish();
        } else {
            self.break_off("the engine ended its stream in the middle");
        }
    }

    fn break_off(&mut self, cause: &str) {
        self.upstream = None;
        self.end = End::BrokenAfterFlush;
        self.guard.failed(cause);
        let error = ErrorBody::new(ErrorCode::EngineStreamBroken, cause);
        // A blank line first: the break may lie in the middle of an event.
        let mut event = b"\n\n".to_vec();
        event.extend(error.to_sse_event());
        self.pending.push_back(event.into());
    }
}

impl StepStream {
    fn poll_end(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.end {
            End::Orderly => Poll::Ready(None),
            End::BrokenAfterFlush => {
                // An error drops what the server has not written yet; it
                // writes when it is made to wait.
                self.end = End::Broken;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            End::Broken => {
                self.end = End::Orderly;
                let broken = std::io::Error::other("the engine's stream broke off");
                Poll::Ready(Some(Err(broken)))
            }
        }
    }
}

impl HttpBody for StepStream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(recorded) = self.recorded.as_mut() {
                let recorded = ready!(Pin::new(recorded).poll(context));
                self.recorded = None;
                if let Err(error) = recorded {
                    self.pending.clear();
                    self.break_off(&error.to_string());
                }
            }
            if let Some(data) = self.pending.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if self.poll_instructions(context) {
                return Poll::Pending;
            }
            self.interrupt();
            if self.poll_instructions(context) {
                return Poll::Pending;
            }
            let Some(upstream) = self.upstream.as_mut() else {
                if !self.pending.is_empty() {
                    continue;
                }
                return self.poll_end(context);
            };
            let Poll::Ready(frame) = Pin::new(upstream).poll_frame(context) else {
                ready!(self.overdue.as_mut().poll(context));
                let cause = too_slow(self.app.response_timeout);
                self.break_off(&cause);
                continue;
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.take(data);
                    }
                }
                Some(Err(error)) if !self.scanner.saw_done() => {
                    self.break_off(&format!("the engine broke its stream off: {error}"));
                }
                Some(Err(_)) | None => self.end(),
            }
        }
    }
}
