//! SGLang, from 0.5.
//!
//! A pause with `mode: retract` sends running requests back to the queue, so that their caches can
//! be flushed and are computed again. An update that answers 400 may have happened: its words say
//! so if the cache could not be flushed.

use super::{Engine, combined, failed, name_in, plain, refused, unanswered, words};
use http::StatusCode;
use serde_json::{Value, json};
use treadle_core::weights::{Answer, Call, Checksum, Weights};

/// What an update says that happened although its answer is an error.
const UPDATED: &str = "Weights were updated";

pub(super) async fn call(engine: Engine<'_>, call: Call, weights: &Weights) -> Answer {
    match call {
        Call::Prepare => plain("/model_info", engine.get("/model_info").await),
        Call::Pause => {
            let path = "/pause_generation";
            plain(path, engine.post(path, &json!({"mode": "retract"})).await)
        }
        Call::Apply => apply(engine, weights).await,
        Call::Verify => verify(engine).await,
        Call::Clear => clear(engine).await,
        Call::Resume => {
            let path = "/continue_generation";
            plain(path, engine.post(path, &json!({})).await)
        }
    }
}

async fn apply(engine: Engine<'_>, weights: &Weights) -> Answer {
    let path = "/update_weights_from_disk";
    let body = json!({
        "model_path": weights.folder,
        "weight_version": weights.name,
        "flush_cache": false,
        "keep_pause": true,
        "abort_all_requests": false,
    });
    match engine.apply(path, &body).await {
        Ok((StatusCode::OK, _)) => Answer::Done,
        Ok((StatusCode::NOT_FOUND, body)) => refused(&words(path, StatusCode::NOT_FOUND, &body)),
        Ok((status, body)) => {
            let page: Value = serde_json::from_slice(&body).unwrap_or_default();
            let said = page["message"].as_str().unwrap_or_default();
            if status == StatusCode::BAD_REQUEST && said.starts_with(UPDATED) {
                return Answer::Done;
            }
            failed(&words(path, status, &body))
        }
        Err(cause) => unanswered(cause),
    }
}

async fn verify(engine: Engine<'_>) -> Answer {
    let name = match engine.get("/model_info").await {
        Ok((StatusCode::OK, body)) => {
            let page: Value = serde_json::from_slice(&body).unwrap_or_default();
            name_in(&page["weight_version"])
        }
        Ok((status, body)) => return failed(&words("/model_info", status, &body)),
        Err(cause) => return unanswered(cause),
    };
    let body = json!({"action": "checksum"});
    let checksum = match engine.post("/weights_checker", &body).await {
        Ok((StatusCode::OK, body)) => checksum_in(&body),
        Ok((status, _)) if status.is_client_error() => None,
        Ok((status, body)) => return failed(&words("/weights_checker", status, &body)),
        Err(cause) => return unanswered(cause),
    };
    Answer::Reports {
        name,
        checksum,
        // It takes the new name over before it knows whether the load succeeded.
        whole: false,
    }
}

async fn clear(engine: Engine<'_>) -> Answer {
    // It takes a moment until all requests are back in the queue.
    let path = "/flush_cache?timeout=30";
    let flushed = plain("/flush_cache", engine.post(path, &json!({})).await);
    if flushed != Answer::Done {
        return flushed;
    }
    let path = "/server_info";
    let info: Value = match engine.get(path).await {
        Ok((StatusCode::OK, body)) => serde_json::from_slice(&body).unwrap_or_default(),
        // An older version.
        Ok((StatusCode::NOT_FOUND, _)) => Value::Null,
        Ok((status, body)) => return failed(&words(path, status, &body)),
        Err(cause) => return unanswered(cause),
    };
    if info["hicache_storage_backend"].is_string() {
        return clear_storage(engine).await;
    }
    Answer::Done
}

/// The storage behind hierarchical caches finds them by their tokens, whatever weights computed
/// them.
async fn clear_storage(engine: Engine<'_>) -> Answer {
    let path = "/hicache/storage-backend/clear";
    match engine.post(path, &json!({})).await {
        Ok((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => {
            let path = "/clear_hicache_storage_backend";
            plain(path, engine.post(path, &json!({})).await)
        }
        answer => plain(path, answer),
    }
}

fn checksum_in(body: &[u8]) -> Option<Checksum> {
    let page: Value = serde_json::from_slice(body).ok()?;
    let ranks = page["ranks"].as_array()?;
    let mut named = Vec::new();
    for (rank, of_rank) in ranks.iter().enumerate() {
        for (name, digest) in of_rank["checksums"].as_object()? {
            named.push((format!("{rank}:{name}"), digest.as_str()?));
        }
    }
    combined(named.iter().map(|(name, digest)| (&**name, *digest)))
}
