//! A port for one engine, for trainers that take a host and a port but no path.

use crate::{RelayApp, Sent, Target, answer};
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;
use serde::Deserialize;
use treadle_auth::permissions::{ENGINES, Permissions, Route};
use treadle_auth::{Caller, Guard, guard};
use treadle_endpoints::WEIGHTS_CALL_BYTES_MAX;
use treadle_http::refuse;
use treadle_model::endpoint_of;
use treadle_wire::ErrorCode;

/// The engine of a port.
#[derive(Clone)]
pub struct Port {
    /// The relay.
    pub app: RelayApp,
    /// The job whose engine it is, by its client's name.
    pub job: String,
    /// The engine's URL.
    pub url: String,
}

/// The handlers of a port. Whoever calls it needs what calls of the API need.
pub fn port_router(port: Port, mut as_in_api: Guard) -> Router {
    const ALL: &str = "/{*path}";
    let route = Route {
        method: None,
        path: ALL.to_owned(),
        needs: ENGINES,
        relayed: true,
        bytes_max: Some(WEIGHTS_CALL_BYTES_MAX),
    };
    as_in_api.permissions = Permissions::new([route]).into();
    Router::new()
        .route(ALL, any(through))
        .with_state(port)
        .layer(from_fn_with_state(as_in_api, guard))
}

/// The path of a request.
#[derive(Deserialize)]
struct PortPath {
    path: String,
}

async fn through(
    State(port): State<Port>,
    caller: Caller,
    path: Path<PortPath>,
    query: RawQuery,
    sent: Sent,
) -> Response {
    let own = endpoint_of(&port.url).0.to_owned();
    let workers = port.app.driver.workers().await.unwrap_or_default();
    let found = workers
        .iter()
        .find(|worker| !worker.leaving && endpoint_of(&worker.url).0 == own);
    let Some(worker) = found else {
        let message = format!("{own} is not registered; register it with `treadle workers add`");
        return refuse(ErrorCode::WorkerUnknown, message);
    };
    let target = Target {
        job: port.job.clone(),
        worker: Some(worker.id.0.to_string()),
        path: path.0.path,
    };
    answer(port.app, &caller, target, query.0, sent).await
}
