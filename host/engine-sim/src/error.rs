//! Errors of the simulated engine's HTTP API, in vLLM's format.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use treadle_engine_model::engine::SubmitError;

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Refused(#[from] SubmitError),
    #[error("the engine has {0} requests already, which is the limit; try again later")]
    Full(usize),
    #[error("the engine is shutting down")]
    Closed,
}

/// An error with its HTTP status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    status: StatusCode,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<OpenError> for ApiError {
    fn from(error: OpenError) -> Self {
        let status = match error {
            OpenError::Refused(_) => StatusCode::BAD_REQUEST,
            OpenError::Full(_) | OpenError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = match self.status {
            StatusCode::BAD_REQUEST => "BadRequestError",
            StatusCode::NOT_FOUND => "NotFoundError",
            status if status.is_client_error() => "ClientError",
            _ => "InternalServerError",
        };
        let code = self.status.as_u16();
        let error = json!({ "message": self.message, "type": kind, "param": null, "code": code });
        let body = json!({ "error": error }).to_string();
        (
            self.status,
            [(header::CONTENT_TYPE, "application/json")],
            body,
        )
            .into_response()
    }
}
