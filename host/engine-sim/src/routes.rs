//! The server's routes, and the handlers that don't generate.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Json, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::driver::AbortScope;
use super::error::ApiError;
use super::faults::Faults;
use super::frames::now_s;
use super::request::{Message, parse, render};
use super::shape::Shape;
use super::{Shared, kv_routes, metrics, tokens, transfers, translated, weights};

/// Maximum size of a request's body, in bytes: the daemon's default limit.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The server's name, so that its figures are not mistaken for a real engine's.
const ENGINE_NAME: &str = "treadle-engine-sim (simulated)";

type SharedState = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let generate = |shape| {
        post(
            move |State(shared): SharedState, headers: HeaderMap, body: Bytes| {
                answer(shared, shape, headers, body)
            },
        )
    };
    Router::new()
        .route("/v1/chat/completions", generate(Shape::Chat))
        .route("/v1/completions", generate(Shape::Completion))
        .route("/inference/v1/generate", generate(Shape::Tokens))
        .route("/generate", generate(Shape::Sglang))
        .route("/v1/messages", post(translated::messages))
        .route("/v1/messages/count_tokens", post(translated::count_tokens))
        .route("/v1/responses", post(translated::responses))
        .route("/v1/models", get(list_models))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/metrics", get(show_metrics))
        .route("/server_info", get(server_info))
        .route("/abort_request", post(abort_request))
        .route("/abort_requests", post(abort_requests))
        .route("/inference/v1/abort_requests", post(abort_requests))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .route(
            "/flush_cache",
            get(reset_prefix_cache).post(reset_prefix_cache),
        )
        .route("/model_info", get(weights::model_info))
        .route("/weights_checker", post(weights::checksums))
        .route("/update_weights_from_disk", post(weights::load_from_disk))
        .route("/weight_info", get(weights::weight_info))
        .route("/weight_checker", post(weights::weight_checker))
        .route("/update_weight_version", post(weights::set_name))
        .route("/collective_rpc", post(weights::collective_rpc))
        .route("/pause", post(weights::pause))
        .route("/resume", post(weights::resume))
        .route("/is_paused", get(weights::is_paused))
        .route("/pause_generation", post(weights::pause))
        .route("/continue_generation", post(weights::resume))
        .merge(control())
        .route("/kv", get(kv_routes::abilities))
        .route("/kv/export", post(kv_routes::export))
        .route("/kv/import", post(kv_routes::import))
        .route("/kv/drop", post(kv_routes::forget))
        .route("/kv/copies/{copy}", get(kv_routes::show))
        .route(
            "/sim/faults",
            get(show_faults).put(set_faults).delete(clear_faults),
        )
        .route(
            "/sim/load-fault",
            get(weights::show_load_fault)
                .put(weights::set_load_fault)
                .delete(weights::clear_load_fault),
        )
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::map_response(name_engine))
        .with_state(shared)
}

/// Paths by which trainers update weights by themselves.
fn control() -> Router<Arc<Shared>> {
    let accepted = || post(transfers::accept);
    Router::new()
        .route("/health_generate", get(transfers::accept))
        .route("/get_server_info", get(server_info))
        .route("/get_weight_version", get(weights::weight_info))
        .route("/get_world_size", get(transfers::world_size))
        .route("/init_weight_transfer_engine", post(transfers::join_group))
        .route("/shutdown_weight_transfer_engine", accepted())
        .route("/start_weight_update", post(transfers::begin))
        .route("/update_weights", post(transfers::part))
        .route("/finish_weight_update", post(transfers::end))
        .route("/fetch_weights", accepted())
        .route("/init_broadcaster", post(transfers::join_group))
        .route("/pull_weights", accepted())
        .route("/init_weights_update_group", post(transfers::join_group))
        .route("/destroy_weights_update_group", accepted())
        .route("/begin_weight_update", post(transfers::begin))
        .route("/update_weights_from_distributed", post(transfers::part))
        .route("/update_weights_from_tensor", post(transfers::part))
        .route("/update_weights_from_ipc", post(transfers::part))
        .route("/end_weight_update", post(transfers::end))
}

async fn name_engine(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert("x-engine", HeaderValue::from_static(ENGINE_NAME));
    response
}

async fn unknown_path(uri: Uri) -> ApiError {
    let message = format!("the simulated engine has no {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message)
}

async fn list_models(State(shared): SharedState) -> Json<Value> {
    let model = shared.weights.renamed();
    let model = model.as_ref().unwrap_or(&shared.options.model);
    let context_tokens = shared.profile.sequence_limit_tokens();
    let card = |id: &String, parent: Option<&String>, context: Option<u32>| {
        json!({
            "id": id,
            "object": "model",
            "created": now_s(),
            "owned_by": ENGINE_NAME,
            "root": id,
            "parent": parent,
            "max_model_len": context,
        })
    };
    let adapters = shared.options.adapters.iter();
    let mut cards = vec![card(model, None, Some(context_tokens))];
    cards.extend(adapters.map(|adapter| card(adapter, Some(model), None)));
    Json(json!({ "object": "list", "data": cards }))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenizeBody {
    Chat {
        messages: Vec<Message>,
        tools: Option<Value>,
    },
    Text {
        prompt: String,
    },
}

async fn tokenize(State(shared): SharedState, body: Bytes) -> Result<Json<Value>, ApiError> {
    let bytes = match parse::<TokenizeBody>(&body)? {
        TokenizeBody::Chat { messages, tools } => {
            let tools = tools.map(|tools| tools.to_string());
            render(&messages, tools.as_deref(), shared.options.template_tokens)
        }
        TokenizeBody::Text { prompt } => prompt.into_bytes(),
    };
    let ids = tokens::ids(&bytes);
    let max_model_len = shared.profile.sequence_limit_tokens();
    Ok(Json(json!({
        "count": ids.len(), "max_model_len": max_model_len, "tokens": ids, "token_strs": null,
    })))
}

#[derive(Deserialize)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

async fn detokenize(body: Bytes) -> Result<Json<Value>, ApiError> {
    let body: DetokenizeBody = parse(&body)?;
    Ok(Json(json!({ "prompt": tokens::text(&body.tokens) })))
}

async fn show_metrics(State(shared): SharedState) -> Response {
    let page = metrics::render(&shared, shared.snapshots().await);
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        page,
    )
        .into_response()
}

async fn server_info(State(shared): SharedState) -> Json<Value> {
    let profile = &shared.profile;
    Json(json!({
        "engine": ENGINE_NAME,
        "simulated": true,
        "version": env!("CARGO_PKG_VERSION"),
        "model_path": shared.options.model,
        "served_model_name": shared.options.model,
        "max_total_num_tokens": profile.kv_tokens(),
        "max_running_requests": profile.running_max,
        "context_length": profile.sequence_limit_tokens(),
        "page_size": profile.block_tokens,
        "dp_size": shared.options.ranks,
        "enable_dp_attention": shared.options.ranks > 1,
        "enable_hierarchical_cache": profile.host_blocks > 0,
        "chunked_prefill_size": profile.batched_tokens_max,
        "profile": profile.name,
        "engine_profile": profile.to_json(Value::Null),
        "time_scale": shared.options.time_scale,
        "instant": shared.options.instant,
        "random_seed": shared.options.seed,
    }))
}

#[derive(Deserialize)]
struct AbortRequestBody {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

async fn abort_request(State(shared): SharedState, body: Bytes) -> Result<StatusCode, ApiError> {
    let body: AbortRequestBody = parse(&body)?;
    let scope = match body.rid {
        _ if body.abort_all => AbortScope::All,
        Some(rid) => AbortScope::Named(vec![rid]),
        None => return Err(ApiError::invalid("send rid or abort_all")),
    };
    abort(&shared, scope);
    Ok(StatusCode::OK)
}

#[derive(Deserialize)]
struct AbortRequestsBody {
    #[serde(default)]
    request_ids: Vec<String>,
}

/// As in vLLM, an empty list aborts all requests, and unknown ids are ignored.
async fn abort_requests(State(shared): SharedState, body: Bytes) -> Result<StatusCode, ApiError> {
    let body: AbortRequestsBody = parse(&body)?;
    let all = body.request_ids.is_empty();
    abort(
        &shared,
        if all {
            AbortScope::All
        } else {
            AbortScope::Named(body.request_ids)
        },
    );
    Ok(StatusCode::OK)
}

fn abort(shared: &Shared, scope: AbortScope) {
    if let Some(client) = &shared.client {
        client.abort(scope);
    }
}

async fn reset_prefix_cache(State(shared): SharedState) -> StatusCode {
    if let Some(client) = &shared.client {
        client.reset_prefix_cache();
    }
    StatusCode::OK
}

async fn show_faults(State(shared): SharedState) -> Json<Faults> {
    Json(shared.faults.get())
}

async fn set_faults(State(shared): SharedState, body: Bytes) -> Result<Json<Faults>, ApiError> {
    let faults: Faults = parse(&body)?;
    if faults
        .error_status
        .is_some_and(|status| !(400..600).contains(&status))
    {
        return Err(ApiError::invalid("error_status must be from 400 to 599"));
    }
    shared.faults.set(faults.clone());
    Ok(Json(faults))
}

async fn clear_faults(State(shared): SharedState) -> StatusCode {
    shared.faults.set(Faults::default());
    StatusCode::NO_CONTENT
}
