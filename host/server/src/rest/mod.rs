//! Everything over HTTP that is not a generation request.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

pub(crate) mod actions;
mod ask;
mod audit;
mod bindings;
mod bodies;
mod caches;
pub(crate) mod cluster;
mod events;
mod health;
mod identity;
mod loads;
mod memory;
mod names;
mod plugins;
mod programs;
mod tenants;
mod tokens;
mod whatif;
pub(crate) mod workers;

use crate::app::App;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, delete, get, post};
use std::sync::Arc;
use std::time::Duration;
use treadle_auth as auth;
use treadle_auth::Auth;
use treadle_gateway as gateway;
use treadle_gateway::{GatewayState, forward_get, not_recorded};
use treadle_http::refuse;
use treadle_wire::ErrorCode;

/// Largest body of a request that is not a generation request or an upload.
pub(crate) const CONTROL_BYTES_MAX: usize = 1 << 20;

/// Longest wait of a reader for the journal's writer.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(5);

/// The whole HTTP surface.
pub(crate) fn router(app: App) -> Router {
    let upload_bytes_max = app.policies.upload_bytes_max() + CONTROL_BYTES_MAX;
    let control = Router::new()
        .route("/health", get(health::show))
        .route("/metrics", get(health::metrics))
        .route("/programs", get(programs::list))
        .route("/programs/release", post(programs::release))
        .route("/finish_session", post(programs::finish_session))
        .route("/profiles", get(programs::profiles))
        .route("/profiles/{program}", get(programs::profile))
        .route("/workers", get(workers::list).post(workers::add))
        .route("/workers/{worker}", delete(workers::remove))
        .route("/list_workers", get(workers::list_urls))
        .route("/add_worker", post(workers::add))
        .route("/remove_worker", post(workers::remove_by_query))
        .route("/v1/memory", get(memory::show))
        .route("/v1/loads", get(loads::loads))
        .route("/get_load", get(loads::get_load))
        .route("/abort_request", post(loads::abort_request))
        .route(
            "/v1/programs/{program}/steps/{step}/bodies",
            get(bodies::show),
        )
        .route("/v1/jobs/{job}", delete(programs::delete_job))
        .route(
            "/v1/bindings",
            get(bindings::list)
                .put(bindings::bind)
                .delete(bindings::withdraw),
        )
        .route("/v1/lab/runs", get(whatif::list).post(whatif::start))
        .route(
            "/v1/lab/runs/{run}",
            get(whatif::show).delete(whatif::cancel),
        )
        .route("/v1/bindings/rollback", post(bindings::roll_back))
        .route("/v1/actions", post(actions::report))
        .route("/v1/ask", post(ask::ask))
        .route("/v1/plugins/{plugin}", get(plugins::show))
        .route("/v1/plugins/{plugin}/logs", get(plugins::logs))
        .route("/v1/cluster", get(cluster::show))
        .merge(access())
        .merge(records(&app))
        .layer(DefaultBodyLimit::max(CONTROL_BYTES_MAX));
    let uploads = Router::new()
        .route("/v1/plugins", get(plugins::list).post(plugins::push))
        .route("/v1/plugins/check", post(plugins::check))
        .layer(DefaultBodyLimit::max(upload_bytes_max));
    let forwarded = forwarded().with_state(app.gateway.clone());
    let generation = gateway::routes().with_state(app.gateway.clone());
    let guard = from_fn_with_state(app.auth.clone(), auth::guard);
    let identity = identity(app.auth.clone());
    control
        .merge(uploads)
        .with_state(app)
        .merge(identity)
        .merge(forwarded)
        .merge(generation)
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_path)
        .layer(guard)
}

/// What every daemon answers on its own, whichever schedules.
pub(crate) fn identity(auth: Arc<Auth>) -> Router {
    Router::new()
        .route("/v1/identity", get(identity::prove))
        .with_state(auth)
}

/// What is on record: it shows all that the scheduler had done when it was asked.
fn records(app: &App) -> Router<App> {
    Router::new()
        .route("/v1/programs", get(programs::history))
        .route(
            "/v1/programs/{program}",
            get(programs::show).delete(programs::delete),
        )
        .route("/v1/programs/{program}/steps", get(programs::steps))
        .route("/v1/programs/{program}/decisions", get(programs::decisions))
        .route("/v1/events", get(events::page))
        .route_layer(from_fn_with_state(app.clone(), once_recorded))
}

/// Waits until what was done before is on disk. While the store takes nothing, what it has is shown
/// after all.
async fn once_recorded(State(app): State<App>, request: Request, next: Next) -> Response {
    let _ = tokio::time::timeout(RECORD_WAIT_MAX, app.driver.recorded()).await;
    next.run(request).await
}

/// Authentication and authorisation.
fn access() -> Router<App> {
    Router::new()
        .route("/v1/whoami", get(tenants::whoami))
        .route("/v1/tenants", get(tenants::list).post(tenants::create))
        .route(
            "/v1/tenants/{tenant}",
            get(tenants::show).put(tenants::change),
        )
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .route("/v1/tokens/{token}/rotate", post(tokens::rotate))
        .route("/v1/audit", get(audit::page))
}

/// Requests that any engine answers.
fn forwarded() -> Router<Arc<GatewayState>> {
    let forwarded = any(forward_get);
    Router::new()
        .route("/v1/models", forwarded.clone())
        .route("/tokenize", forwarded.clone())
        .route("/detokenize", forwarded.clone())
        .route("/server_info", forwarded.clone())
        .route("/health_generate", forwarded)
}

async fn unknown_path(uri: Uri) -> Response {
    let message = format!(
        "there is no {}; docs/reference/http.md lists the paths",
        uri.path()
    );
    refuse(ErrorCode::UnknownPath, message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    treadle_http::wrong_method(&method, &uri)
}

/// True if the client asked for JSON.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

/// A success with a JSON body.
pub(crate) fn ok(value: serde_json::Value) -> Response {
    (StatusCode::OK, Json(value)).into_response()
}

fn stopped() -> Response {
    refuse(ErrorCode::Overloaded, "treadle is shutting down")
}

pub(crate) fn store_failed(error: &treadle_store::StoreError) -> Response {
    tracing::error!(%error, "the store failed");
    refuse(ErrorCode::Internal, "the store failed; see the log")
}

/// The change was made, but is not on record.
fn not_audited() -> Response {
    let message = auth::audit::NotAudited.to_string();
    refuse(ErrorCode::Internal, message)
}

/// Reads a JSON object from a body, with errors that name the remedy.
fn object(body: &[u8]) -> Result<serde_json::Map<String, serde_json::Value>, Response> {
    let value: serde_json::Value = serde_json::from_slice(body)
        .map_err(|e| refuse(ErrorCode::InvalidJson, format!("the body is not JSON: {e}")))?;
    match value {
        serde_json::Value::Object(object) => Ok(object),
        _ => Err(refuse(
            ErrorCode::BodyNotObject,
            "the body must be a JSON object",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use treadle_auth::permissions::routes;
    use treadle_wire::Endpoint;

    /// Paths that the router is built from, as they are in its source.
    fn paths_of_the_router() -> BTreeSet<String> {
        let source = include_str!("mod.rs");
        let calls = source.split(concat!(".rou", "te(")).skip(1);
        calls
            .filter_map(|call| call.split('"').nth(1).map(str::to_owned))
            .collect()
    }

    #[test]
    fn every_route_is_in_the_table_and_the_table_has_no_other() {
        let table: BTreeSet<String> = routes().into_iter().map(|route| route.path).collect();
        let mut router = paths_of_the_router();
        assert!(router.len() > 20, "{router:?}");
        for endpoint in Endpoint::ALL {
            router.insert(endpoint.path().to_owned());
            router.insert(format!("/sessions/{{session}}{}", endpoint.path()));
        }
        assert_eq!(router, table);
    }
}
