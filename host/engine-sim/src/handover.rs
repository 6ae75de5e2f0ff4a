//! Prompts that one engine computes for another, by the protocol of vLLM's `NixlConnector`: an answer
//! of one token says where its prompt's cache is, and the request with that fetches it.
//!
//! Unlike vLLM, the first engine only names the blocks: it may evict them before they are fetched, and
//! then the other one computes the prompt.

use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use treadle_http::Upstream;

use super::error::ApiError;
use super::kv_params::KvTransferParams;
use super::kv_routes::{self, modelled};
use super::request::Generation;
use super::{SHUTDOWN_MAX, Shared, tokens};

/// Fetches the cache of a prompt from the engine that has computed it. One that is gone is computed
/// again.
pub(super) async fn fetch(shared: &Shared, generation: &Generation) {
    let handover = &generation.handover;
    if handover.do_remote_prefill
        && let Err(error) = fetched(shared, generation.rank.unwrap_or(0), handover).await
    {
        tracing::debug!(%error, "a prompt is computed here, as its cache could not be fetched");
    }
}

async fn fetched(shared: &Shared, rank: u32, handover: &KvTransferParams) -> Result<u64, ApiError> {
    let client = modelled(shared)?;
    let place = handover
        .remote_host
        .as_ref()
        .zip(handover.remote_port)
        .zip(handover.remote_request_id.as_ref());
    let ((host, port), copy) = place.ok_or_else(|| {
        ApiError::invalid("kv_transfer_params: name remote_host, remote_port, remote_request_id")
    })?;
    let source = format!("http://{host}:{port}");
    let record = kv_routes::fetch(&source, copy).await?;
    let gone = || ApiError::new(StatusCode::NOT_FOUND, "the cache is gone");
    let taken = client.take(rank, record.ok_or_else(gone)?).await;
    let dropped = Bytes::from(json!({ "copy": copy }).to_string());
    let upstream = Upstream::new(SHUTDOWN_MAX);
    let headers = HeaderMap::new();
    // If that is lost, the copy stays there, and counts for its limit.
    let _ = upstream
        .send(Method::POST, &source, "/kv/drop", &headers, dropped)
        .await;
    taken
}

/// The answer with the place of its prompt's cache, if another engine is to generate from that.
pub(super) async fn announce(shared: &Shared, generation: &Generation, body: Bytes) -> Bytes {
    if !generation.handover.do_remote_decode {
        return body;
    }
    let placed = match held(shared, generation).await {
        Ok(place) => place,
        Err(error) => {
            tracing::debug!(%error, "the cache of a prompt is not kept for another engine");
            Value::Null
        }
    };
    let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else {
        return body;
    };
    answer["kv_transfer_params"] = placed;
    answer.to_string().into()
}

async fn held(shared: &Shared, generation: &Generation) -> Result<Value, ApiError> {
    let salt = generation.salt.as_deref();
    let salt = shared.options.salt(generation.model.as_deref(), salt);
    let blocks = tokens::block_hashes(salt.as_deref(), &generation.prompt, b"");
    let number = shared.next_id.fetch_add(1, Ordering::Relaxed);
    let copy = format!("{}-{number}", generation.id);
    let rank = generation.rank.unwrap_or(0);
    let tokens = modelled(shared)?.hold(rank, copy.clone(), blocks).await?;
    let count = tokens / u64::from(shared.profile.block_tokens);
    Ok(json!({
        "do_remote_prefill": true,
        "do_remote_decode": false,
        "remote_block_ids": (0..count).collect::<Vec<_>>(),
        "remote_engine_id": shared.addr.to_string(),
        "remote_request_id": copy,
        "remote_host": shared.addr.ip().to_string(),
        "remote_port": shared.addr.port(),
        "tp_size": 1,
    }))
}
