//! The health of a sandbox, on the path that a daemon's own health has.

use crate::e2b::{is_named, is_well};
use crate::forward::forward_call;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use treadle_auth::Caller;
use treadle_runs::sandboxes::SandboxApp;

/// Serves `/health` for the sandbox if the request names one, else for treadle.
pub async fn health_of_sandbox(
    State(app): State<SandboxApp>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    if !is_named(request.headers()) {
        return next.run(request).await;
    }
    let request = match forward_call(&app, request).await {
        Ok(answer) => return answer,
        Err(request) => request,
    };
    is_well(State(app), caller, request).await
}
