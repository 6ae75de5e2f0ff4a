//! Keepalive of waiting streams, in the queue or at the engine: after a while the head is sent with
//! comments, and the outcome is reported within the stream.

use super::attempt::program_header;
use super::end::End;
use super::generate::Call;
use super::keepalive::Keepalive;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use treadle_wire::{Endpoint, ErrorBody, ErrorCode, event_of_answer};

/// Largest non-streaming response that is put into a stream.
const WHOLE_BYTES_MAX: usize = 16 << 20;

/// What is needed to start a waiting stream.
pub(super) struct Waits {
    every: Duration,
    endpoint: Endpoint,
    headers: HeaderMap,
}

impl Waits {
    /// `None` for a non-streaming request: its status is not known before its end.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let every = call.app.keep_alive;
        if !call.head.stream || every.is_zero() {
            return None;
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-cache"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        if let Some((name, value)) = program_header(call) {
            headers.insert(name, value);
        }
        Some(Self {
            every,
            endpoint: call.endpoint,
            headers,
        })
    }

    fn begin(self, answer: Answering) -> Response {
        let endpoint = self.endpoint;
        let rest = Box::pin(async move { body_after_head(endpoint, answer.await).await });
        let mut response = Response::new(Body::new(Waiting {
            part: Part::Waits(rest, Keepalive::now(self.every)),
            end: End::Orderly,
        }));
        *response.headers_mut() = self.headers;
        response
    }
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The response, or the head of a stream if it takes longer than the keepalive pause. Until then
/// every refusal has its own status.
pub(super) async fn answered<F>(waits: Option<Waits>, answer: F) -> Response
where
    F: Future<Output = Response> + Send + 'static,
{
    let Some(waits) = waits else {
        return answer.await;
    };
    let mut answer: Answering = Box::pin(answer);
    match tokio::time::timeout(waits.every, &mut answer).await {
        Ok(response) => response,
        Err(_) => waits.begin(answer),
    }
}

/// The rest of a stream whose head is already sent.
enum BodyAfterHead {
    /// It continues with this body.
    Stream(Body),
    /// It ends with these events.
    Events(Bytes, End),
}

async fn body_after_head(endpoint: Endpoint, response: Response) -> BodyAfterHead {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let status = response.status();
    if status.is_success() && is_stream {
        return BodyAfterHead::Stream(response.into_body());
    }
    let whole = Limited::new(response.into_body(), WHOLE_BYTES_MAX)
        .collect()
        .await;
    let Ok(whole) = whole.map(http_body_util::Collected::to_bytes) else {
        let message = format!(
            "the engine answered a request for a stream with {status} and a single body of more \
             than {WHOLE_BYTES_MAX} bytes; send the request without `stream`"
        );
        let error = ErrorBody::new(ErrorCode::AnswerTooLarge, message);
        return BodyAfterHead::Events(error.to_event(endpoint).into(), End::BrokenAfterFlush);
    };
    if status.is_success() {
        return BodyAfterHead::Events(as_events(endpoint, &whole), End::Orderly);
    }
    let event = event_of_answer(endpoint, status.as_u16(), &whole);
    BodyAfterHead::Events(event.into(), End::BrokenAfterFlush)
}

/// A non-streaming response, of an engine that does not stream, as the only event of a stream.
fn as_events(endpoint: Endpoint, whole: &[u8]) -> Bytes {
    let mut events = Vec::with_capacity(whole.len() + 32);
    for line in whole.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if !line.is_empty() {
            events.extend_from_slice(b"data: ");
            events.extend_from_slice(line);
            events.push(b'\n');
        }
    }
    events.push(b'\n');
    if !matches!(endpoint, Endpoint::Messages | Endpoint::Responses) {
        events.extend_from_slice(b"data: [DONE]\n\n");
    }
    events.into()
}

enum Part {
    /// Only keepalives so far.
    Waits(
        Pin<Box<dyn Future<Output = BodyAfterHead> + Send>>,
        Keepalive,
    ),
    /// The answer has begun.
    Answer(Body),
    /// Nothing more comes.
    Over,
}

struct Waiting {
    part: Part,
    end: End,
}

impl HttpBody for Waiting {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            match &mut this.part {
                Part::Waits(rest, sign) => match rest.as_mut().poll(context) {
                    Poll::Pending => {
                        return sign.poll(context).map(|sign| Some(Ok(Frame::data(sign))));
                    }
                    Poll::Ready(BodyAfterHead::Stream(body)) => this.part = Part::Answer(body),
                    Poll::Ready(BodyAfterHead::Events(events, end)) => {
                        (this.part, this.end) = (Part::Over, end);
                        return Poll::Ready(Some(Ok(Frame::data(events))));
                    }
                },
                Part::Answer(body) => return Pin::new(body).poll_frame(context),
                Part::Over => {
                    return this.end.poll(context).map_err(axum::Error::new);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
