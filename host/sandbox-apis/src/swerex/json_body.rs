//! Reads JSON bodies as FastAPI does: unknown fields are ignored, and errors have status 422.

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use treadle_endpoints::EndpointDescription;
use treadle_endpoints::arguments::Raw;
use treadle_endpoints::signature::Takes;
use utoipa::ToSchema;

/// A JSON object as the body.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The errors of a body.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Unprocessable {
    /// One problem.
    detail: Vec<UnprocessableField>,
}

/// The error of a field.
#[derive(Debug, Serialize, ToSchema)]
struct UnprocessableField {
    /// The kind of problem.
    r#type: &'static str,
    /// `body`, and the field.
    loc: Vec<String>,
    /// The message.
    msg: String,
    /// Always null: the input is not echoed.
    input: Option<()>,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        Ok(Self(read_json(&bytes)?))
    }
}

impl From<Unprocessable> for Response {
    fn from(wrong: Unprocessable) -> Self {
        (StatusCode::UNPROCESSABLE_ENTITY, Json(wrong)).into_response()
    }
}

impl Unprocessable {
    /// The error for one field.
    pub(crate) fn of(kind: &'static str, field: &str, problem: String) -> Self {
        Self::at(kind, Some(field.to_owned()), problem)
    }

    fn at(kind: &'static str, field: Option<String>, problem: String) -> Self {
        let field = UnprocessableField {
            r#type: kind,
            loc: std::iter::once("body".to_owned()).chain(field).collect(),
            msg: problem,
            input: None,
        };
        Self {
            detail: vec![field],
        }
    }
}

impl<T: ToSchema> Takes for JsonBody<T> {
    fn describe(description: &mut EndpointDescription) {
        Raw::describe(description);
        description.takes::<T>();
        description.answers::<Unprocessable>(422, "The body is invalid.");
    }
}

/// Reads a JSON object.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unprocessable> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        let message = error.to_string();
        let missing = message.strip_prefix("missing field `");
        let (kind, field) = match missing.and_then(|rest| rest.split('`').next()) {
            Some(field) => ("missing", Some(field.to_owned())),
            None if error.is_data() => ("value_error", (path != ".").then_some(path)),
            None => ("json_invalid", None),
        };
        Unprocessable::at(kind, field, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    struct Command {
        #[expect(dead_code, reason = "it is there to be read")]
        command: String,
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        for (body, kind, loc) in [
            ("", "json_invalid", json!(["body"])),
            ("{", "json_invalid", json!(["body"])),
            ("{}", "missing", json!(["body", "command"])),
            (
                r#"{"command": 1}"#,
                "value_error",
                json!(["body", "command"]),
            ),
        ] {
            let wrong = read_json::<Command>(body.as_bytes()).expect_err(body);
            let wrong = serde_json::to_value(wrong).expect("JSON");
            assert_eq!(wrong["detail"][0]["type"], kind, "{body}");
            assert_eq!(wrong["detail"][0]["loc"], loc, "{body}");
        }
        read_json::<Command>(br#"{"command": "x", "more": 1}"#).expect("it is right");
    }
}
