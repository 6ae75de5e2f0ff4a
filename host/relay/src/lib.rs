//! The control protocols of engines, for trainers that update weights by themselves: they change a
//! URL and nothing else. `docs/weights.md` describes it.
//!
//! A trainer's calls are passed on, to one engine or to all engines of its job; the weights go by
//! NCCL, IPC or a disk, as before. The core is told of each call that concerns an engine's weights
//! before it is made: it fences the engine. Instead of passing a resume on, treadle has the engine
//! prove what it has, clears its caches, and only then resumes it.

#![allow(
    clippy::result_large_err,
    reason = "an early answer is a whole response; it is returned once, not propagated"
)]

mod answers;
mod calls;
mod fan_out;
mod paths;
mod ports;
mod ranks;
mod relayed;
mod sglang;

pub use ports::{Port, port_router};

use answers::{ANSWERS_BYTES_MAX, Reply};
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use bytes::Bytes;
use calls::Run;
use relayed::Relayed;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Semaphore;
use treadle_auth::permissions::ENGINES;
use treadle_auth::{Auth, Caller};
use treadle_endpoints::{Endpoint, relayed};
use treadle_http::{Bounded, Upstream, error_response, refuse};
use treadle_model::{ClientName, WorkerId};
use treadle_scheduler::DriverHandle;
use treadle_wire::{ErrorBody, ErrorCode};

/// Calls that are under way at once.
const CALLS_MAX: usize = 4_096;

/// What the handlers share.
#[derive(Clone)]
pub struct RelayApp {
    driver: DriverHandle,
    upstream: Upstream,
    auth: Arc<Auth>,
    calls: Arc<Semaphore>,
    /// Memory for answers of engines.
    answers: Bounded,
}

impl RelayApp {
    /// A relay to the engines of this scheduler.
    pub fn new(driver: DriverHandle, upstream: Upstream, auth: Arc<Auth>) -> Self {
        Self {
            driver,
            upstream,
            auth,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            answers: (Arc::default(), ANSWERS_BYTES_MAX),
        }
    }
}

/// The endpoints.
pub fn relay_endpoints() -> Vec<Endpoint<RelayApp>> {
    let fails = [
        ErrorCode::UnknownPath,
        ErrorCode::MethodNotAllowed,
        ErrorCode::InvalidJson,
        ErrorCode::InvalidField,
        ErrorCode::WorkerUnknown,
        ErrorCode::WeightsConflict,
        ErrorCode::EngineUnreachable,
        ErrorCode::Overloaded,
    ];
    let described = |endpoint: Endpoint<RelayApp>| {
        endpoint
            .details("docs/weights.md lists the paths of vLLM and SGLang, and what is done.")
            .takes_weights()
            .answers_as_the_engine()
            .fails(&fails)
    };
    vec![
        described(
            relayed(None, "/api/v1/jobs/{job}/engine/{*path}", ENGINES, relay)
                .summary("A trainer's call to all engines of a job, in their own protocol"),
        ),
        described(
            relayed(
                None,
                "/api/v1/jobs/{job}/workers/{worker}/engine/{*path}",
                ENGINES,
                relay,
            )
            .summary("A trainer's call to one engine, in its own protocol"),
        ),
    ]
}

/// The handlers of the endpoints.
pub fn relay_router(app: RelayApp) -> Router {
    treadle_endpoints::router(relay_endpoints(), app, 0)
}

/// What a call is for.
#[derive(Deserialize)]
struct Target {
    job: String,
    worker: Option<String>,
    path: String,
}

async fn relay(
    state: State<RelayApp>,
    caller: Caller,
    target: Result<Path<Target>, PathRejection>,
    query: RawQuery,
    sent: Sent,
) -> Response {
    match target {
        Ok(target) => answer(state.0, &caller, target.0, query.0, sent).await,
        Err(error) => refuse(ErrorCode::InvalidField, error.body_text()),
    }
}

/// Method, head and body of a request.
struct Sent {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl<S: Send + Sync> axum::extract::FromRequest<S> for Sent {
    type Rejection = Response;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Response> {
        let (method, headers) = (request.method().clone(), request.headers().clone());
        // The guard has read it, within its limits.
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| refuse(ErrorCode::InvalidJson, error.to_string()))?;
        Ok(Self {
            method,
            headers,
            body,
        })
    }
}

async fn answer(
    app: RelayApp,
    caller: &Caller,
    target: Target,
    query: Option<String>,
    sent: Sent,
) -> Response {
    let job = match ClientName::parse("job", target.job) {
        Ok(job) => job,
        Err(error) => return error_response(&ErrorBody::from(error)),
    };
    let relayed = match Relayed::new(&target.path, query, sent) {
        Ok(relayed) => relayed,
        Err(error) => return error_response(&error),
    };
    let Ok(permit) = app.calls.clone().try_acquire_owned() else {
        let message = format!("{CALLS_MAX} calls to engines are under way; wait for one to end");
        return refuse(ErrorCode::Overloaded, message);
    };
    let run = match Run::of(&app, caller, job).await {
        Ok(run) => run,
        Err(error) => return error_response(&error),
    };
    let worker = match target.worker.as_deref().map(str::parse).transpose() {
        Ok(worker) => worker.map(WorkerId),
        Err(_) => {
            return refuse(
                ErrorCode::InvalidField,
                "`worker` is the number of an engine",
            );
        }
    };
    let call = async move {
        let reply = match worker {
            Some(worker) => run.call_one(worker, &relayed, false).await,
            None => run.call_all(&relayed).await,
        };
        drop(permit);
        reply
    };
    // A call that changes weights goes on if the trainer hangs up.
    let ended = tokio::spawn(call).await;
    ended
        .unwrap_or_else(|_| Reply::refused(ErrorCode::Internal, "the relay failed; see the log"))
        .into_response()
}
