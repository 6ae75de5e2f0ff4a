//! vLLM, from 0.32: pages of its development mode (`VLLM_SERVER_DEV_MODE=1`).
//!
//! A pause with `mode=keep` keeps requests, and by default drops their caches, which are computed
//! again after the resume. `reload_weights` that fails leaves an engine that dies at its next
//! request although its health page says otherwise, so it must not resume. The version's name is
//! replaced before a reload and set only after one that succeeded: an engine that reports it has
//! the weights as a whole.

use super::{Engine, NoAnswer, combined, failed, name_in, plain, refused, unanswered, words};
use http::StatusCode;
use serde_json::{Value, json};
use treadle_core::weights::{Answer, Call, Checksum, Weights};

const DEV_MODE: &str =
    "start vLLM with VLLM_SERVER_DEV_MODE=1, so that it can be paused and loaded";
/// Its version while it loads, and after it failed to.
const LOADING: &str = "treadle-loading";
/// SHA-256 of nothing: what the CPU build reports of tensors that it has packed.
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub(super) async fn call(engine: Engine<'_>, call: Call, weights: &Weights) -> Answer {
    match call {
        Call::Prepare => prepare(engine).await,
        Call::Pause => {
            let path = "/pause?mode=keep&clear_cache=true";
            plain("/pause", engine.post(path, &json!({})).await)
        }
        Call::Apply => apply(engine, weights).await,
        Call::Verify => verify(engine).await,
        Call::Clear => clear(engine).await,
        Call::Resume => plain("/resume", engine.post("/resume", &json!({})).await),
    }
}

async fn prepare(engine: Engine<'_>) -> Answer {
    match engine.get("/weight_info").await {
        Ok((StatusCode::NOT_FOUND, _)) => refused(DEV_MODE),
        answer => plain("/weight_info", answer),
    }
}

async fn apply(engine: Engine<'_>, weights: &Weights) -> Answer {
    let named = name(engine, LOADING).await;
    if named != Answer::Done {
        return named;
    }
    let body = json!({
        "method": "reload_weights",
        "kwargs": {"weights_path": weights.folder},
    });
    match engine.apply("/collective_rpc", &body).await {
        Ok((StatusCode::OK, _)) => {}
        Ok((status, body)) => return failed(&words("/collective_rpc", status, &body)),
        Err(NoAnswer::NotSent(cause) | NoAnswer::Lost(cause)) => return failed(&cause),
    }
    match name(engine, &weights.name).await {
        // The weights are new already.
        Answer::Refused { cause } => Answer::Failed { cause },
        other => other,
    }
}

async fn name(engine: Engine<'_>, name: &str) -> Answer {
    let path = "/update_weight_version";
    plain(path, engine.post(path, &json!({"new_version": name})).await)
}

async fn verify(engine: Engine<'_>) -> Answer {
    let name = match engine.get("/weight_info").await {
        Ok((StatusCode::OK, body)) => {
            let page: Value = serde_json::from_slice(&body).unwrap_or_default();
            name_in(&page["weight_version"])
        }
        Ok((status, body)) => return failed(&words("/weight_info", status, &body)),
        Err(cause) => return unanswered(cause),
    };
    let body = json!({"action": "checksum"});
    let checksum = match engine.post("/weight_checker", &body).await {
        Ok((StatusCode::OK, body)) => checksum_in(&body),
        // An older version, or it computes none while it is paused.
        Ok((status, _)) if status.is_client_error() => None,
        Ok((status, body)) => return failed(&words("/weight_checker", status, &body)),
        Err(cause) => return unanswered(cause),
    };
    Answer::Reports {
        whole: name.is_some(),
        name,
        checksum,
    }
}

fn checksum_in(body: &[u8]) -> Option<Checksum> {
    let page: Value = serde_json::from_slice(body).ok()?;
    let tensors = page["checksums"].as_object()?.iter();
    let tensors = tensors.filter_map(|(name, digest)| Some((&**name, digest.as_str()?)));
    combined(tensors.filter(|(_, digest)| *digest != OF_NOTHING))
}

async fn clear(engine: Engine<'_>) -> Answer {
    let path = "/reset_prefix_cache?reset_running_requests=true&reset_external=true";
    match engine.post(path, &json!({})).await {
        Ok((StatusCode::OK, body)) => {
            let page: Value = serde_json::from_slice(&body).unwrap_or_default();
            match &page["success"] {
                Value::Bool(false) => failed("requests still hold caches of the old weights"),
                _ => Answer::Done,
            }
        }
        answer => plain("/reset_prefix_cache", answer),
    }
}
