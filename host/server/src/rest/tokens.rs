//! API tokens: made, rotated, revoked, listed. A secret is in one answer and nowhere else.

use super::tenants::change_failed;
use super::{object, ok, refuse};
use crate::app::App;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use treadle_auth::changes::{NewToken, token_json};
use treadle_auth::{Caller, Scope, now_us};
use treadle_wire::ErrorCode;

/// `GET /v1/tokens`: those of the tenant; all for an admin of the whole daemon.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let tokens = app.auth.tokens(&caller);
    let tokens: Vec<Value> = tokens
        .iter()
        .map(|token| token_json(&token.row, token.last_used_at_us()))
        .collect();
    ok(json!({"tokens": tokens}))
}

/// `POST /v1/tokens {"name", "scope", "tenant"?, "expires_in_s"?}`. `tenant` is the caller's own
/// unless an admin of the whole daemon names another, or `*`.
pub(super) async fn create(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let new = object(&body).and_then(|request| new_token(&caller, &request));
    let new = match new {
        Ok(new) => new,
        Err(response) => return response,
    };
    match app.auth.create_token(&caller, new).await {
        Ok(token) => (StatusCode::CREATED, Json(token)).into_response(),
        Err(error) => change_failed(&error),
    }
}

fn new_token(caller: &Caller, request: &Map<String, Value>) -> Result<NewToken, Response> {
    let text = |field: &str| request.get(field).and_then(Value::as_str);
    let missing = |field: &str| {
        let message = format!("`{field}` is missing; send {{\"name\": ..., \"scope\": ...}}");
        refuse(ErrorCode::MissingField, message)
    };
    let word = text("scope").ok_or_else(|| missing("scope"))?;
    let scope = Scope::from_name(word).ok_or_else(|| {
        let message = format!("`scope` is `{word}`; it must be viewer, job, operator or admin");
        refuse(ErrorCode::InvalidField, message)
    })?;
    let expires_at_us = match request.get("expires_in_s") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let seconds = value
                .as_u64()
                .filter(|seconds| *seconds > 0)
                .ok_or_else(|| {
                    let message = "`expires_in_s` must be a positive whole number";
                    refuse(ErrorCode::InvalidField, message)
                })?;
            // The store holds signed numbers.
            let until = now_us().saturating_add(seconds.saturating_mul(1_000_000));
            Some(until.min(i64::MAX as u64))
        }
    };
    let own = caller.principal.tenant.tenant.name();
    Ok(NewToken {
        name: text("name").ok_or_else(|| missing("name"))?.to_owned(),
        scope,
        tenant: text("tenant").unwrap_or(own).to_owned(),
        expires_at_us,
    })
}

/// `POST /v1/tokens/{token}/rotate`: a new secret; the one before stays good for a while.
pub(super) async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Response {
    match app.auth.rotate_token(&caller, &id).await {
        Ok(token) => ok(token),
        Err(error) => change_failed(&error),
    }
}

/// `DELETE /v1/tokens/{token}`: ends it at once.
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Response {
    match app.auth.revoke_token(&caller, &id).await {
        Ok(token) => ok(token),
        Err(error) => change_failed(&error),
    }
}
