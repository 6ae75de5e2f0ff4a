//! Event streams: bytes are relayed as they arrive, and parsed in passing.
//!
//! A stream that breaks off, or is not an event stream, ends with an error event and a broken
//! connection, never silently.

use super::attempt::{finish_of, marked, too_slow};
use super::capture::Capture;
use super::end::End;
use super::first_event::{Begun, is_whole_event};
use super::generate::{Call, GatewayState};
use super::interruption::{Interruptible, StreamAction, poll_cut};
use super::keepalive::Keepalive;
use super::refusal::cut;
use crate::bodies::PayloadCapture;
use crate::guard::StepGuard;
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use memchr::memmem;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Sleep;
use treadle_core::programs::StepTokens;
use treadle_scheduler::{Instruction, Recording};
use treadle_wire::{Endpoint, ErrorBody, ErrorCode, SseError, SseScanner, StreamUsage};

/// Output tokens after which progress is reported.
const PROGRESS_TOKENS: u64 = 64;
/// Time after which progress is reported.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);
/// How long an engine may take to close a stream after its final event.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// A streaming response whose first event has arrived.
pub(super) struct StreamAnswer {
    pub(super) parts: hyper::http::response::Parts,
    pub(super) begun: Begun,
    /// Deadline for its last byte.
    pub(super) deadline: tokio::time::Instant,
}

impl StreamAnswer {
    pub(super) fn respond(
        self,
        call: &Call,
        guard: StepGuard,
        instructions: UnboundedReceiver<Instruction>,
        interruptible: Option<Interruptible>,
        capture: Option<Capture>,
    ) -> Response<Body> {
        let mut stream = StepStream {
            upstream: None,
            overdue: Box::pin(tokio::time::sleep_until(self.deadline)),
            pending: VecDeque::new(),
            scanner: SseScanner::observing(),
            usage: StreamUsage::new(call.endpoint),
            endpoint: call.endpoint,
            outputs: call.head.outputs(call.endpoint, &call.body),
            guard,
            app: call.app.clone(),
            instructions,
            interruptible,
            is_captured: capture.is_some(),
            capture,
            keeping: None,
            recorded: None,
            kept: call.capture().map(CapturedPieces::new),
            reported_at: None,
            reported_tokens: 0,
            sign: Keepalive::new(call.app.keep_alive),
            end: End::Orderly,
        };
        stream.upstream = self.begun.rest;
        let is_over = stream.upstream.is_none();
        stream.take(self.begun.first);
        if is_over {
            stream.end(self.begun.broke.as_deref());
        }
        marked(call, &self.parts, Body::new(stream))
    }
}

type Keeping = Pin<Box<dyn Future<Output = ()> + Send>>;

struct StepStream {
    upstream: Option<Incoming>,
    overdue: Pin<Box<Sleep>>,
    pending: VecDeque<Bytes>,
    scanner: SseScanner,
    usage: StreamUsage,
    endpoint: Endpoint,
    /// Number of requested outputs.
    outputs: u64,
    guard: StepGuard,
    app: Arc<GatewayState>,
    instructions: UnboundedReceiver<Instruction>,
    interruptible: Option<Interruptible>,
    is_captured: bool,
    /// Captures its tokens, until it has ended.
    capture: Option<Capture>,
    /// Stores them, before the step's end is put on record.
    keeping: Option<Keeping>,
    /// Holds the last bytes back until the step's end is on record.
    recorded: Option<Recording>,
    /// The response so far, to be stored at the end of the step.
    kept: Option<CapturedPieces>,
    reported_at: Option<Instant>,
    reported_tokens: u64,
    sign: Keepalive,
    end: End,
}

/// The pieces of a response, shared with those sent to the client.
struct CapturedPieces {
    capture: PayloadCapture,
    pieces: Vec<Bytes>,
    bytes: u64,
}

impl CapturedPieces {
    fn new(capture: PayloadCapture) -> Self {
        Self {
            capture,
            pieces: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a piece. Beyond the limit one more piece is kept, so that the whole response is dropped
    /// and counted.
    fn add(&mut self, piece: &Bytes) {
        if self.bytes <= self.capture.answer_bytes_max() {
            self.bytes += piece.len() as u64;
            self.pieces.push(piece.clone());
        }
    }
}

impl StepStream {
    /// Parses the bytes, then queues them for the client.
    fn take(&mut self, data: Bytes) {
        let mut data = match self.read(data) {
            Ok(data) => data,
            Err(error) => {
                return self.break_off(&format!("the engine sent no valid event stream: {error}"));
            }
        };
        let is_cut_short = self.is_over() && !self.is_complete();
        if is_cut_short {
            // Clients take this for the end of a complete answer.
            let end = memmem::find(&data, b"[DONE]").unwrap_or(data.len());
            data.truncate(memmem::rfind(&data[..end], b"data:").unwrap_or(0));
        }
        if let Some(kept) = &mut self.kept {
            kept.add(&data);
        }
        self.pending.push_back(data);
        self.report_progress();
        if is_cut_short {
            let outputs = self.outputs.max(1);
            return self.break_off(&format!(
                "the engine ended its stream although not each of {outputs} outputs had ended"
            ));
        }
        if self.is_over() {
            self.finish();
        }
        self.interrupt();
    }

    /// Parses the bytes; returns the client's part of them.
    fn read(&mut self, data: Bytes) -> Result<Bytes, SseError> {
        let usage = &mut self.usage;
        let (data, is_observed) = match &mut self.interruptible {
            Some(interruptible) => {
                let is_observed = interruptible.observes();
                (interruptible.passed(data, usage)?, is_observed)
            }
            None => match &mut self.capture {
                Some(capture) => (capture.passed(&data, usage)?, true),
                // What comes after its end has no use, and may have tokens.
                None if self.is_captured => (Bytes::new(), true),
                None => (data, false),
            },
        };
        self.scanner.feed(&data, &mut |event| {
            if !is_observed {
                usage.observe(event);
            }
        })?;
        Ok(data)
    }

    /// Whether the engine has sent its final event.
    fn is_over(&self) -> bool {
        self.scanner.saw_done() || self.usage.is_over()
    }

    /// Whether the answer is complete, or is an error.
    fn is_complete(&self) -> bool {
        self.usage.error().is_some() || self.usage.is_complete(self.outputs)
    }

    /// Drops the engine's request, if the scheduler wants that and the rest can be requested later.
    fn interrupt(&mut self) {
        let is_over = self.usage.usage().finish.is_some() || self.is_over();
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
        let instructions = &mut self.instructions;
        let action = match &mut self.interruptible {
            Some(interruptible) => interruptible.poll_instructions(instructions, context),
            None => poll_cut(instructions, context),
        };
        match action {
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
            // It has ended already.
            StreamAction::Cut { .. } if self.guard.is_settled() => false,
            StreamAction::Cut { is_known } => {
                self.interruptible = None;
                if is_known {
                    self.guard.settle();
                }
                self.break_off_with(&cut());
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
        if let Some(error) = self.usage.error() {
            // The engine has reported the error to its client.
            self.guard
                .failed(&format!("the engine's stream reports: {error}"));
            self.capture = None;
            return self.file();
        }
        if let Some(capture) = self.capture.take() {
            self.keeping = Some(Box::pin(capture.keep()));
        }
        if self.keeping.is_none() {
            self.record();
        }
    }

    /// Puts the step's end on record.
    fn record(&mut self) {
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
            let linger = tokio::time::Instant::now() + LINGER_MAX;
            self.overdue.as_mut().reset(linger);
            self.file();
        }
    }

    /// Stores the response so far, if enabled.
    fn file(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.capture.file(&kept.pieces);
        }
    }

    /// Handles the end of the engine's stream, whether proper or broken. Whether the response is
    /// complete only shows in its content.
    fn end(&mut self, broke: Option<&str>) {
        self.upstream = None;
        if self.is_over() {
            return;
        }
        self.take_last_event();
        let is_unknown = broke.is_none() && self.scanner.saw_unread();
        if self.is_complete() || is_unknown {
            self.finish();
        } else {
            self.break_off(broke.unwrap_or("the engine ended its stream in the middle"));
        }
    }

    /// Terminates a last event without terminator, unless it is incomplete.
    fn take_last_event(&mut self) {
        if let Some(interruptible) = &mut self.interruptible
            && interruptible.observes()
        {
            let rest = interruptible.finish(&mut self.usage);
            // It was just written, so it is valid.
            let _ = self.scanner.feed(&rest, &mut |_| {});
            return self.pending.push_back(rest);
        }
        if let Some(capture) = &mut self.capture {
            let rest = capture.rest(&mut self.usage);
            let _ = self.scanner.feed(&rest, &mut |_| {});
            return self.pending.push_back(rest);
        }
        let (usage, mut is_whole) = (&mut self.usage, false);
        let end = self.scanner.finish(&mut |event| {
            is_whole = is_whole_event(event);
            usage.observe(event);
        });
        if let Some(end) = end.filter(|_| is_whole) {
            self.pending.push_back(Bytes::from_static(end));
        }
    }

    fn break_off(&mut self, cause: &str) {
        self.break_off_with(&ErrorBody::new(ErrorCode::EngineStreamBroken, cause));
    }

    fn break_off_with(&mut self, error: &ErrorBody) {
        self.upstream = None;
        self.end = End::BrokenAfterFlush;
        self.guard.failed(&error.message);
        self.file();
        // A blank line first, because the stream may have broken within an event.
        let mut event = b"\n\n".to_vec();
        event.extend(error.to_event(self.endpoint));
        self.pending.push_back(event.into());
    }

    /// Polls the response without keepalives.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            if let Some(keeping) = self.keeping.as_mut() {
                ready!(keeping.as_mut().poll(context));
                self.keeping = None;
                self.record();
            }
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
                return self.end.poll(context);
            };
            let Poll::Ready(frame) = Pin::new(upstream).poll_frame(context) else {
                ready!(self.overdue.as_mut().poll(context));
                let cause = too_slow(self.app.response_timeout);
                self.end(Some(&cause));
                continue;
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.take(data);
                    }
                }
                Some(Err(error)) => {
                    self.end(Some(&format!("the engine aborted its stream: {error}")));
                }
                None => self.end(None),
            }
        }
    }

    /// Whether a comment may be inserted here.
    fn is_between_events(&self) -> bool {
        let is_held_back = self.keeping.is_some();
        let is_between = !self.is_over() && self.scanner.ended_cleanly();
        self.end == End::Orderly && (is_held_back || is_between)
    }
}

impl HttpBody for StepStream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = self.poll_answer(context);
        if frame.is_ready() {
            self.sign.sent();
        } else if self.is_between_events() {
            let sign = self.sign.poll(context);
            return sign.map(|sign| Some(Ok(Frame::data(sign))));
        }
        frame
    }
}
