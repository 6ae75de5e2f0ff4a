//! Names in paths, queries and bodies: what each handler takes instead of text.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use treadle_http::error_response;
use treadle_model::ClientName;

/// The name that is the first parameter of a path: `{program}` or `{job}`.
pub(super) struct InPath(pub(super) ClientName);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let parameters = RawPathParams::from_request_parts(parts, state).await;
        let parameters = parameters.map_err(IntoResponse::into_response)?;
        let (field, text) = parameters.iter().next().unwrap_or_default();
        name(field, text).map(Self)
    }
}

/// The name in a field.
pub(super) fn name(
    field: &str,
    text: impl AsRef<str> + Into<String>,
) -> Result<ClientName, Response> {
    ClientName::parse(field, text).map_err(|error| error_response(&error.into()))
}

/// The name in a field that may be absent.
pub(super) fn optional(field: &str, text: Option<String>) -> Result<Option<ClientName>, Response> {
    text.map(|text| name(field, text)).transpose()
}
