//! Routes of an agent: requests about its sandboxes that its daemon forwards, its health, and its
//! metrics.

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use treadle_auth::relay::Vouched;
use treadle_auth::{Caller, Principal, PrincipalKind, relay};
use treadle_config::Secret;
use treadle_http::refuse;
use treadle_runs::links::knows_secret;
use treadle_runs::nodes::{LIST_PATH, SIGNED_PATH, SNAPSHOTS_PATH};
use treadle_runs::sandboxes::{Listed, ListedSnapshot, SandboxApp};
use treadle_runs::weights::{PULL_PATH, Pulls, Wanted};
use treadle_sandbox_apis::{FileQuery, is_well, sandbox_router};
use treadle_wire::ErrorCode;

#[derive(Clone)]
struct Door {
    app: SandboxApp,
    secret: Arc<Secret>,
    weights: Arc<Pulls>,
}

/// The router of an agent.
pub(super) fn router(app: SandboxApp, secret: Secret, weights: Pulls) -> Router {
    let secret = Arc::new(secret);
    let door = Door {
        app: app.clone(),
        secret,
        weights: Arc::new(weights),
    };
    let own = Router::new()
        .route(LIST_PATH, get(list))
        .route(SNAPSHOTS_PATH, get(snapshots))
        .route(&format!("{SIGNED_PATH}/{{operation}}"), get(signed))
        .route("/health", get(is_well))
        .with_state(app.clone());
    let weights = Router::new()
        .route(PULL_PATH, post(pull_weights))
        .with_state(door.clone());
    sandbox_router(app)
        .merge(own)
        .merge(weights)
        .layer(from_fn_with_state(door.clone(), let_in))
        .merge(
            Router::new()
                .route("/metrics", get(metrics))
                .with_state(door),
        )
        .fallback(async || {
            refuse(
                ErrorCode::UnknownPath,
                "a node's agent serves only its daemon",
            )
        })
}

/// Admits requests that the daemon vouches for.
async fn let_in(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let secret = door.secret.reveal();
    let vouched = relay::vouched(secret, &method, &uri, request.headers_mut());
    let Some(Vouched {
        tenant,
        scope,
        allowed,
    }) = vouched
    else {
        if uri.path() == "/health" {
            return StatusCode::NO_CONTENT.into_response();
        }
        let message = "send the request to this node's daemon, which forwards it";
        return refuse(ErrorCode::Forbidden, message);
    };
    let Some((tenant, tenants)) = door.app.tenants.let_in_as(&tenant, allowed) else {
        return refuse(ErrorCode::TenantUnknown, "no such tenant");
    };
    let principal = Principal {
        tenant,
        scope,
        global: false,
        root: false,
        whole: false,
        tenants,
        who: PrincipalKind::Subject("a daemon".to_owned()),
    };
    request.extensions_mut().insert(Arc::new(principal));
    next.run(request).await
}

async fn list(State(app): State<SandboxApp>, caller: Caller) -> Json<Vec<Listed>> {
    let host = app.host.as_ref();
    let tenant = &caller.principal.tenant.tenant;
    let mut all = host.map_or_else(Vec::new, |host| host.list_with_bounds(tenant));
    for listed in &mut all {
        listed.node.clone_from(&app.node);
    }
    Json(all)
}

async fn snapshots(State(app): State<SandboxApp>, caller: Caller) -> Json<Vec<ListedSnapshot>> {
    let host = app.host.as_ref();
    let tenant = &caller.principal.tenant.tenant;
    let mut all = host.map_or_else(Vec::new, |host| host.snapshots(tenant));
    for listed in &mut all {
        listed.node.clone_from(&app.node);
    }
    Json(all)
}

/// The sandbox that a URL was signed for; empty if it is not on this node.
async fn signed(
    State(app): State<SandboxApp>,
    Path(operation): Path<String>,
    Query(query): Query<FileQuery>,
) -> String {
    let host = app.host.as_ref();
    let found = host.and_then(|host| query.signed_for(host, &operation));
    found.unwrap_or_default()
}

/// Brings a version of weights to this node; the daemon waits for it.
async fn pull_weights(State(door): State<Door>, Json(wanted): Json<Wanted>) -> Response {
    match door.weights.pull(&wanted).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(cause) => refuse(ErrorCode::WeightsConflict, cause),
    }
}

async fn metrics(State(door): State<Door>, request: Request) -> Response {
    if !knows_secret(request.headers(), door.secret.reveal()) {
        let message = "send `cluster.secret` as `Authorization: Bearer ...`";
        return refuse(ErrorCode::Forbidden, message);
    }
    let text = door.app.host.map_or_else(String::new, |host| host.render());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
