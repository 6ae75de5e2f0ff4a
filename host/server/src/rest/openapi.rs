//! The OpenAPI document, and the page of all paths, made of the endpoints.

use super::Endpoint;
use super::groups;
use super::policy_views::CheckFailure;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use treadle_auth::Scope;
use treadle_auth::permissions::Needs;
use treadle_endpoints::{EndpointDescription, get};
use treadle_wire::ErrorCode;
use utoipa::openapi::path::{HttpMethod, Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::Tag;
use utoipa::openapi::{Components, Content, Info, OpenApi, Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// What the document calls tokens.
const TOKEN: &str = "token";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/openapi.json", Needs::Nothing, show)
            .summary("This document: every path, what it takes and what it answers")
            .answers_as("application/json", "An OpenAPI 3.1 document."),
    ]
}

async fn show() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// The document as text.
fn text() -> String {
    // Names and descriptions always have a JSON form.
    serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
}

/// The error envelope, OpenAI's.
#[derive(Serialize, ToSchema)]
struct ErrorAnswer {
    /// What went wrong.
    error: ErrorDetails,
}

#[derive(Serialize, ToSchema)]
struct ErrorDetails {
    /// What is wrong and what would be right.
    message: String,
    /// A class of errors that OpenAI's clients know.
    #[serde(rename = "type")]
    kind: String,
    /// The stable code; docs/errors.md lists them.
    code: String,
    /// The field at fault.
    param: Option<String>,
    /// The check that an upload of a policy did not pass; absent of other errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<CheckFailure>,
}

fn document() -> OpenApi {
    let mut info = Info::new("treadle", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Schedules agent programs over inference engines. docs/errors.md lists the codes of \
         refusals, docs/security.md says what scopes are."
            .to_owned(),
    );
    let mut document = OpenApi::new(info, utoipa::openapi::Paths::new());
    let mut components = Components::new();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("`tr_...`; also as `x-api-key`"));
    let scheme = SecurityScheme::Http(scheme.build());
    components.security_schemes.insert(TOKEN.to_owned(), scheme);
    let mut schemas = vec![(ErrorAnswer::name().into_owned(), ErrorAnswer::schema())];
    ErrorAnswer::schemas(&mut schemas);
    for (group, descriptions) in groups() {
        document.tags.get_or_insert_default().push(Tag::new(group));
        for description in descriptions {
            schemas.extend_from_slice(description.schemas());
            let methods = methods(&description);
            let mut described = description.operation().clone();
            let handler = described.operation_id.take();
            let operation = operation(
                described,
                group,
                description.needs(),
                description.errors(),
                &mut components.responses,
            );
            let item = document
                .paths
                .paths
                .entry(description.path().replace("{*", "{"))
                .or_default();
            for method in methods {
                let mut operation = operation.clone();
                operation.operation_id = Some(id(handler.clone(), &method, description.path()));
                add(item, &method, operation);
            }
        }
    }
    components.schemas.extend(schemas);
    document.components = Some(components);
    document
}

/// The methods that an operation is shown under: for one that takes all of them, those that clients
/// use.
fn methods(description: &EndpointDescription) -> Vec<HttpMethod> {
    match description.method() {
        Some(&Method::GET) => vec![HttpMethod::Get],
        Some(&Method::PUT) => vec![HttpMethod::Put],
        Some(&Method::PATCH) => vec![HttpMethod::Patch],
        Some(&Method::DELETE) => vec![HttpMethod::Delete],
        Some(_) => vec![HttpMethod::Post],
        None => vec![HttpMethod::Get, HttpMethod::Post],
    }
}

/// Adds an operation to a path, unless one that holds before it is there.
fn add(item: &mut PathItem, method: &HttpMethod, operation: Operation) {
    let place = match method {
        HttpMethod::Get => &mut item.get,
        HttpMethod::Put => &mut item.put,
        HttpMethod::Patch => &mut item.patch,
        HttpMethod::Delete => &mut item.delete,
        _ => &mut item.post,
    };
    place.get_or_insert(operation);
}

/// `programs_show` of the handler `show` in `programs.rs`; where several paths have one handler, or
/// one that has no name, the method and the path.
fn id(handler: Option<String>, method: &HttpMethod, path: &str) -> String {
    let own = handler.filter(|_| path.starts_with("/api/v1/"));
    own.unwrap_or_else(|| {
        let word = match method {
            HttpMethod::Get => "get",
            HttpMethod::Patch => "patch",
            HttpMethod::Put => "put",
            HttpMethod::Delete => "delete",
            _ => "post",
        };
        let parts = path
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|part| !part.is_empty());
        [word]
            .into_iter()
            .chain(parts)
            .collect::<Vec<_>>()
            .join("_")
    })
}

/// The response that an operation gives with any of these error codes, or with an engine's refusal.
fn refusal(codes: &str, or_by_engine: bool) -> utoipa::openapi::Response {
    let schema = Ref::from_schema_name(ErrorAnswer::name());
    let (what, content) = if or_by_engine {
        let what = format!("{codes}; or the engine's response");
        (what, Content::new(None::<Ref>))
    } else {
        (codes.to_owned(), Content::new(Some(schema)))
    };
    let mut response = utoipa::openapi::Response::new(what);
    let kind = "application/json".to_owned();
    response.content.insert(kind, content);
    response
}

/// Completes an operation with the scope that it needs and its errors, which go to `refusals`: most
/// operations share them.
fn operation<'c>(
    mut operation: Operation,
    group: &str,
    needs: Needs,
    own: impl IntoIterator<Item = &'c ErrorCode>,
    refusals: &mut BTreeMap<String, RefOr<utoipa::openapi::Response>>,
) -> Operation {
    operation.tags = Some(vec![group.to_owned()]);
    let token = |scope: Scope| SecurityRequirement::new(TOKEN, [scope.as_str()]);
    operation.security = Some(match needs {
        Needs::Nothing => Vec::new(),
        // Callers without a token may have the scope too.
        Needs::Scope(scope) => vec![token(scope), SecurityRequirement::default()],
        Needs::Machines => vec![token(Scope::Operator), SecurityRequirement::default()],
        Needs::Token(scope) => vec![token(scope)],
        Needs::Root => vec![token(Scope::Admin)],
    });
    let guards: &[ErrorCode] = match needs {
        Needs::Nothing => &[ErrorCode::TokenInvalid, ErrorCode::TokenExpired],
        _ => &[
            ErrorCode::TokenMissing,
            ErrorCode::TokenInvalid,
            ErrorCode::TokenExpired,
            ErrorCode::Forbidden,
            ErrorCode::RateLimited,
        ],
    };
    let mut by_status = BTreeMap::<u16, Vec<&str>>::new();
    for code in own.into_iter().chain(guards).chain(&[ErrorCode::Internal]) {
        let codes = by_status.entry(code.status()).or_default();
        if !codes.contains(&code.as_str()) {
            codes.push(code.as_str());
        }
    }
    let is_relayed = operation.responses.responses.contains_key("default");
    for (status, codes) in by_status {
        // An engine's own refusal is passed on as it is.
        let by_engine = is_relayed && ![401, 403, 413, 415].contains(&status);
        let name = codes.join("-") + if by_engine { "-relayed" } else { "" };
        let shared = RefOr::Ref(Ref::from_response_name(&name));
        let own = operation.responses.responses.entry(status.to_string());
        own.or_insert(shared);
        refusals
            .entry(name)
            .or_insert_with(|| RefOr::T(refusal(&codes.join(", "), by_engine)));
    }
    operation
}

#[cfg(test)]
mod tests;
