//! Refusals in E2B's form: `code`, which is the status, and `message`. treadle's own refusals,
//! including the guard's, also have `error`.

use super::JSON;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};
use treadle_runs::actions::Failure;
use treadle_wire::{ErrorBody, ErrorCode};

/// Prefixes of the paths of E2B's API.
const STARTS: [&str; 9] = [
    "/sandboxes",
    "/v2/sandboxes",
    "/snapshots",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/volumes",
    "/process.Process/",
    "/filesystem.Filesystem/",
];
/// The longest refusal that is converted.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Refuses in both forms, with the status that E2B's clients expect.
pub(super) fn refuse(code: ErrorCode, message: impl Into<String>) -> Response {
    told(&ErrorBody::new(code, message))
}

/// treadle's refusal in both forms.
pub(super) fn told(error: &ErrorBody) -> Response {
    told_as(status_of(error.code), error)
}

/// The status that E2B's clients expect for a code.
pub(super) fn status_of(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Overloaded => 429,
        // Clients would retry a 502.
        ErrorCode::SandboxFailed => 500,
        code => code.status(),
    }
}

/// treadle's refusal in both forms, with another status.
pub(super) fn told_as(status: u16, error: &ErrorBody) -> Response {
    let own = serde_json::from_slice(&error.to_json()).unwrap_or_default();
    let mut response = Response::new(Body::from(both(status, own).to_string()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    if status == 429 {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The refusal for a failed operation on a sandbox.
pub(super) fn failed(failure: Failure) -> Response {
    match failure {
        Failure::Refused(error) => told(&error),
        Failure::Stopped => told_as(
            503,
            &ErrorBody::new(ErrorCode::Overloaded, "treadle is shutting down"),
        ),
        Failure::Store(error) => {
            tracing::error!(%error, "the store failed");
            refuse(ErrorCode::Internal, "the store failed; see the log")
        }
    }
}

fn both(status: u16, mut own: Value) -> Value {
    if own.get("code").is_none()
        && let Some(message) = own["error"]["message"].as_str().map(str::to_owned)
    {
        own["code"] = json!(status);
        own["message"] = json!(message);
    }
    own
}

/// Converts treadle's refusals on paths of E2B's API to both forms.
pub async fn in_form(request: Request, next: Next) -> Response {
    if let Some(refusal) = super::routing::other_port(&request) {
        return refusal;
    }
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    let is_own = path == "/files" || STARTS.iter().any(|start| path.starts_with(start));
    let response = next.run(request).await;
    let is_error = response.status().as_u16() >= 400;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !is_own || !is_error || kind.is_none_or(|kind| kind != JSON) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let body = match serde_json::from_slice(&bytes) {
        Ok(own) => Bytes::from(both(parts.status.as_u16(), own).to_string()),
        Err(_) => bytes,
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_has_both_forms() {
        for (error, status) in [
            (ErrorBody::new(ErrorCode::Overloaded, "full"), 429),
            (ErrorBody::new(ErrorCode::SandboxUnknown, "gone"), 404),
            (ErrorBody::new(ErrorCode::ImageUnknown, "none"), 404),
            (ErrorBody::new(ErrorCode::InvalidField, "no"), 400),
        ] {
            let response = told(&error);
            assert_eq!(response.status(), status);
            assert_eq!(
                response.headers().contains_key("retry-after"),
                status == 429
            );
            let body = to_bytes(response.into_body(), 1_000)
                .await
                .expect("it is there");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(
                (&body["code"], &body["message"]),
                (&json!(status), &json!(error.message))
            );
            assert_eq!(body["error"]["code"], error.code.as_str());
        }
    }

    #[test]
    fn a_refusal_in_form_stays_as_it_is() {
        let connect = json!({"code": "not_found", "message": "no such file"});
        assert_eq!(both(404, connect.clone()), connect);
        assert_eq!(both(500, json!("text")), json!("text"));
    }
}
