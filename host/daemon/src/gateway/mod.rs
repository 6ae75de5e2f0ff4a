//! The gateway: LLM calls in, the same LLM calls out, with scheduling between.
//!
//! Bodies are read but not rewritten, save for one field that pins a request
//! to its seat on engines with seats; bytes of event streams are forwarded as
//! they come. Forwarding waits for a place, never for a disk.

mod attempt;
mod bodies;
mod body;
mod continuation;
mod forward;
mod generate;
mod guard;
mod identity;
mod interruption;
mod parts;
mod refusal;
mod requests;
mod serve;
mod stream;
mod upstream;
mod withdraw;

pub use bodies::Bodies;
pub use forward::forward_get;
pub use generate::{GatewayState, routes};
pub use identity::Identities;
pub(crate) use refusal::not_recorded;
pub use requests::RequestIds;
pub use serve::{ServeLimits, serve};
pub use upstream::{Upstream, UpstreamError};

use crate::auth::Principal;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use std::sync::Arc;
use treadle_wire::{ErrorBody, ErrorCode};

/// Who sent a request, as the guard found out.
fn principal_of(parts: &Parts) -> Result<Arc<Principal>, ErrorBody> {
    parts
        .extensions
        .get::<Arc<Principal>>()
        .cloned()
        .ok_or_else(|| {
            let message = "the request was not checked; please report this";
            ErrorBody::new(ErrorCode::Internal, message)
        })
}

/// An error as clients see it: a stable code, and a message with a remedy.
pub fn error_response(error: &ErrorBody) -> Response {
    let mut response = Response::new(Body::from(error.to_json()));
    *response.status_mut() =
        StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// The same from a code and a message.
pub fn refuse(code: ErrorCode, message: impl Into<String>) -> Response {
    error_response(&ErrorBody::new(code, message))
}
