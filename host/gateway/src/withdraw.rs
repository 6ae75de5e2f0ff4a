//! Streams that can be aborted by their request's id.

use super::requests::Registration;
use axum::Error;
use axum::body::Body;
use axum::http::{Response, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use treadle_wire::{Endpoint, ErrorBody, ErrorCode};

/// Makes an event stream end with an error and a broken connection once its request is aborted;
/// other responses are already complete. If the engine is notified, it ends the stream.
pub(crate) fn withdrawable(
    response: Response<Body>,
    registration: Arc<Registration>,
    endpoint: Endpoint,
    engine_is_notified: bool,
) -> Response<Body> {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let withdrawn = Box::pin(async move { registration.withdrawn(engine_is_notified).await });
    response.map(|body| {
        Body::new(Withdrawable {
            withdrawn,
            endpoint,
            part: Part::Stream(body),
        })
    })
}

/// What is sent next.
enum Part {
    /// The stream.
    Stream(Body),
    /// A pause that lets the server write its buffer.
    Flush,
    /// The break.
    Break,
    /// Ended.
    Nothing,
}

struct Withdrawable {
    withdrawn: Pin<Box<dyn Future<Output = ()> + Send>>,
    endpoint: Endpoint,
    part: Part,
}

impl HttpBody for Withdrawable {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match &mut this.part {
            Part::Stream(body) => {
                if this.withdrawn.as_mut().poll(context).is_pending() {
                    return Pin::new(body).poll_frame(context);
                }
                // Dropping the body aborts the engine's request.
                this.part = Part::Flush;
                let error = ErrorBody::new(ErrorCode::ProgramReleased, "the request was aborted");
                let event = [b"\n\n".to_vec(), error.to_event(this.endpoint)].concat();
                Poll::Ready(Some(Ok(Frame::data(event.into()))))
            }
            Part::Flush => {
                this.part = Part::Break;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Part::Break => {
                this.part = Part::Nothing;
                Poll::Ready(Some(Err(Error::new("the request was aborted"))))
            }
            Part::Nothing => Poll::Ready(None),
        }
    }
}
