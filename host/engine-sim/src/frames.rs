//! Parts of responses that all APIs share.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::time::SystemTime;

/// A streamed response.
pub(super) fn event_response(body: Body) -> Response {
    (
        [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")],
        body,
    )
        .into_response()
}

/// A response in one piece.
pub(super) fn whole_response(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs())
}

/// A string as JSON, with quotes.
pub(super) fn json_string(text: &str) -> String {
    // Serialising a string can't fail.
    serde_json::to_string(text).unwrap_or_default()
}
