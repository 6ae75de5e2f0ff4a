//! Converts a chat's answer to another API, event by event or as one body.

use axum::body::{Body, BodyDataStream};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http_body_util::BodyExt;
use treadle_translate::ResponseBuilder;
use treadle_wire::SseScanner;

use super::error::ApiError;

/// A conversion to one API.
pub(super) trait Translation: Send + Sized + 'static {
    /// Converts an event.
    fn take(&mut self, event: &[u8]) -> Vec<u8>;
    /// The bytes after the last event.
    fn finish(&mut self) -> Vec<u8>;
    /// Converts a whole answer; `None` if the body is not an answer.
    fn whole(self, body: &[u8]) -> Option<Vec<u8>>;
}

impl Translation for ResponseBuilder {
    fn take(&mut self, event: &[u8]) -> Vec<u8> {
        Self::take(self, event)
    }

    fn finish(&mut self) -> Vec<u8> {
        Self::finish(self)
    }

    fn whole(self, body: &[u8]) -> Option<Vec<u8>> {
        Self::whole(self, body)
    }
}

/// Converts the response of a chat to another API.
pub(super) async fn translate<T: Translation>(response: Response, translation: T) -> Response {
    if response.status() != StatusCode::OK {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let (parts, body) = response.into_parts();
    if is_stream {
        let events = body.into_data_stream();
        return Response::from_parts(parts, events_of(events, translation));
    }
    let Ok(body) = body.collect().await else {
        return ApiError::new(StatusCode::BAD_GATEWAY, "cut by a requested fault").into_response();
    };
    // A body that a fault has damaged is passed on unchanged.
    let body = body.to_bytes();
    let whole = translation.whole(&body);
    let mut response = Response::from_parts(parts, whole.map_or_else(|| body.into(), Body::from));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

fn events_of<T: Translation>(events: BodyDataStream, translation: T) -> Body {
    let state = (events, SseScanner::default(), translation, false);
    let translated = unfold(
        state,
        |(mut events, mut scanner, mut to, is_over)| async move {
            if is_over {
                return None;
            }
            loop {
                let (out, is_over) = match events.next().await {
                    Some(Ok(data)) => {
                        let mut out = Vec::new();
                        let fed = scanner.feed(&data, &mut |event| out.extend(to.take(event)));
                        if fed.is_err() {
                            out.extend_from_slice(&data);
                        }
                        (Ok(Bytes::from(out)), false)
                    }
                    Some(Err(error)) => (Err(error), true),
                    None => (Ok(to.finish().into()), true),
                };
                if is_over || out.as_ref().is_ok_and(|out| !out.is_empty()) {
                    return Some((out, (events, scanner, to, is_over)));
                }
            }
        },
    );
    Body::from_stream(translated)
}
