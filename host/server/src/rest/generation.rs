//! Generation requests, and requests that any engine answers.

use super::arguments::InPath;
use super::endpoint::{Endpoint, relayed};
use axum::extract::{Request, State};
use axum::http::Method;
use std::sync::Arc;
use treadle_auth::permissions::{Needs, RUN, VIEW};
use treadle_gateway::{GatewayState, forward, generate};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// A request of the API that the path belongs to; treadle passes it on.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the engines read it, not treadle")]
struct EngineRequest {
    /// The model.
    model: Option<String>,
    /// Whether the answer is a stream of events.
    stream: Option<bool>,
}

/// Refusals of the gateway.
const ERRORS: &[ErrorCode] = &[
    ErrorCode::InvalidJson,
    ErrorCode::InvalidField,
    ErrorCode::MissingField,
    ErrorCode::BodyTooLarge,
    ErrorCode::ContextTooLong,
    ErrorCode::PreviousResponseNotFound,
    ErrorCode::ProgramReleased,
    ErrorCode::QueueFull,
    ErrorCode::ProgramsFull,
    ErrorCode::TenantProgramsFull,
    ErrorCode::TenantBusy,
    ErrorCode::Overloaded,
    ErrorCode::QueueWaitExceeded,
    ErrorCode::NoHealthyWorker,
    ErrorCode::WorkersCordoned,
    ErrorCode::EngineUnreachable,
    ErrorCode::EngineTimeout,
];

/// The generation endpoints, with and without a session in the URL.
pub(crate) fn endpoints() -> Vec<Endpoint<Arc<GatewayState>>> {
    let kinds = treadle_wire::Endpoint::ALL.into_iter();
    kinds
        .flat_map(|kind| [plain(kind), in_session(kind)])
        .collect()
}

fn plain(kind: treadle_wire::Endpoint) -> Endpoint<Arc<GatewayState>> {
    let handler = move |State(app): State<Arc<GatewayState>>, request: Request| {
        generate(app, kind, None, request)
    };
    relayed(Some(Method::POST), kind.path(), RUN, handler)
        .summary(summary(kind))
        .details(
            "Goes to an engine once the program has a placement there. Body and answer are the \
             engine's own, an event stream included. The header `x-treadle-program` of the answer \
             names the program.",
        )
        .takes::<EngineRequest>()
        .answers_as_the_engine()
        .fails(ERRORS)
}

fn in_session(kind: treadle_wire::Endpoint) -> Endpoint<Arc<GatewayState>> {
    let handler =
        move |State(app): State<Arc<GatewayState>>,
              InPath(session): InPath<String>,
              request: Request| { generate(app, kind, Some(session), request) };
    let path = format!("/sessions/{{session}}{}", kind.path());
    relayed(Some(Method::POST), &path, RUN, handler)
        .summary(&format!(
            "{}, for the program that the URL names",
            summary(kind)
        ))
        .takes::<EngineRequest>()
        .answers_as_the_engine()
        .fails(ERRORS)
}

fn summary(kind: treadle_wire::Endpoint) -> &'static str {
    use treadle_wire::Endpoint as Kind;
    match kind {
        Kind::ChatCompletions => "OpenAI chat completions",
        Kind::Completions => "OpenAI completions, text or token ids",
        Kind::Messages => "Anthropic messages",
        Kind::VllmGenerate => "vLLM, token ids in and out",
        Kind::SglangGenerate => "SGLang's native endpoint",
        Kind::Responses => "OpenAI responses",
    }
}

/// Requests that any engine answers; of two that fit, the first holds.
pub(crate) fn forwarded() -> Vec<Endpoint<Arc<GatewayState>>> {
    let lines: [(Option<Method>, &str, Needs); 7] = [
        (Some(Method::GET), "/v1/models", VIEW),
        (None, "/v1/models", RUN),
        (None, "/tokenize", RUN),
        (None, "/detokenize", RUN),
        (Some(Method::GET), "/server_info", VIEW),
        (None, "/server_info", RUN),
        (None, "/health_generate", RUN),
    ];
    let endpoint = |(method, path, needs)| {
        relayed(method, path, needs, forward)
            .summary("Forwarded as it is to the engine with the fewest running steps")
            .answers_as_the_engine()
            .fails(&[
                ErrorCode::BodyTooLarge,
                ErrorCode::NoHealthyWorker,
                ErrorCode::EngineUnreachable,
                ErrorCode::EngineTimeout,
            ])
    };
    lines.into_iter().map(endpoint).collect()
}
