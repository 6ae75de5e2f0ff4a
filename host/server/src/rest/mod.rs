//! The HTTP API except for generation requests.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

mod actions;
mod ask;
mod audit;
mod bindings;
mod bodies;
pub(crate) mod caches;
pub(crate) mod cluster;
mod decisions;
mod demo;
mod events;
pub(crate) mod generation;
mod health;
mod history;
pub(crate) mod identity;
mod memory;
mod nodes;
mod openapi;
mod plugins;
mod policy_views;
pub(crate) mod programs;
#[cfg(test)]
mod reaches;
mod resources;
pub(crate) mod session;
mod sglang_router;
mod steps;
mod stream;
mod tenants;
mod thunderagent;
mod tokens;
mod upload;
mod whatif;
pub(crate) mod workers;

use crate::app::App;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use std::time::Duration;
use treadle_auth as auth;
use treadle_auth::Guard;
use treadle_auth::permissions::{Permissions, Route};
use treadle_endpoints::EndpointDescription;
use treadle_gateway::{GatewayState, not_recorded};
use treadle_http::refuse;
use treadle_relay::{relay_endpoints, relay_router};
use treadle_sandbox_apis::{forward, in_form, sandbox_endpoints, sandbox_router};
use treadle_training::{training_endpoints, training_router};
use treadle_wire::ErrorCode;

/// How long a reader waits for the journal's writer, at most.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(5);

/// An endpoint whose handler has the state [`App`].
type Endpoint = treadle_endpoints::Endpoint<App>;

/// The group of the endpoints for tenants, tokens and callers.
const ACCESS: &str = "Access";

/// Endpoints of the scheduler, by group.
fn own() -> Vec<(&'static str, Vec<Endpoint>)> {
    let joined = |parts: Vec<Vec<Endpoint>>| parts.into_iter().flatten().collect();
    vec![
        (
            "Programs and jobs",
            joined(vec![
                programs::endpoints(),
                steps::endpoints(),
                bodies::endpoints(),
                decisions::endpoints(),
                actions::endpoints(),
                resources::endpoints(),
                nodes::endpoints(),
            ]),
        ),
        ("Engines", workers::endpoints()),
        (
            "Watching",
            joined(vec![
                health::endpoints(),
                openapi::endpoints(),
                events::endpoints(),
                stream::endpoints(),
                memory::endpoints(),
                history::endpoints(),
                demo::endpoints(),
                cluster::endpoints(),
            ]),
        ),
        (
            "Policies",
            joined(vec![
                plugins::endpoints(),
                bindings::endpoints(),
                ask::endpoints(),
                whatif::endpoints(),
            ]),
        ),
        (
            ACCESS,
            joined(vec![
                tenants::endpoints(),
                tokens::endpoints(),
                audit::endpoints(),
            ]),
        ),
        ("For clients of ThunderAgent", thunderagent::endpoints()),
        ("For clients of SGLang's router", sglang_router::endpoints()),
    ]
}

/// Every endpoint, by group.
fn groups() -> Vec<(&'static str, Vec<EndpointDescription>)> {
    fn descriptions<S: Clone + Send + Sync + 'static>(
        endpoints: Vec<treadle_endpoints::Endpoint<S>>,
    ) -> Vec<EndpointDescription> {
        endpoints
            .into_iter()
            .map(treadle_endpoints::Endpoint::into_description)
            .collect()
    }
    let mut groups = vec![
        ("Generation", descriptions(generation::endpoints())),
        (
            "Forwarded to an engine",
            descriptions(generation::forwarded()),
        ),
    ];
    groups.extend(
        own()
            .into_iter()
            .map(|(group, all)| (group, descriptions(all))),
    );
    groups.push(("Training runs", descriptions(training_endpoints())));
    groups.push((
        "For trainers that update weights",
        descriptions(relay_endpoints()),
    ));
    let of_sandboxes = sandbox_endpoints().into_iter();
    groups.extend(of_sandboxes.map(|(group, all)| (group, descriptions(all))));
    if let Some((_, access)) = groups.iter_mut().find(|(group, _)| *group == ACCESS) {
        access.extend(descriptions(identity::endpoints()));
        access.extend(descriptions(session::endpoints()));
    }
    groups
}

/// Every route of a daemon, for the guard.
pub fn routes() -> Vec<Route> {
    let all = groups()
        .into_iter()
        .flat_map(|(_, descriptions)| descriptions);
    all.map(|description| description.route()).collect()
}

/// The guard that admits requests.
pub(crate) fn guard_of(auth: std::sync::Arc<auth::Auth>, gateway: &GatewayState) -> Guard {
    let permissions = Permissions::new(routes());
    Guard {
        auth,
        permissions: permissions.into(),
        bodies: gateway.room.bodies.clone(),
        body_pause_max: gateway.body_timeout,
    }
}

/// The whole HTTP surface.
pub(crate) fn router(app: App) -> Router {
    let upload_bytes_max = app.policies.upload_bytes_max();
    let guard = from_fn_with_state(guard_of(app.auth.clone(), &app.gateway), auth::guard);
    let own: Vec<Endpoint> = own().into_iter().flat_map(|(_, all)| all).collect();
    let forward = from_fn_with_state(app.sandbox_app(), forward);
    let of_sandboxes = sandbox_router(app.sandbox_app()).layer(forward);
    let of_training = training_router(app.training.clone());
    let of_trainers = relay_router(app.relay_app());
    let link = Router::new()
        .route(treadle_runs::nodes::PATH, get(nodes::connect))
        .with_state(app.clone());
    let mut relayed = generation::endpoints();
    relayed.extend(generation::forwarded());
    treadle_endpoints::router(identity::endpoints(), app.auth.clone(), 0)
        .merge(treadle_endpoints::router(
            session::endpoints(),
            app.auth.clone(),
            0,
        ))
        .merge(treadle_endpoints::router(relayed, app.gateway.clone(), 0))
        .merge(treadle_endpoints::router(own, app, upload_bytes_max))
        .merge(of_sandboxes)
        .merge(of_training)
        .merge(of_trainers)
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_path)
        .layer(guard)
        .merge(link)
        .layer(from_fn(in_form))
}

/// Makes a handler's response include all that the scheduler had done when the request arrived.
fn recorded_first(app: &App, handler: MethodRouter<App>) -> MethodRouter<App> {
    handler.layer(from_fn_with_state(app.clone(), once_recorded))
}

/// Waits until earlier changes are on disk. If the store accepts no writes, the response has what
/// is stored.
async fn once_recorded(State(app): State<App>, request: Request, next: Next) -> Response {
    let _ = tokio::time::timeout(RECORD_WAIT_MAX, app.driver.recorded()).await;
    next.run(request).await
}

/// A file of the console, or none.
async fn unknown_path(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(file) = treadle_console::answer(&method, uri.path(), &headers) {
        return file.map(Body::from);
    }
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

/// The refusal while treadle shuts down.
pub(crate) fn stopped() -> Response {
    refuse(ErrorCode::Overloaded, "treadle is shutting down")
}

pub(crate) fn store_failed(error: &treadle_store::StoreError) -> Response {
    tracing::error!(%error, "the store failed");
    refuse(ErrorCode::Internal, "the store failed; see the log")
}

/// The refusal if a change was made but not written to the audit log.
fn not_audited() -> Response {
    let message = auth::audit::NotAudited.to_string();
    refuse(ErrorCode::Internal, message)
}
