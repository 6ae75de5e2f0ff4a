//! Calls about the job, repeated until the daemon answers: it dies meanwhile.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use super::JOB;
use crate::exchange::{Client, Reply};

/// Pause before a request is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// The way to the daemon.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    base: String,
}

impl Api {
    pub(super) fn new(base: String) -> Self {
        let client = Client::new();
        Self { client, base }
    }

    /// Sends a request; `None` if it is to be repeated. A path without a slash at its start is
    /// below the job.
    pub(super) async fn once(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Option<Reply> {
        let path = match path {
            "" => format!("/api/v1/jobs/{JOB}"),
            _ if path.starts_with('/') => path.to_owned(),
            _ => format!("/api/v1/jobs/{JOB}/{path}"),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = request.body(Full::new(Bytes::from(body))).ok()?;
        let reply = self.client.send(request).await.ok()?;
        let is_busy = matches!(
            reply.status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        );
        (!is_busy && !reply.status.is_server_error()).then_some(reply)
    }

    /// Repeats a request until it is answered.
    pub(super) async fn insist(&self, method: Method, path: &str, body: &Value) -> Reply {
        loop {
            if let Some(reply) = self.once(method.clone(), path, &[], body).await {
                return reply;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
