//! How requests reach engines, and answers come back.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use std::time::Duration;
use treadle_http::{Upstream, UpstreamError};

/// Largest answer that is read: checksums of all tensors of a large model on many ranks.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request to an engine.
#[derive(Clone, Debug)]
pub struct EngineRequest<'r> {
    /// Its method.
    pub method: Method,
    /// The engine's base URL.
    pub url: &'r str,
    /// Path and query.
    pub path: &'r str,
    /// The body, JSON or nothing.
    pub body: Bytes,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum NoAnswer {
    /// The request never reached the engine.
    NotSent(String),
    /// It may have.
    Lost(String),
}

impl NoAnswer {
    /// None came in time.
    pub fn late(timeout: Duration) -> Self {
        Self::Lost(format!("no answer within {} s", timeout.as_secs()))
    }
}

/// What carries requests to engines: HTTP, or a script in tests.
#[async_trait]
pub trait Exchange: Send + Sync {
    /// Sends a request, once, and reads the whole answer.
    ///
    /// # Errors
    /// There is no answer.
    async fn exchange(&self, request: EngineRequest<'_>) -> Result<(StatusCode, Bytes), NoAnswer>;
}

#[async_trait]
impl Exchange for Upstream {
    async fn exchange(&self, request: EngineRequest<'_>) -> Result<(StatusCode, Bytes), NoAnswer> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let exchange = async {
            let sent = self
                .send(
                    request.method,
                    request.url,
                    request.path,
                    &headers,
                    request.body,
                )
                .await;
            let answer = sent.map_err(|error| match error {
                UpstreamError::Connect(_)
                | UpstreamError::NoFile(_)
                | UpstreamError::Address(_) => NoAnswer::NotSent(error.to_string()),
                UpstreamError::Broken(_) => NoAnswer::Lost(error.to_string()),
            })?;
            let (head, body) = answer.into_parts();
            let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let read = read.map_err(|error| NoAnswer::Lost(error.to_string()))?;
            Ok((head.status, read.to_bytes()))
        };
        let timed = tokio::time::timeout(request.timeout, exchange).await;
        timed.unwrap_or_else(|_| Err(NoAnswer::late(request.timeout)))
    }
}
