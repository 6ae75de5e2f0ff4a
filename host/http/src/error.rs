//! Errors as HTTP responses.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use treadle_wire::{ErrorBody, ErrorCode};

/// `Retry-After` of refusals because of limits, in seconds.
const RETRY_AFTER_S: &str = "1";

/// The response for an error: a stable code, and a message with a remedy.
pub fn error_response(error: &ErrorBody) -> Response {
    let mut response = Response::new(Body::from(error.to_json()));
    *response.status_mut() =
        StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if error.code == ErrorCode::UnsupportedEncoding {
        let taken = HeaderValue::from_static(crate::coding::TAKEN);
        response
            .headers_mut()
            .insert(header::ACCEPT_ENCODING, taken);
    }
    if matches!(error.code.status(), 429 | 503) {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    }
    response
}

/// The response for a code and a message.
pub fn refuse(code: ErrorCode, message: impl Into<String>) -> Response {
    error_response(&ErrorBody::new(code, message))
}

/// The path exists, but not for this method.
pub fn wrong_method(method: &Method, uri: &Uri) -> Response {
    let message = format!("{} does not support {method}", uri.path());
    refuse(ErrorCode::MethodNotAllowed, message)
}
