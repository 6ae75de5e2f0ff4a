//! Requests that need no placement: they go to any responding engine with their model.

use super::GatewayState;
use super::headers::{for_engines, query_for_engines};
use super::model_names::{models_of, not_found};
use super::request::{PARSE_INLINE_BYTES_MAX, body_limits};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response};
use bytes::Bytes;
use hyper::body::Incoming;
use std::collections::BTreeSet;
use std::sync::Arc;
use treadle_auth::Principal;
use treadle_core::programs::Worker;
use treadle_http::{InUse, body, error_response, of_engine};
use treadle_trust::public_host;
use treadle_wire::{ErrorBody, ErrorCode, Forwarded, ForwardedHead};

/// A checked request for an engine.
pub(crate) struct Forward {
    /// Its model, if it names one.
    pub(crate) model: Option<String>,
    /// Its headers for engines.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Its query for engines, with the question mark.
    pub(crate) query: String,
    _room: InUse<2>,
}

/// Forwards a request for a page of an engine's to the healthy worker with the fewest running steps.
pub async fn forward(State(app): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let target = format!("{}{}", parts.uri.path(), query_for_engines(&parts.uri));
    let answer = async {
        let headers = headers_of(&app, &parts, &*crate::principal_of(&parts)?);
        let engine = engine_with(&app, None).await?;
        ask(&app, &engine, Method::GET, &target, &headers, Bytes::new()).await
    };
    respond(answer.await)
}

/// Forwards a request with a body.
pub async fn forward_body(
    app: Arc<GatewayState>,
    kind: Forwarded,
    request: Request,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = async {
        let call = Forward::read(&app, kind, request).await?;
        let engine = engine_with(&app, call.model.as_deref()).await?;
        let target = format!("{path}{}", call.query);
        let body = call.body.clone();
        ask(&app, &engine, Method::POST, &target, &call.headers, body).await
    };
    respond(answer.await)
}

impl Forward {
    /// Reads a request, and checks its fields.
    pub(crate) async fn read(
        app: &GatewayState,
        kind: Forwarded,
        request: Request,
    ) -> Result<Self, ErrorBody> {
        let (mut parts, payload) = request.into_parts();
        let principal = crate::principal_of(&parts)?;
        let limits = body_limits(app, &principal);
        let (body, room) = body::read(&mut parts.headers, payload, limits).await?;
        let head = if body.len() > PARSE_INLINE_BYTES_MAX {
            tokio::task::block_in_place(|| ForwardedHead::parse(kind, &body))?
        } else {
            ForwardedHead::parse(kind, &body)?
        };
        let is_alone = principal.is_alone();
        head.foreign.check(&app.pass_fields, is_alone)?;
        head.media.check(&app.pass_fields, is_alone, public_host)?;
        Ok(Self {
            model: head.model,
            headers: headers_of(app, &parts, &principal),
            body,
            query: query_for_engines(&parts.uri),
            _room: room,
        })
    }
}

/// A request's headers for engines.
pub(crate) fn headers_of(app: &GatewayState, parts: &Parts, principal: &Principal) -> HeaderMap {
    for_engines(&parts.headers, &app.pass_fields, principal.is_alone())
}

/// The healthy workers, those with the fewest running steps first, and those out of service last.
pub(crate) async fn engines(app: &GatewayState) -> Result<Vec<Worker>, ErrorBody> {
    let driver = app.scheduler.local().ok_or_else(|| {
        let message = "this daemon does not schedule requests; please report this";
        ErrorBody::new(ErrorCode::Internal, message)
    })?;
    let mut workers = driver.workers().await.unwrap_or_default();
    workers.retain(Worker::is_healthy);
    workers.sort_by_key(|w| (!w.takes_programs(), w.running_steps, w.id));
    if workers.is_empty() {
        let message =
            "no registered engine responds; start one or register another with POST /workers";
        return Err(ErrorBody::new(ErrorCode::NoHealthyWorker, message));
    }
    Ok(workers)
}

/// The engine for a request: one with the model, or one that does not report its models. If all
/// have the same models, unknown names are left to the engine to refuse.
pub(crate) async fn engine_with(
    app: &GatewayState,
    model: Option<&str>,
) -> Result<Worker, ErrorBody> {
    let mut engines = engines(app).await?;
    let Some(model) = model else {
        return Ok(engines.swap_remove(0));
    };
    let serves = |w: &Worker| w.model.is_none() || w.lists(model);
    let are_alike = || {
        engines
            .iter()
            .all(|w| models_of(w) == models_of(&engines[0]))
    };
    match engines.iter().position(serves) {
        Some(at) => Ok(engines.swap_remove(at)),
        None if are_alike() => Ok(engines.swap_remove(0)),
        None => {
            let known = engines.iter().flat_map(models_of);
            Err(not_found(model, known.collect::<BTreeSet<_>>()))
        }
    }
}

/// Sends a request to an engine and returns its response, whatever its status.
pub(crate) async fn ask(
    app: &GatewayState,
    engine: &Worker,
    method: Method,
    target: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response<Incoming>, ErrorBody> {
    let base = engine.url.trim_end_matches('/');
    let sending = app.upstream.send(method, base, target, headers, body);
    let sent = tokio::time::timeout(app.forward_timeout, sending).await;
    let sent = sent.map_err(|_| {
        let timeout_s = app.forward_timeout.as_secs();
        let message = format!("the engine did not start to respond within {timeout_s} s");
        ErrorBody::new(ErrorCode::EngineTimeout, message)
    })?;
    sent.map_err(|error| ErrorBody::new(ErrorCode::EngineUnreachable, error.to_string()))
}

/// An engine's response as the client gets it.
pub(crate) fn respond(answer: Result<Response<Incoming>, ErrorBody>) -> Response<Body> {
    match answer {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let mut answer = Response::new(Body::new(body));
            *answer.status_mut() = parts.status;
            *answer.headers_mut() = of_engine(&parts.headers);
            answer
        }
        Err(error) => error_response(&error),
    }
}
