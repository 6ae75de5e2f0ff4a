//! An HTTP client for engines: JSON in, JSON out, with limits.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use std::time::Duration;
use treadle_model::endpoint_of;
use treadle_trust::Connector;

use crate::{Limits, TransferError};

/// Names a rank of data parallelism, whose cache is meant.
const RANK_HEADER: &str = "x-data-parallel-rank";
/// Largest accepted response.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest part of an engine's message in an error.
const MESSAGE_CHARS_MAX: usize = 300;
/// Well below the 5 s after which engines close idle connections.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// An HTTP client for engines. Callers set the timeouts.
#[derive(Clone)]
pub(crate) struct EngineClient {
    client: Client<Connector, Full<Bytes>>,
}

impl EngineClient {
    pub(crate) fn new(limits: &Limits) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .build(limits.engines.clone());
        Self { client }
    }

    /// The status and body of a response, whatever they are.
    pub(crate) async fn ask(
        &self,
        method: Method,
        base: &str,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), TransferError> {
        let (endpoint, rank) = endpoint_of(base);
        let address = format!("{endpoint}{path}");
        let mut request = Request::builder()
            .method(method)
            .uri(&address)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(rank) = rank {
            request = request.header(RANK_HEADER, rank);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| TransferError::unreachable(&address, error))?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| TransferError::unreachable(base, causes(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| TransferError::unreachable(base, error))?;
        Ok((status, body.to_bytes()))
    }

    /// The text of a page; an error unless the request succeeds.
    pub(crate) async fn text(&self, base: &str, path: &str) -> Result<String, TransferError> {
        let (status, body) = self.ask(Method::GET, base, path, Bytes::new()).await?;
        if !status.is_success() {
            return Err(refused(base, status, &body));
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Posts JSON and returns the JSON response; an error unless the engine reports success.
    pub(crate) async fn post(
        &self,
        base: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, TransferError> {
        let body = Bytes::from(body.to_string());
        let (status, body) = self.ask(Method::POST, base, path, body).await?;
        if !status.is_success() {
            return Err(refused(base, status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| {
            TransferError::not_taken(base, format!("its response to {path}: {error}"))
        })
    }
}

/// An engine's error response, with its message truncated.
fn refused(url: &str, status: StatusCode, body: &[u8]) -> TransferError {
    let said = serde_json::from_slice::<Value>(body).ok().and_then(|body| {
        [&body["error"]["message"], &body["message"], &body["error"]]
            .into_iter()
            .find_map(|text| text.as_str().map(str::to_owned))
    });
    let message = said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    TransferError::Refused {
        url: url.into(),
        status: status.as_u16(),
        message: message
            .chars()
            .take(MESSAGE_CHARS_MAX)
            .collect::<String>()
            .into(),
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Runs an operation with a timeout.
pub(crate) async fn within<T>(
    what: &'static str,
    after: Duration,
    work: impl Future<Output = Result<T, TransferError>>,
) -> Result<T, TransferError> {
    tokio::time::timeout(after, work)
        .await
        .unwrap_or(Err(TransferError::Timeout { what, after }))
}
