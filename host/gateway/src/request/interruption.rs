//! A stream that may be interrupted: its engine's request is dropped when the scheduler preempts
//! it, and the rest is requested when it is dispatched again, wherever that is. The client sees one
//! answer with a pause in it.

use super::attempt::resume;
use super::continuation::Continuation;
use super::counts::Counts;
use super::generate::Call;
use super::obstacles::{HELD_BACK, WHITE_SPACE};
use super::parts::Asked;
use super::rest::Rewriter;
use bytes::Bytes;
use hyper::body::Incoming;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_http::InUse;
use treadle_model::EngineKind;
use treadle_scheduler::{Dispatch, Instruction};
use treadle_wire::{SseError, SseScanner, StreamUsage};

type Resuming = Pin<Box<dyn Future<Output = Result<Incoming, String>> + Send>>;

/// Where the stream is.
enum Part {
    /// At an engine.
    Running,
    /// Nowhere.
    Paused(Continuation),
    /// On its way to an engine.
    Resuming(Resuming),
}

/// What a stream needs to be interrupted and gone on with.
pub(super) struct Interruptible {
    call: Arc<Call>,
    /// What its engine was asked.
    request: Bytes,
    engine: EngineKind,
    instructions: UnboundedReceiver<Instruction>,
    part: Part,
    /// The scheduler wants it interrupted; it is not yet between two events.
    wanted: bool,
    /// All that the client was sent.
    sent: Vec<Bytes>,
    sent_bytes: usize,
    /// Holds them.
    room: InUse<1>,
    counts: Option<Counts>,
    /// Which kind of engine was asked for them.
    counts_of: EngineKind,
    /// Of the part that runs. Nothing while the engine's events are the client's.
    rewriter: Option<Rewriter>,
}

/// What a stream is to do next.
pub(super) enum StreamAction {
    /// Go on with what it has.
    Nothing,
    /// Wait: there is no engine at work for it.
    Wait,
    /// Read from this engine.
    Read(Incoming),
    /// End with an error. The scheduler knows of it if `is_known`.
    BreakOff {
        /// Why, for people.
        cause: String,
        /// True if the step is over for the scheduler.
        is_known: bool,
    },
}

impl Interruptible {
    pub(super) fn new(
        call: Arc<Call>,
        (request, counts): Asked,
        engine: EngineKind,
        instructions: UnboundedReceiver<Instruction>,
    ) -> Self {
        let room = InUse::new([call.app.room.answers.clone()]);
        let bytes_max = call.app.answer_bytes_max;
        Self {
            call,
            request,
            engine,
            instructions,
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

    /// What the client is to see of an engine's bytes, whose events `usage` takes.
    pub(super) fn passed(
        &mut self,
        data: Bytes,
        usage: &mut StreamUsage,
    ) -> Result<Bytes, SseError> {
        let data = match &mut self.rewriter {
            Some(rewriter) => rewriter.feed(&data, usage)?,
            None => data,
        };
        // Beyond the bound it runs to its end.
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

    /// The engine's stream has ended: what the client is to see of an event without its end.
    pub(super) fn finish(&mut self, usage: &mut StreamUsage) -> Bytes {
        let rewriter = self.rewriter.as_mut();
        rewriter.map_or_else(Bytes::new, |rewriter| rewriter.finish(usage))
    }

    /// Polls the scheduler's instructions, and follows a request that is on its way.
    pub(super) fn poll_instructions(&mut self, context: &mut Context<'_>) -> StreamAction {
        loop {
            if let Part::Resuming(resuming) = &mut self.part {
                return match resuming.as_mut().poll(context) {
                    Poll::Pending => StreamAction::Wait,
                    Poll::Ready(Ok(incoming)) => {
                        self.part = Part::Running;
                        StreamAction::Read(incoming)
                    }
                    Poll::Ready(Err(cause)) => StreamAction::BreakOff {
                        cause,
                        is_known: false,
                    },
                };
            }
            let is_paused = matches!(self.part, Part::Paused(_));
            match self.instructions.poll_recv(context) {
                Poll::Pending | Poll::Ready(None) if !is_paused => return StreamAction::Nothing,
                Poll::Ready(Some(Instruction::Dispatch(dispatch))) => self.resume(dispatch),
                Poll::Ready(Some(Instruction::Preempt)) => self.wanted = true,
                // What has begun to answer goes on; what waits is notified otherwise.
                Poll::Ready(Some(Instruction::Abort(_))) => {}
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

    /// True if events are taken by `usage` before the client's part of them is passed on.
    pub(super) const fn observes(&self) -> bool {
        self.rewriter.is_some()
    }

    /// True if the engine's request is to be dropped now. `counted` is how many tokens have come,
    /// if the engine says it.
    pub(super) fn interrupts(&mut self, counted: Option<u64>, is_between_events: bool) -> bool {
        let is_between = match &self.rewriter {
            Some(rewriter) => rewriter.is_between_events(),
            None => is_between_events,
        };
        // Another kind was not asked in its way.
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

/// The events in these bytes that are JSON.
pub(super) fn events(sent: &[Bytes]) -> Vec<Value> {
    let (mut scanner, mut events) = (SseScanner::new(usize::MAX), Vec::new());
    for data in sent {
        // They were scanned before.
        let _ = scanner.feed(data, &mut |event| {
            events.extend(serde_json::from_slice::<Value>(event));
        });
    }
    events
}
