//! Updates of weights that a trainer sends, by the control paths of vLLM and SGLang. No tensor
//! moves: what an engine has is the version that it was told, or what was sent.

use super::Shared;
use super::error::ApiError;
use super::faults::broken_answer;
use super::request::parse;
use super::weights::{LoadBody, LoadFault, update_from_disk};
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

type SharedState = State<Arc<Shared>>;

fn said(status: StatusCode, page: &Value) -> Response {
    (status, Json(page)).into_response()
}

/// The form of vLLM's errors.
fn failed(message: &str) -> Response {
    let page = json!({"error": {"message": message, "type": "InternalServerError", "code": 500}});
    said(StatusCode::INTERNAL_SERVER_ERROR, &page)
}

/// Joins a process group, which it only notes.
pub(super) async fn join_group(
    State(shared): SharedState,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let info: Value = parse(&body)?;
    shared.weights.join(info);
    Ok(Json(
        json!({"success": true, "message": "Weight transfer initialized"}),
    ))
}

/// A call that a simulated engine has nothing to do for.
pub(super) async fn accept() -> Json<Value> {
    Json(json!({"success": true, "message": "ok"}))
}

pub(super) async fn world_size() -> Json<Value> {
    Json(json!({"world_size": 1}))
}

pub(super) async fn begin(State(shared): SharedState) -> Response {
    if shared.weights.begin() {
        return said(StatusCode::OK, &json!({"message": "Weight update started"}));
    }
    failed("a weight update is active. Call finish_weight_update first")
}

#[derive(Deserialize)]
struct PartBody {
    /// Of prime-rl's servers: whole weights.
    #[serde(default)]
    weight_dir: Option<String>,
    #[serde(default)]
    weight_version: Option<String>,
    #[serde(flatten)]
    sent: serde_json::Map<String, Value>,
}

/// A part, in vLLM's form or SGLang's.
pub(super) async fn part(state: SharedState, body: Bytes) -> Result<Response, ApiError> {
    let body: PartBody = parse(&body)?;
    if let Some(folder) = body.weight_dir {
        let whole = LoadBody::unnamed(folder);
        return Ok(update_from_disk(state, whole).await);
    }
    let sent = Value::Object(body.sent).to_string();
    Ok(match state.weights.add_part(&sent, body.weight_version) {
        LoadFault::None | LoadFault::Lie => {
            let page = json!({"success": true, "message": "Weights updated"});
            said(StatusCode::OK, &page)
        }
        LoadFault::Refuse => said(
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!({"detail": "the simulated engine was told to refuse"}),
        ),
        LoadFault::Tear => failed("the simulated engine was told to tear its weights"),
        LoadFault::Lose => broken_answer(),
    })
}

#[derive(Default, Deserialize)]
struct EndBody {
    #[serde(default)]
    weight_version: Option<String>,
}

pub(super) async fn end(State(shared): SharedState, body: Bytes) -> Result<Response, ApiError> {
    let body: EndBody = if body.is_empty() {
        EndBody::default()
    } else {
        parse(&body)?
    };
    Ok(if shared.weights.end(body.weight_version) {
        said(
            StatusCode::OK,
            &json!({"message": "Weight update finished"}),
        )
    } else {
        failed("no weight update is active. Call start_weight_update first")
    })
}
