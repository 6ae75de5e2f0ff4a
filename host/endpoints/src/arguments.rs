//! Extractors for paths, queries and bodies, whose errors name the field.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use treadle_http::error_response;
use treadle_model::ClientName;
use treadle_wire::{ErrorBody, ErrorCode};

/// Where the fields of a body are listed.
const REMEDY: &str = "docs/reference/openapi.json has the fields";

/// The first parameter of a path: the name of a program or a job, unless it is other text.
pub struct InPath<T = ClientName>(pub T);

/// The last parameter of a path.
pub struct LastInPath<T>(pub T);

/// A type that can be read from a path parameter.
pub trait FromPath: Sized {
    /// Reads the text of the parameter of this name.
    fn from_path(field: &str, text: &str) -> Result<Self, Response>;
}

impl FromPath for ClientName {
    fn from_path(field: &str, text: &str) -> Result<Self, Response> {
        name(field, text)
    }
}

impl FromPath for String {
    fn from_path(_: &str, text: &str) -> Result<Self, Response> {
        Ok(text.to_owned())
    }
}

impl FromPath for u64 {
    fn from_path(field: &str, text: &str) -> Result<Self, Response> {
        text.parse().map_err(|_| {
            let message = format!("`{field}` in the path is `{text}`; give a number");
            let error = ErrorBody::new(ErrorCode::InvalidField, message);
            error_response(&error.with_param(field))
        })
    }
}

impl<S: Send + Sync, T: FromPath> FromRequestParts<S> for InPath<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let parameters = in_path(parts, state).await?;
        let (field, text) = parameters.iter().next().unwrap_or_default();
        T::from_path(field, text).map(Self)
    }
}

impl<S: Send + Sync, T: FromPath> FromRequestParts<S> for LastInPath<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let parameters = in_path(parts, state).await?;
        let (field, text) = parameters.iter().last().unwrap_or_default();
        T::from_path(field, text).map(Self)
    }
}

async fn in_path<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, Response> {
    let parameters = RawPathParams::from_request_parts(parts, state).await;
    parameters.map_err(|rejection| {
        let message = format!("the path can't be read: {rejection}; encode it as UTF-8");
        error_response(&ErrorBody::new(ErrorCode::InvalidField, message))
    })
}

/// The parameters of a query.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        query
            .map(|query| Self(query.0))
            .map_err(|rejection| error_response(&query_problem(&rejection.body_text())))
    }
}

/// The error for an invalid query, from axum's message, which may begin with the field.
fn query_problem(text: &str) -> ErrorBody {
    let problem = text.rsplit_once("query string: ");
    let problem = problem.map_or(text, |(_, problem)| problem);
    let is_name = |field: &str| field.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    match problem.split_once(": ") {
        Some((field, problem)) if is_name(field) => problem_of(field, problem),
        _ => problem_of(".", problem),
    }
}

/// The raw body.
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await;
        bytes.map(Self).map_err(|rejection| {
            let error = if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let message = "the body exceeds the limit for this path; send less";
                ErrorBody::new(ErrorCode::BodyTooLarge, message)
            } else {
                let message = format!("the body can't be read: {rejection}; send it again");
                ErrorBody::new(ErrorCode::InvalidJson, message)
            };
            error_response(&error)
        })
    }
}

/// A JSON object as the body.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        parse(&bytes)
            .map(Self)
            .map_err(|error| error_response(&error))
    }
}

/// A JSON object as the body, some parts kept as they were written.
pub struct Verbatim<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Verbatim<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        verbatim(&bytes)
            .map(Self)
            .map_err(|error| error_response(&error))
    }
}

/// Reads a JSON object, some parts kept as they were written.
pub fn verbatim<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    let mut text = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut text);
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let is_read = read.is_ok() && is_object && text.end().is_ok();
    if !is_read {
        // What is no JSON object, or has more behind it, is refused as everywhere.
        parse::<serde::de::IgnoredAny>(body)?;
    }
    read.map_err(|error| {
        let path = error.path().to_string();
        problem_of(&path, &error.into_inner().to_string())
    })
}

/// Reads a JSON object.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        ErrorBody::new(
            ErrorCode::InvalidJson,
            format!("the body is not JSON: {error}"),
        )
    })?;
    if !value.is_object() {
        let message = "the body must be a JSON object";
        return Err(ErrorBody::new(ErrorCode::BodyNotObject, message));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        problem_of(&path, &error.into_inner().to_string())
    })
}

/// The error for the field at a path, from serde's message.
fn problem_of(path: &str, problem: &str) -> ErrorBody {
    let quoted = problem.strip_prefix("missing field `");
    if let Some(field) = quoted.and_then(|rest| rest.split('`').next()) {
        let field = match path {
            "." => field.to_owned(),
            outer => format!("{outer}.{field}"),
        };
        let message = format!("`{field}` is missing; {REMEDY}");
        return ErrorBody::new(ErrorCode::MissingField, message).with_param(field);
    }
    // The error of a refused name already has the field.
    let message = if path == "." || problem.starts_with('`') {
        problem.to_owned()
    } else {
        format!("`{path}`: {problem}")
    };
    let remedy = if message.contains(';') {
        String::new()
    } else {
        format!("; {REMEDY}")
    };
    let error = ErrorBody::new(ErrorCode::InvalidField, message + &remedy);
    if path == "." {
        return error;
    }
    error.with_param(path)
}

/// Rows per page: 100 by default, at most what the store returns at once.
pub fn page_limit(limit: Option<u32>) -> u32 {
    limit.unwrap_or(100).clamp(1, treadle_store::PAGE_ROWS_MAX)
}

/// The column that `sort` names, and whether the order is ascending.
pub fn sorted_by<T: Copy>(sort: &str, columns: &[(&str, T)]) -> Result<(T, bool), Response> {
    let (name, ascending) = match sort.strip_prefix('-') {
        Some(name) => (name, false),
        None => (sort, true),
    };
    let found = columns.iter().find(|(column, _)| *column == name);
    found
        .map(|(_, column)| (*column, ascending))
        .ok_or_else(|| {
            let names: Vec<&str> = columns.iter().map(|(column, _)| *column).collect();
            let message = format!(
                "`sort` is `{sort}`; send {}, with a leading dash for descending order",
                names.join(", ")
            );
            let error = ErrorBody::new(ErrorCode::InvalidField, message);
            error_response(&error.with_param("sort"))
        })
}

/// The name in a field.
pub fn name(field: &str, text: impl AsRef<str> + Into<String>) -> Result<ClientName, Response> {
    ClientName::parse(field, text).map_err(|error| error_response(&error.into()))
}

/// The name in a field that may be absent.
pub fn optional(field: &str, text: Option<String>) -> Result<Option<ClientName>, Response> {
    text.map(|text| name(field, text)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "it is there to be read")]
        count: u8,
        #[expect(dead_code, reason = "it is there to be read")]
        inner: Option<Box<Outer>>,
    }

    #[test]
    fn an_error_names_the_field_and_the_remedy() {
        for (body, code, words) in [
            ("{", ErrorCode::InvalidJson, "is not JSON"),
            ("[]", ErrorCode::BodyNotObject, "must be a JSON object"),
            (
                "[1,null]",
                ErrorCode::BodyNotObject,
                "must be a JSON object",
            ),
            (r#"{"count":1} x"#, ErrorCode::InvalidJson, "is not JSON"),
            ("{}", ErrorCode::MissingField, "`count` is missing; docs/"),
            (
                r#"{"count":"x"}"#,
                ErrorCode::InvalidField,
                "`count`: invalid type",
            ),
            (
                r#"{"count":1,"cuont":1}"#,
                ErrorCode::InvalidField,
                "unknown field `cuont`",
            ),
            (
                r#"{"count":1,"inner":{}}"#,
                ErrorCode::MissingField,
                "`inner.count` is missing",
            ),
        ] {
            for read in [parse::<Outer>, verbatim::<Outer>] {
                let error = read(body.as_bytes()).expect_err(body);
                assert_eq!(error.code, code, "{body}");
                assert!(error.message.contains(words), "{body}: {}", error.message);
            }
        }
        for read in [parse::<Outer>, verbatim::<Outer>] {
            read(br#" {"count":1,"inner":{"count":2}} "#).expect("it is right");
        }
    }

    #[test]
    fn a_query_is_refused_with_its_field() {
        let asked = |query: &str| {
            let uri = format!("/x?{query}").parse().expect("a URI");
            let query = axum::extract::Query::<Outer>::try_from_uri(&uri);
            query_problem(&query.expect_err("it is refused").body_text())
        };
        let error = asked("count=many");
        assert_eq!(error.param.as_deref(), Some("count"));
        assert!(
            error.message.starts_with("`count`: invalid digit"),
            "{}",
            error.message
        );
        assert_eq!(asked("").code, ErrorCode::MissingField);
        let error = asked("count=1&cuont=1");
        assert!(
            error.message.contains("unknown field `cuont`"),
            "{}",
            error.message
        );
    }
}
