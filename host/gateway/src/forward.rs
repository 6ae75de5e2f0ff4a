//! Requests that need no placement: they go to any engine that answers.

use super::GatewayState;
use super::request::body_limits;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use std::sync::Arc;
use treadle_http::end_to_end;
use treadle_http::{body, error_response, refuse};
use treadle_wire::ErrorCode;

/// Forwards a request as it is, path and query included, to the healthy
/// worker with the fewest running steps.
pub async fn forward(State(app): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let (parts, payload) = request.into_parts();
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |p| p.as_str())
        .to_owned();
    let principal = match super::principal_of(&parts) {
        Ok(principal) => principal,
        Err(error) => return error_response(&error),
    };
    let limits = body_limits(&app, &principal);
    let (body, _room) = match body::read(&parts.headers, payload, limits).await {
        Ok(read) => read,
        Err(error) => return error_response(&error),
    };
    let Some(driver) = app.scheduler.local() else {
        return refuse(
            ErrorCode::Internal,
            "nothing is scheduled here; please report this",
        );
    };
    let workers = driver.workers().await.unwrap_or_default();
    let healthy = workers.iter().filter(|w| w.is_healthy());
    // One that is out of service is asked only where there is no other.
    let idlest = healthy.min_by_key(|w| (!w.takes_programs(), w.running_steps, w.id));
    let Some(url) = idlest.map(|w| &*w.url) else {
        let message =
            "no registered engine answers; start one or register another with POST /workers";
        return refuse(ErrorCode::NoHealthyWorker, message);
    };
    let base = url.trim_end_matches('/');
    let sending = app
        .upstream
        .send(parts.method, base, &target, &parts.headers, body);
    match tokio::time::timeout(app.forward_timeout, sending).await {
        Ok(Ok(response)) => {
            let (parts, body) = response.into_parts();
            let mut answer = Response::new(Body::new(body));
            *answer.status_mut() = parts.status;
            *answer.headers_mut() = end_to_end(&parts.headers);
            answer
        }
        Ok(Err(error)) => refuse(ErrorCode::EngineUnreachable, error.to_string()),
        Err(_) => {
            let timeout_s = app.forward_timeout.as_secs();
            let message = format!("the engine did not begin to answer within {timeout_s} s");
            refuse(ErrorCode::EngineTimeout, message)
        }
    }
}
