//! Tenants: their limits, and who the caller is.

use super::{not_audited, object, ok, refuse, store_failed};
use crate::app::App;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use treadle_auth::TenantState;
use treadle_auth::changes::{ChangeError, tenant_json};
use treadle_auth::{Caller, TenantLimits};
use treadle_http::error_response;
use treadle_wire::ErrorCode;

/// `GET /v1/whoami`: what the daemon takes the caller for.
pub(super) async fn whoami(State(app): State<App>, caller: Caller) -> Response {
    let principal = &caller.principal;
    ok(json!({
        "who": principal.who.to_string(),
        "tenant": principal.tenant.tenant.name(),
        "scope": principal.scope,
        "root": principal.root,
        "tenants": app.auth.directory().tenants.len(),
        "limits": principal.tenant.limits,
    }))
}

/// `GET /v1/tenants`: all for an admin of the whole daemon, else the caller's own.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let directory = app.auth.directory();
    let own = caller.principal.tenant.tenant.name();
    let visible = |state: &&Arc<TenantState>| caller.principal.whole || state.tenant.name() == own;
    let tenants = directory.tenants.values().filter(visible);
    ok(json!({"tenants": tenants.map(|state| shown(state)).collect::<Vec<_>>()}))
}

/// `POST /v1/tenants {"tenant", "limits"?}`.
pub(super) async fn create(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let Some(name) = request.get("tenant").and_then(Value::as_str) else {
        return refuse(ErrorCode::MissingField, "`tenant` is missing; send a name");
    };
    let limits = match limits_of(&request, &TenantLimits::default()) {
        Ok(limits) => limits,
        Err(response) => return response,
    };
    match app.auth.create_tenant(&caller, name, &limits).await {
        Ok(tenant) => (StatusCode::CREATED, Json(tenant)).into_response(),
        Err(error) => change_failed(&error),
    }
}

/// `GET /v1/tenants/{tenant}`.
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Response {
    find(&app, &caller, &name).map_or_else(|response| response, |state| ok(shown(&state)))
}

/// `PUT /v1/tenants/{tenant} {"limits": {...}}`: limits that are named change, the others stay.
pub(super) async fn change(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let parsed = object(&body).and_then(|request| {
        let state = find(&app, &caller, &name)?;
        let limits = limits_of(&request, &state.limits)?;
        Ok((state, limits))
    });
    let (state, limits) = match parsed {
        Ok(parsed) => parsed,
        Err(response) => return response,
    };
    match app.auth.set_limits(&caller, &state, &limits).await {
        Ok(tenant) => ok(tenant),
        Err(error) => change_failed(&error),
    }
}

fn find(app: &App, caller: &Caller, name: &str) -> Result<Arc<TenantState>, Response> {
    let directory = app.auth.directory();
    let own = caller.principal.tenant.tenant.name();
    let state = directory.tenants.get(name);
    let state = state.filter(|_| caller.principal.root || name == own);
    state.cloned().ok_or_else(|| {
        let message = format!("there is no tenant `{name}`; `treadle access tenants` lists them");
        refuse(ErrorCode::TenantUnknown, message)
    })
}

fn shown(state: &TenantState) -> Value {
    tenant_json(state.tenant.name(), state.created_at_us, &state.limits)
}

/// The limits of a request laid over others.
fn limits_of(request: &Map<String, Value>, base: &TenantLimits) -> Result<TenantLimits, Response> {
    let named = match request.get("limits") {
        None | Some(Value::Null) => return Ok(base.clone()),
        Some(Value::Object(named)) => named,
        Some(_) => {
            return Err(refuse(
                ErrorCode::InvalidField,
                "`limits` must be an object",
            ));
        }
    };
    let mut limits = serde_json::to_value(base).unwrap_or_default();
    for (key, value) in named {
        limits[key.as_str()] = value.clone();
    }
    serde_json::from_value(limits)
        .map_err(|error| refuse(ErrorCode::InvalidField, format!("`limits`: {error}")))
}

/// Why nothing was changed, for the client.
pub(super) fn change_failed(error: &ChangeError) -> Response {
    match error {
        ChangeError::Refused(error) => error_response(error),
        ChangeError::Store(error) => store_failed(error),
        ChangeError::NotAudited(_) => not_audited(),
        ChangeError::Randomness(error) => refuse(ErrorCode::Internal, error.to_string()),
    }
}
