//! Generation requests, and requests that any engine can answer.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use std::sync::Arc;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::{Endpoint, relayed};
use treadle_gateway::{GatewayState, count_tokens, forward, forward_body, generate, model, models};
use treadle_wire::{ErrorCode, Forwarded};
use utoipa::ToSchema;

/// A request of the engines' API, which treadle forwards.
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
    ErrorCode::UnsupportedEncoding,
    ErrorCode::ModelNotFound,
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

/// Refusals of requests that need no placement.
const FORWARD_ERRORS: &[ErrorCode] = &[
    ErrorCode::InvalidJson,
    ErrorCode::InvalidField,
    ErrorCode::BodyTooLarge,
    ErrorCode::UnsupportedEncoding,
    ErrorCode::NoHealthyWorker,
    ErrorCode::EngineUnreachable,
    ErrorCode::EngineTimeout,
];

const MODEL: &str = "/v1/models/{*model}";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

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
            "Sent to an engine once the program is placed. Body and response are the engine's own, \
             including event streams. The response header `x-treadle-program` names the program.",
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

/// Requests that any engine with their model can answer.
pub(crate) fn forwarded() -> Vec<Endpoint<Arc<GatewayState>>> {
    let get = Some(Method::GET);
    let page = |path, needs| {
        relayed(get.clone(), path, needs, forward)
            .summary("Forwarded unchanged to the engine with the fewest running steps")
    };
    let mut all = vec![
        relayed(get.clone(), "/v1/models", VIEW, models)
            .summary("The models of all engines, adapters included"),
        relayed(get.clone(), MODEL, VIEW, one_model)
            .summary("One model; slashes in its name need no escaping")
            .fails(&[ErrorCode::ModelNotFound]),
        page("/server_info", VIEW),
        page("/health_generate", RUN),
    ];
    for (path, kind) in [
        ("/tokenize", Forwarded::Tokenize),
        ("/detokenize", Forwarded::Detokenize),
    ] {
        let handler = move |State(app): State<Arc<GatewayState>>, request: Request| {
            forward_body(app, kind, request)
        };
        let summary = "Forwarded to the engine with the fewest running steps that has the model";
        all.push(relayed(Some(Method::POST), path, RUN, handler).summary(summary));
    }
    for path in [
        COUNT_TOKENS,
        &format!("/sessions/{{session}}{COUNT_TOKENS}"),
    ] {
        let handler =
            |State(app): State<Arc<GatewayState>>, request: Request| count_tokens(app, request);
        let endpoint = relayed(Some(Method::POST), path, RUN, handler)
            .summary("Tokens of a prompt in Anthropic's form")
            .details(
                "Sent to an engine that has the path. If none has it, an engine's tokenizer counts \
                 the texts of the prompt, without the chat template's additions.",
            );
        all.push(endpoint.takes::<EngineRequest>());
    }
    let fails = |endpoint: Endpoint<Arc<GatewayState>>| {
        endpoint.answers_as_the_engine().fails(FORWARD_ERRORS)
    };
    all.into_iter().map(fails).collect()
}

async fn one_model(
    State(app): State<Arc<GatewayState>>,
    InPath(id): InPath<String>,
    request: Request,
) -> Response {
    model(app, id, request).await
}
