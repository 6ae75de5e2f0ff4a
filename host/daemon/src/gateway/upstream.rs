//! The way to engines: pooled connections, no delay, headers without those
//! that concern one hop only.

use axum::http::{HeaderMap, HeaderName, Method, Request, Response, Uri, header};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// Headers that end at each hop (RFC 9110 §7.6.1), and those that are set anew.
const HOP_HEADERS: [HeaderName; 9] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::HOST,
    header::CONTENT_LENGTH,
];
/// Idle connections kept per engine.
const IDLE_CONNECTIONS_MAX: usize = 1_024;

/// How long a connection may idle: less than the 5 s after which vLLM's and llama.cpp's servers close
/// it, so that a request seldom meets a connection that is about to close.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// A client for engines.
#[derive(Clone)]
pub struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Why an engine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The request could not be built.
    #[error("the engine's URL and path make no address: {0}")]
    Address(String),
    /// No connection came about.
    #[error("no connection to the engine: {0}")]
    Connect(String),
    /// The connection broke before an answer.
    #[error("the engine broke the connection off: {0}")]
    Broken(String),
}

impl Upstream {
    /// A client that gives a connection `connect_timeout` to come about.
    pub fn new(connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_keepalive(Some(Duration::from_secs(30)));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Self { client }
    }

    /// Sends one request. Dropping the future, or the response, closes the
    /// connection, which is how engines learn that nobody listens any more.
    pub async fn send(
        &self,
        method: Method,
        base_url: &str,
        path_and_query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let address = format!("{base_url}{path_and_query}");
        let uri: Uri = address
            .parse()
            .map_err(|e| UpstreamError::Address(format!("{address}: {e}")))?;
        let mut kept = end_to_end(headers);
        // Answers are read as they pass, which compressed ones could not be.
        kept.remove(header::ACCEPT_ENCODING);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = kept;
        self.client
            .request(request)
            .await
            .map_err(|error| describe(&error))
    }

    /// A GET without headers, for probes.
    pub async fn get(
        &self,
        base_url: &str,
        path: &str,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.send(Method::GET, base_url, path, &HeaderMap::new(), Bytes::new())
            .await
    }
}

/// The headers that go on to the next hop.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !HOP_HEADERS.contains(name) && name != "keep-alive" && name != "expect" {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

fn describe(error: &Error) -> UpstreamError {
    let mut cause = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        cause = format!("{cause}: {inner}");
        source = inner.source();
    }
    if error.is_connect() {
        UpstreamError::Connect(cause)
    } else {
        UpstreamError::Broken(cause)
    }
}
