//! The endpoints for exporting and importing KV caches, used by the executor for simulated engines
//! (`treadle-transfer`).

use std::sync::Arc;

use axum::extract::{Json, Path, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shared;
use super::caches::{CopyError, CopyRecord};
use super::driver::EngineClient;
use super::error::{ApiError, OpenError};
use super::request::{self, parse};
use super::shape::Shape;
use super::tokens;
use treadle_engine_model::engine::SubmitError;
use treadle_http::Upstream;

/// The name by which the executor recognises a simulated engine.
const ENGINE: &str = "treadle-engine-sim";
/// Maximum size of a copy's record from another engine, in bytes.
const RECORD_BYTES_MAX: usize = 64 << 20;

type SharedState = State<Arc<Shared>>;

/// `GET /kv`: the engine's capabilities.
pub(super) async fn abilities(State(shared): SharedState) -> Json<Value> {
    let able = shared.client.is_some();
    Json(json!({ "engine": ENGINE, "offload": able, "migrate": able }))
}

#[derive(Deserialize)]
struct ExportBody {
    copy: String,
    program: Value,
    tags: Value,
    prompt: ExportPrompt,
    #[serde(default)]
    cache_salt: Option<String>,
}

/// A prompt as token ids, or as a request with its path.
#[derive(Deserialize)]
struct ExportPrompt {
    ids: Option<Vec<u32>>,
    path: Option<String>,
    body: Option<Box<RawValue>>,
}

/// `POST /kv/export`: copies the cached part of a prompt to this engine's host memory.
pub(super) async fn export(
    State(shared): SharedState,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let asked: ExportBody = parse(&body)?;
    let blocks = blocks_of(&shared, &asked)?;
    let (client, rank) = (modelled(&shared)?, rank_of(&shared, &headers)?);
    let exported = client.export(rank, asked.copy, asked.program, asked.tags, blocks);
    let record = exported.await?;
    Ok(Json(json!({
        "tokens": record.tokens, "bytes": record.bytes,
        "block_tokens": shared.profile.block_tokens, "prefix_hash": null,
    })))
}

fn blocks_of(shared: &Shared, asked: &ExportBody) -> Result<Vec<u64>, ApiError> {
    let (prompt, options) = (&asked.prompt, &shared.options);
    if let Some(ids) = &prompt.ids {
        let bytes = tokens::bytes(ids);
        return Ok(tokens::block_hashes(
            asked.cache_salt.as_deref(),
            &bytes,
            b"",
        ));
    }
    let (Some(path), Some(body)) = (&prompt.path, &prompt.body) else {
        return Err(ApiError::invalid("prompt: send ids, or path and body"));
    };
    let path = path.split('?').next().unwrap_or_default();
    let shape = match path {
        "/v1/chat/completions" => Shape::Chat,
        "/v1/completions" => Shape::Completion,
        "/inference/v1/generate" => Shape::Tokens,
        "/generate" => Shape::Sglang,
        _ => {
            let message = format!("prompt.path: `{path}` is not a path of generation requests");
            return Err(ApiError::invalid(message));
        }
    };
    let body = body.get().as_bytes();
    let headers = HeaderMap::new();
    let generation = request::read(shape, body, &headers, options, "kv")?;
    let salt = generation.salt.as_deref().or(asked.cache_salt.as_deref());
    let salt = options.salt(generation.model.as_deref(), salt);
    Ok(tokens::block_hashes(
        salt.as_deref(),
        &generation.prompt,
        b"",
    ))
}

#[derive(Deserialize)]
struct ImportBody {
    copy: String,
    source: String,
    program: Value,
    tags: Value,
}

/// `POST /kv/import`: imports a copy, this engine's own or another's.
pub(super) async fn import(
    State(shared): SharedState,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let asked: ImportBody = parse(&body)?;
    let (client, rank) = (modelled(&shared)?, rank_of(&shared, &headers)?);
    let source: http::Uri = asked
        .source
        .parse()
        .map_err(|_| ApiError::invalid("source: send the URL of an engine"))?;
    let own = shared.addr;
    let is_own = source
        .authority()
        .is_some_and(|at| at.as_str() == own.to_string());
    let record = if is_own {
        client.find(&asked.copy).await
    } else {
        fetch(&asked.source, &asked.copy).await?
    };
    let gone = || ApiError::new(StatusCode::NOT_FOUND, "there is no such copy");
    let record = record.ok_or_else(gone)?;
    if record.program != asked.program || record.tags["model"] != asked.tags["model"] {
        let message = "the copy belongs to another program or model";
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    // Engines on one IP address share a node, and its host memory.
    let is_here = source.host() == Some(own.ip().to_string().as_str());
    let bytes = record.bytes;
    let tokens = client.import(rank, record, is_here).await?;
    Ok(Json(json!({ "tokens": tokens, "bytes": bytes })))
}

/// A copy in another engine's host memory.
pub(super) async fn fetch(source: &str, copy: &str) -> Result<Option<CopyRecord>, ApiError> {
    let failed = |cause: String| {
        let message = format!("the copy could not be fetched from {source}: {cause}");
        ApiError::new(StatusCode::BAD_GATEWAY, message)
    };
    let upstream = Upstream::new(super::SHUTDOWN_MAX);
    let path = format!("/kv/copies/{copy}");
    let asked = upstream.get(source.trim_end_matches('/'), &path).await;
    let response = asked.map_err(|error| failed(error.to_string()))?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let body = Limited::new(response.into_body(), RECORD_BYTES_MAX);
    let body = body
        .collect()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let record = serde_json::from_slice(&body.to_bytes());
    record.map(Some).map_err(|error| failed(error.to_string()))
}

/// `GET /kv/copies/{copy}`: a copy, for another engine.
pub(super) async fn show(
    State(shared): SharedState,
    Path(copy): Path<String>,
) -> Result<Json<CopyRecord>, ApiError> {
    let found = modelled(&shared)?.find(&copy).await;
    let gone = || ApiError::new(StatusCode::NOT_FOUND, "there is no such copy");
    found.map(Json).ok_or_else(gone)
}

#[derive(Deserialize)]
struct DropBody {
    copy: String,
}

/// `POST /kv/drop`: deletes a copy; a missing one is not an error.
pub(super) async fn forget(
    State(shared): SharedState,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let asked: DropBody = parse(&body)?;
    modelled(&shared)?.forget(asked.copy);
    Ok(Json(json!({})))
}

/// The rank whose cache is meant; without one, the first.
fn rank_of(shared: &Shared, headers: &HeaderMap) -> Result<u32, ApiError> {
    let rank = request::rank_header(headers)?.unwrap_or(0);
    let ranks = shared.options.ranks;
    if rank >= ranks {
        return Err(OpenError::Refused(SubmitError::NoRank { rank, ranks }).into());
    }
    Ok(rank)
}

/// The engine model, if it has one.
pub(super) fn modelled(shared: &Shared) -> Result<&EngineClient, ApiError> {
    let without = || {
        let message = "the engine is not simulated (--instant), so there are no caches to move";
        ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
    };
    shared.client.as_ref().ok_or_else(without)
}

impl From<CopyError> for ApiError {
    fn from(error: CopyError) -> Self {
        let status = match error {
            CopyError::Nothing | CopyError::Known => StatusCode::CONFLICT,
            CopyError::HostFull | CopyError::EngineFull => StatusCode::INSUFFICIENT_STORAGE,
        };
        Self::new(status, error.to_string())
    }
}
