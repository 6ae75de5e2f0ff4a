//! Policies: upload, check, list, bind.

use super::{object, ok, refuse, stopped};
use crate::app::App;
use crate::auth::directory::WHOLE_DAEMON;
use crate::auth::{Caller, Change};
use crate::gateway::error_response;
use crate::policies::ShelfError;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use treadle_store::PluginHead;
use treadle_wire::ErrorCode;

/// `POST /v1/plugins`: the component as the raw body, or as the first file of
/// a multipart form.
pub(super) async fn push(State(app): State<App>, caller: Caller, request: Request) -> Response {
    let bytes = match upload(request).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    // Nothing that comes today is signed.
    if let Err(response) = check_room(&app, &caller, &bytes, false).await {
        return response;
    }
    match app.policies.push(bytes).await {
        Ok((head, _)) => {
            let new = match own(&app, &caller, &head).await {
                Ok(new) => new,
                Err(response) => return response,
            };
            let status = if new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            let mut body = head_json(&head);
            body["new"] = Value::Bool(new);
            (status, Json(body)).into_response()
        }
        Err(error) => failed(&error),
    }
}

/// Checks that the caller's tenant may store another plugin.
async fn check_room(
    app: &App,
    caller: &Caller,
    bytes: &[u8],
    signed: bool,
) -> Result<(), Response> {
    let owned = owned(app, &[caller.principal.tenant.tenant.name()]).await?;
    let stored: u64 = owned.iter().map(|head| head.size_bytes).sum();
    caller
        .principal
        .check_plugin(owned.len() as u64, stored, bytes.len() as u64, signed)
        .map_err(|error| error_response(&error))
}

/// Makes a stored plugin the caller's tenant's; whether it was not before.
async fn own(app: &App, caller: &Caller, head: &PluginHead) -> Result<bool, Response> {
    let name = caller.principal.tenant.tenant.name();
    let claim = app
        .store
        .claim_plugin(name, &head.digest, crate::auth::now_us());
    let new = claim.await.map_err(|error| super::store_failed(&error))?;
    if new {
        let change = Change {
            action: "plugin.uploaded",
            target: &head.digest,
            before: Value::Null,
            after: head_json(head),
        };
        let recorded = app.auth.audit.record(caller, change).await;
        recorded.map_err(|_| super::not_audited())?;
    }
    Ok(new)
}

/// Plugins that an owner has, newest first; `*` has those that the daemon brings along.
async fn owned(app: &App, owners: &[&str]) -> Result<Vec<PluginHead>, Response> {
    let mut heads = app.policies.list().await.map_err(|error| failed(&error))?;
    let mut digests = Vec::new();
    for owner in owners {
        let own = app.store.claimed_plugins(owner).await;
        digests.extend(own.map_err(|error| super::store_failed(&error))?);
    }
    heads.retain(|head| digests.contains(&head.digest));
    Ok(heads)
}

/// `POST /v1/plugins/check`: every check of an upload, nothing stored.
pub(super) async fn check(State(app): State<App>, request: Request) -> Response {
    let bytes = match upload(request).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    match app.policies.inspect(bytes).await {
        Ok(inspection) => ok(serde_json::to_value(&inspection).unwrap_or_default()),
        Err(error) => failed(&error),
    }
}

/// `GET /v1/plugins`: those of the caller's tenant and those that the daemon brings along.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let own = caller.principal.tenant.tenant.name();
    match owned(&app, &[own, WHOLE_DAEMON]).await {
        Ok(heads) => ok(json!({"plugins": heads.iter().map(head_json).collect::<Vec<_>>()})),
        Err(response) => response,
    }
}

/// `GET /v1/bindings`: what answers each world at present.
pub(super) async fn bindings(State(app): State<App>) -> Response {
    let active = app.driver.read(|view| {
        (
            view.policies.active().to_string(),
            view.policies.statistics().clone(),
        )
    });
    match active.await {
        Ok((policy, statistics)) => ok(json!({"bindings": [
            {"world": "eviction", "policy": policy, "statistics": statistics},
        ]})),
        Err(_) => stopped(),
    }
}

/// `PUT /v1/bindings {"world", "policy", "config"?}`: from the next decision on
/// the policy answers. `policy` is a name, name@version, digest or `native`. It answers for the jobs
/// of all tenants, so it takes an admin of the whole daemon once there are several.
pub(super) async fn bind(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    if !caller.principal.root && !app.auth.has_one_tenant() {
        let message =
            "a binding holds for the jobs of all tenants; it takes a token of the whole daemon";
        return refuse(ErrorCode::Forbidden, message);
    }
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let word = |field: &str| request.get(field).and_then(Value::as_str);
    let Some(policy) = word("policy") else {
        let message =
            "`policy` is missing; send a plugin's name, name@version, digest, or `native`";
        return refuse(ErrorCode::MissingField, message);
    };
    let config = match request.get("config") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(config @ Value::Object(_)) => config.to_string(),
        Some(_) => {
            return refuse(ErrorCode::InvalidField, "`config` must be a JSON object");
        }
    };
    let before = app.driver.read(|view| view.policies.active().to_string());
    let before = before.await.ok();
    match app
        .policies
        .bind(word("world").unwrap_or("eviction"), policy, &config)
        .await
    {
        Ok(bound) => {
            let change = Change {
                action: "binding.changed",
                target: "eviction",
                before: json!({"policy": before}),
                after: json!({"policy": bound, "config": config}),
            };
            if app.auth.audit.record(&caller, change).await.is_err() {
                return super::not_audited();
            }
            ok(json!({"world": "eviction", "policy": bound}))
        }
        Err(error) => failed(&error),
    }
}

async fn upload(request: Request) -> Result<Vec<u8>, Response> {
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let broken = |error: &dyn std::fmt::Display| {
        refuse(
            ErrorCode::PluginInvalid,
            format!("the upload could not be read: {error}"),
        )
    };
    if !kind.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        let body = Bytes::from_request(request, &())
            .await
            .map_err(|e| broken(&e))?;
        return Ok(body.into());
    }
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|e| broken(&e))?;
    while let Some(field) = form.next_field().await.map_err(|e| broken(&e))? {
        if field.file_name().is_some() || matches!(field.name(), Some("file" | "plugin")) {
            return Ok(field.bytes().await.map_err(|e| broken(&e))?.into());
        }
    }
    Err(refuse(
        ErrorCode::MissingField,
        "the form has no file; name its field `file`",
    ))
}

fn failed(error: &ShelfError) -> Response {
    match error {
        ShelfError::Refused(refusal) => {
            let body = json!({"error": {
                "code": "plugin_invalid",
                "type": "invalid_request_error",
                "message": refusal.to_string(),
                "param": null,
                "refusal": refusal,
            }});
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        }
        ShelfError::Unknown(_) => refuse(ErrorCode::PluginUnknown, error.to_string()),
        ShelfError::Load(_) | ShelfError::Ambiguous { .. } | ShelfError::World(_) => {
            refuse(ErrorCode::PluginInvalid, error.to_string())
        }
        ShelfError::Stopped(_) => stopped(),
        ShelfError::Store(error) => super::store_failed(error),
    }
}

fn head_json(head: &PluginHead) -> Value {
    json!({
        "digest": head.digest, "world": head.world, "name": head.name, "version": head.version,
        "summary": head.summary, "size_bytes": head.size_bytes,
        "uploaded_at_us": head.uploaded_at_us,
    })
}
