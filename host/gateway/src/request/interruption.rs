//! Interruptible streams: the engine's request is dropped when the scheduler preempts it, and the
//! rest is requested when it is dispatched again, to any engine. The client sees one response with
//! a pause.

use super::attempt::{is_stream, send, too_slow};
use super::cause::Cause;
use super::continuation::Continuation;
use super::counts::Counts;
use super::generate::Call;
use super::obstacles::{HELD_BACK, WHITE_SPACE};
use super::parts::StreamRequest;
use super::prefill::{PairedPrefill, pair};
use super::rest::Rewriter;
use bytes::Bytes;
use hyper::body::Incoming;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use treadle_core::programs::Refusal;
use treadle_http::InUse;
use treadle_model::EngineKind;
use treadle_scheduler::{Dispatch, Instruction};
use treadle_wire::{SseError, SseScanner, StreamUsage};

type Resuming = Pin<Box<dyn Future<Output = Result<Incoming, String>> + Send>>;

/// The state of the stream.
enum Part {
    /// Running at an engine.
    Running,
    /// Interrupted.
    Paused(Continuation),
    /// Being sent to an engine again.
    Resuming(Resuming),
}

/// State of an interruptible stream.
pub(super) struct Interruptible {
    call: Arc<Call>,
    /// The request to its engine.
    request: Bytes,
    engine: EngineKind,
    part: Part,
    /// Whether the scheduler wants it interrupted, which waits for a boundary between events.
    wanted: bool,
    /// All bytes that were sent to the client.
    sent: Vec<Bytes>,
    sent_bytes: usize,
    /// The permit for the sent bytes.
    room: InUse<1>,
    counts: Option<Counts>,
    /// The kind of engine that was asked for counts.
    counts_of: EngineKind,
    /// Rewriter of the running part; `None` while the engine's events are passed unchanged.
    rewriter: Option<Rewriter>,
}

/// The next action of a stream.
pub(super) enum StreamAction {
    /// Continue with the current engine.
    Nothing,
    /// Wait, as no engine is running it.
    Wait,
    /// Read from this engine.
    Read(Incoming),
    /// End with an error.
    BreakOff {
        /// The cause, as readable text.
        cause: String,
        /// True if the step has already ended for the scheduler.
        is_known: bool,
    },
    /// End with an error, as the step's member was cut.
    Cut {
        /// True if the step has already ended for the scheduler.
        is_known: bool,
    },
}

/// Takes the scheduler's further instructions along with a stream.
pub(super) fn taken(
    instructions: &mut UnboundedReceiver<Instruction>,
) -> UnboundedReceiver<Instruction> {
    std::mem::replace(instructions, unbounded_channel().1)
}

/// Polls the scheduler's instructions for a stream that can't be interrupted.
pub(super) fn poll_cut(
    instructions: &mut UnboundedReceiver<Instruction>,
    context: &mut Context<'_>,
) -> StreamAction {
    loop {
        match instructions.poll_recv(context) {
            Poll::Ready(Some(Instruction::Cut)) => return StreamAction::Cut { is_known: false },
            Poll::Ready(Some(_)) => {}
            Poll::Pending | Poll::Ready(None) => return StreamAction::Nothing,
        }
    }
}

impl Interruptible {
    pub(super) fn new(call: Arc<Call>, request: StreamRequest, engine: EngineKind) -> Self {
        let room = InUse::new([call.app.room.answers.clone()]);
        let bytes_max = call.app.answer_bytes_max;
        let counts = request.counts;
        Self {
            call,
            request: request.body,
            engine,
            part: Part::Running,
            wanted: false,
            sent: Vec::new(),
            sent_bytes: 0,
            room,
            counts,
            counts_of: engine,
            rewriter: counts.map(|counts| Rewriter::new(None, counts, bytes_max)),
        }
    }

    /// The client's part of an engine's bytes; `usage` gets all events.
    pub(super) fn passed(
        &mut self,
        data: Bytes,
        usage: &mut StreamUsage,
    ) -> Result<Bytes, SseError> {
        let data = match &mut self.rewriter {
            Some(rewriter) => rewriter.feed(&data, usage)?,
            None => data,
        };
        // Beyond the limit it runs to its end.
        if self.sent_bytes <= self.call.app.answer_bytes_max {
            self.sent_bytes += data.len();
            if self.room.grow(data.len() as u64).is_ok() {
                self.sent.push(data.clone());
            } else {
                self.sent_bytes = usize::MAX;
                self.sent.clear();
            }
        }
        Ok(data)
    }

    /// At the end of the engine's stream: the client's part of a last event without terminator.
    pub(super) fn finish(&mut self, usage: &mut StreamUsage) -> Bytes {
        let rewriter = self.rewriter.as_mut();
        rewriter.map_or_else(Bytes::new, |rewriter| rewriter.finish(usage))
    }

    /// Polls the scheduler's instructions, and a request that is being sent.
    pub(super) fn poll_instructions(
        &mut self,
        instructions: &mut UnboundedReceiver<Instruction>,
        context: &mut Context<'_>,
    ) -> StreamAction {
        loop {
            let is_paused = matches!(self.part, Part::Paused(_));
            match instructions.poll_recv(context) {
                Poll::Pending | Poll::Ready(None) if !is_paused => {
                    return self.poll_resuming(context);
                }
                Poll::Ready(Some(Instruction::Dispatch(dispatch))) => self.resume(dispatch),
                Poll::Ready(Some(Instruction::Preempt)) => self.wanted = true,
                // A started response continues; waiting requests are notified elsewhere.
                Poll::Ready(Some(Instruction::Abort(_))) => {}
                // The scheduler refuses it once it has the interruption.
                Poll::Ready(Some(Instruction::Cut)) if is_paused => {}
                Poll::Ready(Some(Instruction::Cut)) => {
                    return StreamAction::Cut { is_known: false };
                }
                Poll::Ready(Some(Instruction::Refuse(Refusal::ProgramReleased)))
                    if is_paused && self.call.member.is_some() =>
                {
                    return StreamAction::Cut { is_known: true };
                }
                Poll::Pending => return StreamAction::Wait,
                Poll::Ready(_) if is_paused => {
                    let cause = "the scheduler abandoned the step while it waited to resume";
                    return StreamAction::BreakOff {
                        cause: cause.into(),
                        is_known: true,
                    };
                }
                Poll::Ready(_) => {}
            }
        }
    }

    fn poll_resuming(&mut self, context: &mut Context<'_>) -> StreamAction {
        let Part::Resuming(resuming) = &mut self.part else {
            return StreamAction::Nothing;
        };
        match resuming.as_mut().poll(context) {
            Poll::Pending => StreamAction::Wait,
            Poll::Ready(Ok(incoming)) => {
                self.part = Part::Running;
                StreamAction::Read(incoming)
            }
            Poll::Ready(Err(cause)) => StreamAction::BreakOff {
                cause,
                is_known: false,
            },
        }
    }

    fn resume(&mut self, dispatch: Dispatch) {
        self.wanted = false;
        let Part::Paused(_) = &self.part else {
            return;
        };
        let Part::Paused(continuation) = std::mem::replace(&mut self.part, Part::Running) else {
            return;
        };
        let (call, body) = (self.call.clone(), continuation.body.clone());
        self.engine = dispatch.engine;
        let counts = self.counts.unwrap_or(Counts::shown());
        let bytes_max = call.app.answer_bytes_max;
        self.rewriter = Some(Rewriter::new(Some(continuation), counts, bytes_max));
        let resuming = async move {
            let resumed = resume(&call, &dispatch, body).await;
            resumed.map_err(|cause| cause.to_string())
        };
        self.part = Part::Resuming(Box::pin(resuming));
    }

    /// True if events pass through `usage` here before the client's part is relayed.
    pub(super) const fn observes(&self) -> bool {
        self.rewriter.is_some()
    }

    /// True if the engine's request must be dropped now. `counted` is the number of tokens so far,
    /// if the engine reports it.
    pub(super) fn interrupts(&mut self, counted: Option<u64>, is_between_events: bool) -> bool {
        let is_between = match &self.rewriter {
            Some(rewriter) => rewriter.is_between_events(),
            None => is_between_events,
        };
        // Other kinds of engines were not asked for counts.
        let counted = counted.filter(|_| self.engine == self.counts_of);
        if !self.wanted || !is_between || !matches!(self.part, Part::Running) {
            return false;
        }
        if self.sent_bytes > self.call.app.answer_bytes_max {
            self.wanted = false;
            self.call.runs_on();
            return false;
        }
        let (call, events) = (&self.call, events(&self.sent));
        match Continuation::of(call.endpoint, self.engine, &self.request, &events, counted) {
            Ok(continuation) => {
                self.part = Part::Paused(continuation);
                self.wanted = false;
                self.call.interrupted();
                true
            }
            Err(obstacle) => {
                // Something else may follow.
                self.wanted = matches!(obstacle, WHITE_SPACE | HELD_BACK);
                if !self.wanted {
                    tracing::debug!(step = %self.call.step, obstacle, "a step is not interrupted");
                    self.call.runs_on();
                }
                false
            }
        }
    }
}

/// Requests the rest of an interrupted response from an engine.
async fn resume(call: &Call, dispatch: &Dispatch, body: Bytes) -> Result<Incoming, Cause> {
    let timeout = call.app.response_timeout;
    let at = dispatch.prefill.as_ref();
    let (body, mut paired) = match at.filter(|_| dispatch.engine == EngineKind::Sglang) {
        Some(at) => pair(call, dispatch, at, &body),
        None => (body, PairedPrefill::default()),
    };
    let sent = tokio::select! {
        sent = tokio::time::timeout(timeout, send(call, dispatch, &body)) => sent,
        failure = paired.failure() => return Err(failure.cause()),
    };
    let (parts, body) = sent
        .unwrap_or_else(|_| Err(too_slow(timeout).into()))?
        .into_parts();
    if parts.status.is_success() && is_stream(&parts) {
        paired.detach();
        return Ok(body);
    }
    let status = parts.status;
    let cause = format!("the engine answered {status} to the request for the rest of the response");
    Err(cause.into())
}

/// The JSON events in these bytes.
pub(super) fn events(sent: &[Bytes]) -> Vec<Value> {
    let (mut scanner, mut events) = (SseScanner::new(usize::MAX), Vec::new());
    for data in sent {
        // They were already scanned without an error.
        let _ = scanner.feed(data, &mut |event| {
            events.extend(serde_json::from_slice::<Value>(event));
        });
    }
    events
}
