//! The body of a response of `/v1/responses`: translated from an engine's chat completion, and
//! parsed so that it can be stored.

use super::{Responses, StoredResponse};
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use treadle_http::InUse;
use treadle_translate::{Answered, ChatTranslator};
use treadle_wire::SseScanner;

/// Comments keep connections open; their text means nothing.
const COMMENT: &[u8] = b":\n\n";

/// Stores a response at its end.
#[derive(Clone)]
pub(crate) struct Holding {
    pub(crate) responses: Arc<Responses>,
    pub(crate) tenant: Box<str>,
    /// The tenant's limit in bytes.
    pub(crate) share: u64,
    pub(crate) program: Arc<str>,
    /// The conversation that the request continues.
    pub(crate) before: Option<StoredResponse>,
    /// Items of the request itself.
    pub(crate) items: Arc<str>,
}

impl Holding {
    pub(crate) fn hold(&self, answer: &Answered) {
        let parts = [&*self.items, &answer.items];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        self.responses.held.put(
            &self.tenant,
            self.share,
            &answer.id,
            &self.program,
            self.before.as_ref(),
            parts.join(",").into(),
        );
    }
}

/// A stream of events.
pub(crate) struct Responding {
    inner: Body,
    scanner: SseScanner,
    /// Translates a chat completion.
    builder: Option<Box<dyn ChatTranslator>>,
    /// The permit for the builder's bytes.
    room: InUse<1>,
    /// `None` if the response is not to be stored, or already is.
    holding: Option<(SseScanner, Holding)>,
    is_over: bool,
    /// The error with which it ends, if any.
    broke: Option<axum::Error>,
}

impl Responding {
    /// Translates the events of a chat completion if there is a builder, else relays the engine's
    /// own.
    pub(crate) fn new(
        inner: Body,
        builder: Option<Box<dyn ChatTranslator>>,
        holding: Option<Holding>,
        room: InUse<1>,
    ) -> Self {
        Self {
            inner,
            scanner: SseScanner::default(),
            builder,
            room,
            holding: holding.map(|holding| (SseScanner::default(), holding)),
            is_over: false,
            broke: None,
        }
    }

    /// The client's part of these bytes.
    fn passed(&mut self, data: Bytes) -> Bytes {
        let Some(builder) = &mut self.builder else {
            self.observe(&data);
            return data;
        };
        let (mut out, before) = (Vec::new(), builder.bytes());
        let fed = self.scanner.feed(&data, &mut |event| {
            out.extend(builder.take(event));
        });
        let more = builder.bytes() - before;
        if fed.is_err() || self.room.grow(more).is_err() {
            out.extend(builder.finish());
        }
        if out.is_empty() && data.starts_with(b":") {
            out.extend_from_slice(COMMENT);
        }
        self.observe(&out);
        out.into()
    }

    /// The final events after the engine's last.
    fn rest(&mut self) -> Bytes {
        let rest = self.builder.as_mut().map(|builder| builder.finish());
        let rest = rest.unwrap_or_default();
        self.observe(&rest);
        rest.into()
    }

    /// Stores the response before its last event is sent: a client may continue it at once.
    fn observe(&mut self, data: &[u8]) {
        let Some((scanner, holding)) = &mut self.holding else {
            return;
        };
        let mut answered = None;
        let fed = scanner.feed(data, &mut |event| {
            answered = Answered::of_event(event).or(answered.take());
        });
        if let Some(answered) = &answered {
            holding.hold(answered);
        }
        if answered.is_some() || fed.is_err() {
            self.holding = None;
        }
    }
}

impl HttpBody for Responding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if self.is_over {
                return Poll::Ready(self.broke.take().map(Err));
            }
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
            let out = match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.passed(data),
                // Trailers are the engine's.
                Some(Ok(Err(_))) => continue,
                ended => {
                    self.is_over = true;
                    self.broke = ended.and_then(Result::err);
                    self.rest()
                }
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }
}
