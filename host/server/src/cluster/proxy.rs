//! Forwarding requests to other daemons.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, header};
use treadle_auth::relay;
use treadle_http::{ClientAddress, refuse};
use treadle_runs::proxy::{Proxy, Unreachable};
use treadle_wire::ErrorCode;

/// Forwards a request to another daemon, authenticated by the daemons' shared secret.
pub(super) async fn pass_on(
    proxy: &Proxy,
    secret: &str,
    url: &str,
    request: Request,
) -> Response<Body> {
    let client = request.extensions().get::<ClientAddress>();
    let client = client.map(|address| address.0);
    let passed = proxy.pass_on(url, request, |method, uri, headers| {
        relay::mark(secret, client, method, uri, headers);
    });
    match passed.await {
        Ok(response) => response,
        Err(error @ Unreachable::Address(_)) => refuse(ErrorCode::Internal, error.to_string()),
        Err(error) => {
            tracing::debug!(url, %error, "a request could not be forwarded");
            no_scheduler()
        }
    }
}

/// The refusal if no daemon schedules the shard at present.
pub(super) fn no_scheduler() -> Response<Body> {
    let message =
        "no daemon is scheduling at present; another takes over within seconds: try again";
    let mut response = refuse(ErrorCode::Overloaded, message);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
