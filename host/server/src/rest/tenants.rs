//! Tenants: their limits, and who the caller is.

use super::Endpoint;
use super::{not_audited, refuse, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use treadle_auth::changes::{ChangeError, TenantView};
use treadle_auth::permissions::{ADMIN, Needs, VIEW};
use treadle_auth::{Caller, Scope, TenantLimits, TenantState};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::{Answer, Created};
use treadle_endpoints::{get, post, put};
use treadle_http::error_response;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = "/api/v1/tenants/{tenant}";
    vec![
        get("/api/v1/whoami", VIEW, whoami).summary("The caller's identity and permissions"),
        get("/api/v1/tenants", ADMIN, list)
            .summary("Tenants and their limits")
            .details(
                "Returns all tenants for an admin of the whole daemon, else the caller's own.",
            ),
        post("/api/v1/tenants", Needs::Root, create)
            .summary("Creates a tenant")
            .fails(&[ErrorCode::TenantExists, ErrorCode::TenantLimit]),
        get(one, ADMIN, show)
            .summary("One tenant")
            .fails(&[ErrorCode::TenantUnknown]),
        put(one, ADMIN, change)
            .summary("Changes a tenant's limits")
            .details("Only the limits in the body change.")
            .fails(&[ErrorCode::TenantUnknown]),
    ]
}

/// The caller's identity and permissions.
#[derive(Serialize, ToSchema)]
struct Whoami {
    /// A token, a subject of the identity provider, or anonymous.
    who: String,
    /// Its tenant.
    tenant: String,
    /// Its scope.
    scope: Option<Scope>,
    /// Whether it is an admin of the whole daemon.
    root: bool,
    /// Number of tenants.
    tenants: usize,
    /// Limits of its tenant.
    limits: TenantLimits,
}

async fn whoami(State(app): State<App>, caller: Caller) -> Json<Whoami> {
    let principal = &caller.principal;
    Json(Whoami {
        who: principal.who.to_string(),
        tenant: principal.tenant.tenant.name().to_owned(),
        scope: principal.scope,
        root: principal.root,
        tenants: app.auth.directory().tenants.len(),
        limits: principal.tenant.limits.clone(),
    })
}

/// Tenants that the caller may see.
#[derive(Serialize, ToSchema)]
struct Tenants {
    /// By name.
    tenants: Vec<TenantView>,
}

async fn list(State(app): State<App>, caller: Caller) -> Json<Tenants> {
    let directory = app.auth.directory();
    let own = caller.principal.tenant.tenant.name();
    let visible = |state: &&Arc<TenantState>| caller.principal.whole || state.tenant.name() == own;
    let tenants = directory.tenants.values().filter(visible);
    Json(Tenants {
        tenants: tenants.map(|state| shown(state)).collect(),
    })
}

/// A tenant to be created.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    /// Its name: up to 63 lower-case letters, digits and dashes.
    tenant: String,
    /// Limits other than the default ones.
    #[serde(default)]
    #[schema(value_type = Option<TenantLimits>)]
    limits: Option<Map<String, Value>>,
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(new): Body<NewTenant>,
) -> Result<Created<TenantView>, Response> {
    let limits = limits_of(new.limits, &TenantLimits::default())?;
    let made = app.auth.create_tenant(&caller, &new.tenant, &limits).await;
    made.map(Created).map_err(|error| change_failed(&error))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(name): InPath<String>,
) -> Answer<TenantView> {
    find(&app, &caller, &name).map(|state| Json(shown(&state)))
}

/// Limits to be changed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedLimits {
    /// The limits to change; others are unchanged.
    #[serde(default)]
    #[schema(value_type = Option<TenantLimits>)]
    limits: Option<Map<String, Value>>,
}

async fn change(
    State(app): State<App>,
    caller: Caller,
    InPath(name): InPath<String>,
    Body(changed): Body<ChangedLimits>,
) -> Answer<TenantView> {
    let state = find(&app, &caller, &name)?;
    let limits = limits_of(changed.limits, &state.limits)?;
    let changed = app.auth.set_limits(&caller, &state, &limits).await;
    changed.map(Json).map_err(|error| change_failed(&error))
}

fn find(app: &App, caller: &Caller, name: &str) -> Result<Arc<TenantState>, Response> {
    let directory = app.auth.directory();
    let own = caller.principal.tenant.tenant.name();
    let state = directory.tenants.get(name);
    let state = state.filter(|_| caller.principal.root || name == own);
    state.cloned().ok_or_else(|| {
        let message = format!("no tenant `{name}`; `treadle access tenants` lists them");
        refuse(ErrorCode::TenantUnknown, message)
    })
}

fn shown(state: &TenantState) -> TenantView {
    TenantView::of(state.tenant.name(), state.created_at_us, &state.limits)
}

/// The limits of a request laid over others.
fn limits_of(
    named: Option<Map<String, Value>>,
    base: &TenantLimits,
) -> Result<TenantLimits, Response> {
    let mut limits = serde_json::to_value(base).unwrap_or_default();
    for (key, value) in named.unwrap_or_default() {
        limits[key] = value;
    }
    serde_json::from_value(limits)
        .map_err(|error| refuse(ErrorCode::InvalidField, format!("`limits`: {error}")))
}

/// The response for a change that failed.
pub(super) fn change_failed(error: &ChangeError) -> Response {
    match error {
        ChangeError::Refused(error) => error_response(error),
        ChangeError::Store(error) => store_failed(error),
        ChangeError::NotAudited(_) => not_audited(),
        ChangeError::Randomness(error) => refuse(ErrorCode::Internal, error.to_string()),
    }
}
