//! How long it takes from an upload to the moment from which it decides, against a
//! daemon over HTTP.

use super::super::program::daemon_program;
use super::guests::GuestFolder;
use crate::bench::BenchError;
use crate::bench::folder::TemporaryFolder;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use treadle_config::Config;
use treadle_http::Upstream;
use treadle_model::World;
use treadle_server::start::Daemon;

/// For a connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a daemon whose store, and so its compiled policies, are new, uploads a
/// policy there and binds it. The time in seconds.
pub(super) async fn upload_to_active_s(
    guests: &GuestFolder,
    policy: &str,
) -> Result<f64, BenchError> {
    let bytes = guests.read(policy)?;
    let folder = TemporaryFolder::new().map_err(BenchError::Output)?;
    let mut config = Config::default();
    config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.server.shutdown_grace_s = 0;
    let program = daemon_program().map_err(BenchError::Output)?;
    config.plugins.compiler = program.display().to_string();
    config.store.path = folder.path().join("journal.db").display().to_string();
    let ended = |error: &dyn std::fmt::Display| BenchError::Comparison {
        policy: policy.to_owned(),
        cause: error.to_string(),
    };
    let daemon = Daemon::start(&config).await;
    let daemon = daemon.map_err(|error| ended(&error))?;
    let took = activate(&daemon, bytes.into()).await;
    daemon.stop().await;
    Ok(took.map_err(|error| ended(&error))?.as_secs_f64())
}

async fn activate(daemon: &Daemon, bytes: Bytes) -> Result<Duration, String> {
    let upstream = Upstream::new(CONNECT_TIMEOUT);
    let mut headers = HeaderMap::new();
    if let Some(token) = &daemon.first_token {
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.secret));
        headers.insert(header::AUTHORIZATION, bearer.map_err(|e| e.to_string())?);
    }
    let started = Instant::now();
    let (url, mut headers_of_bytes) = (daemon.url(), headers.clone());
    let binary = HeaderValue::from_static("application/octet-stream");
    headers_of_bytes.insert(header::CONTENT_TYPE, binary);
    let uploaded = send(
        &upstream,
        Method::POST,
        &url,
        "/api/v1/plugins",
        &headers_of_bytes,
        bytes,
    );
    let uploaded = uploaded.await?;
    let binding = json!({
        "world": World::Priority.as_str(),
        "policy": uploaded["digest"],
    });
    let binding = binding.to_string().into();
    send(
        &upstream,
        Method::PUT,
        &url,
        "/api/v1/bindings",
        &headers,
        binding,
    )
    .await?;
    Ok(started.elapsed())
}

async fn send(
    upstream: &Upstream,
    method: Method,
    url: &str,
    path: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Value, String> {
    let answer = upstream.send(method, url, path, headers, body).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if !status.is_success() {
        let said = String::from_utf8_lossy(&body);
        return Err(format!("{path} answers {status}: {said}"));
    }
    serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upload_becomes_active_and_a_missing_one_is_reported() {
        let guests = GuestFolder::of_checkout();
        let took_s = upload_to_active_s(&guests, "default-priority")
            .await
            .unwrap();
        assert!(took_s > 0.0);
        assert!(upload_to_active_s(&guests, "no-such-policy").await.is_err());
    }
}
