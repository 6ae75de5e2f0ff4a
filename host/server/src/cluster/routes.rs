//! Routing of requests in a cluster.

use super::member::Parts;
use super::proxy::{no_scheduler, pass_on};
use super::subject;
use crate::cluster::link::serve_link;
use crate::rest::cluster::{self, Cluster};
use crate::rest::{self, generation, identity, session};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json};
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use treadle_auth as auth;
use treadle_auth::relay::{self, Way};
use treadle_endpoints::router as router_of;
use treadle_endpoints::signature::Answer;
use treadle_http::{ClientAddress, refuse};
use treadle_runs::links::knows_secret;
use treadle_runs::nodes;
use treadle_wire::ErrorCode;

/// Serves generation requests and gateways' connections here, and forwards the rest to the
/// scheduler.
pub(super) fn router(parts: Arc<Parts>) -> Router {
    let guard = from_fn_with_state(
        rest::guard_of(parts.auth.clone(), &parts.gateway),
        auth::guard,
    );
    let own = router_of(generation::endpoints(), parts.gateway.clone(), 0)
        .merge(router_of(identity::endpoints(), parts.auth.clone(), 0))
        .merge(router_of(session::endpoints(), parts.auth.clone(), 0))
        .merge(router_of(vec![cluster::endpoint(show)], parts.clone(), 0));
    Router::new()
        .route(
            &format!("{}/{{shard}}", treadle_scheduler::link::PATH),
            get(connect),
        )
        .fallback(answer)
        .with_state(parts)
        .merge(own.layer(guard))
}

/// Accepts a gateway's connection to the scheduler.
async fn connect(
    State(parts): State<Arc<Parts>>,
    Path(shard): Path<String>,
    request: Request,
) -> Response<Body> {
    if !knows_secret(request.headers(), parts.secret.reveal()) {
        return other_secret();
    }
    let known = parts.shards.iter().find(|known| known.name == shard);
    match known.and_then(|shard| shard.slot.occupied()) {
        Some(occupied) => serve_link(occupied.link, request),
        None => no_scheduler(),
    }
}

fn other_secret() -> Response<Body> {
    let message = "the daemons' `cluster.secret` differ; set all of them to the same value";
    refuse(ErrorCode::Forbidden, message)
}

/// The scheduler of each shard, as seen by this daemon.
async fn show(State(parts): State<Arc<Parts>>) -> Answer<Cluster> {
    let mut shards = Vec::with_capacity(parts.shards.len());
    for shard in &parts.shards {
        let here = shard.slot.occupied().is_some();
        let told = cluster::shard(&*shard.store, &shard.name, here).await;
        shards.push(told.map_err(|error| rest::store_failed(&error))?);
    }
    Ok(Json(Cluster {
        role: parts.role,
        name: Some(parts.name.clone()),
        shards,
    }))
}

async fn answer(State(parts): State<Arc<Parts>>, mut request: Request) -> Response<Body> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    if let Some(file) = treadle_console::answer(&method, uri.path(), request.headers()) {
        return file.map(Body::from);
    }
    auth::credentials::open_cookie(request.headers_mut(), parts.auth.oidc.is_some());
    let way = relay::take(parts.secret.reveal(), &method, &uri, request.headers_mut());
    match way {
        // Records the client's address, not that of the forwarding daemon.
        Way::PassedOn(Some(client)) => {
            request.extensions_mut().insert(ClientAddress(client));
        }
        Way::Direct | Way::PassedOn(None) => {}
        Way::Unproven => return other_secret(),
    }
    let (shard, request) = match subject::find(&parts, request).await {
        Ok(found) => found,
        Err(response) => return *response,
    };
    if let Some(occupied) = shard.slot.occupied() {
        let answer = TowerToHyperService::new(occupied.router).call(request);
        return answer.await.into_response();
    }
    // A connection can't be forwarded: a node's agent tries the daemons one after another.
    if way != Way::Direct || uri.path() == nodes::PATH {
        return no_scheduler();
    }
    if let Err(response) = admit(&parts, &request) {
        return *response;
    }
    match shard.store.leader().await {
        Ok(Some(leader)) => {
            pass_on(&parts.proxy, parts.secret.reveal(), &leader.url, request).await
        }
        Ok(None) => no_scheduler(),
        Err(error) => {
            tracing::warn!(%error, "the store does not show which daemon schedules");
            no_scheduler()
        }
    }
}

/// The scheduler sees this daemon as the caller, so callers without a token must be checked here.
fn admit(parts: &Parts, request: &Request) -> Result<(), Box<Response<Body>>> {
    let mut headers = request.headers().clone();
    let has_none = auth::credentials::take(&mut headers, parts.auth.oidc.is_some())
        == auth::credentials::Credential::None;
    let path = request.uri().path();
    if !has_none || path == "/health" {
        return Ok(());
    }
    let anonymous = &parts.auth.anonymous;
    if anonymous.scope.is_none() {
        let message = "this needs a token; send it as `Authorization: Bearer tr_...`";
        return Err(Box::new(refuse(ErrorCode::TokenMissing, message)));
    }
    match anonymous.objection(&headers) {
        Some(why) => Err(Box::new(treadle_http::error_response(&why.refusal(path)))),
        None => Ok(()),
    }
}
