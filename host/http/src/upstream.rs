//! The client for engines: pooled connections, no delay, without hop-by-hop headers.

use axum::http::{HeaderMap, HeaderName, Method, Request, Response, Uri, header};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use treadle_model::endpoint_of;
use treadle_trust::{ConnectError, Connector};

/// Headers that end at each hop (RFC 9110 §7.6.1), and those that are set again.
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

/// How long a connection may idle: much less than the 5 s after which vLLM, SGLang and llama.cpp
/// close it, so that no request uses a connection that is about to close, even if either side
/// stalls for seconds.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// How vLLM and SGLang are told which rank of data parallelism a request is for; the second is for
/// SGLang's own paths.
const RANK_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-data-parallel-rank"),
    HeaderName::from_static("x-override-routed-dp-rank"),
];

/// The name of a server that closes a connection after each event stream, without announcing it.
const CLOSES_AFTER_STREAMS: &str = "llama.cpp";

/// A client for engines.
#[derive(Clone)]
pub struct Upstream {
    client: Client<Connector, Full<Bytes>>,
}

/// Why a request to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The request could not be built.
    #[error("the engine's URL and path are not a valid address: {0}")]
    Address(String),
    /// The connection could not be established.
    #[error("no connection to the engine: {0}")]
    Connect(String),
    /// This process or machine has no free file for a connection.
    #[error("no connection to the engine: {0}")]
    NoFile(String),
    /// The connection broke before an answer.
    #[error("the engine closed the connection: {0}")]
    Broken(String),
}

impl Upstream {
    /// A client for any address, with a timeout for connecting.
    pub fn new(connect_timeout: Duration) -> Self {
        Self::over(Connector::to_all(connect_timeout))
    }

    /// A client that uses a connector. It follows no redirects.
    pub fn over(connector: Connector) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Self { client }
    }

    /// Sends one request, to the rank that the URL names, if it names one. Dropping the future, or the response, closes the connection, which is how
    /// engines learn that the client is gone.
    pub async fn send(
        &self,
        method: Method,
        base_url: &str,
        path_and_query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let (endpoint, rank) = endpoint_of(base_url);
        let address = format!("{endpoint}{path_and_query}");
        let uri: Uri = address
            .parse()
            .map_err(|e| UpstreamError::Address(format!("{address}: {e}")))?;
        let mut kept = end_to_end(headers);
        // Responses are parsed in passing, which needs them uncompressed.
        kept.remove(header::ACCEPT_ENCODING);
        if let Some(rank) = rank {
            for name in RANK_HEADERS {
                kept.insert(name, rank.into());
            }
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = kept;
        let connection = capture_connection(&mut request);
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| describe(&error))?;
        if closes_after(answer.headers())
            && let Some(connection) = connection.connection_metadata().as_ref()
        {
            connection.poison();
        }
        Ok(answer)
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

/// The end-to-end headers, for the next hop.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !HOP_HEADERS.contains(name) && name != "keep-alive" && name != "expect" {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Whether the server will close the connection after this response, so that a reused one would
/// lose a request.
fn closes_after(answer: &HeaderMap) -> bool {
    let begins = |name: HeaderName, with: &str| {
        let value = answer.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.starts_with(with))
    };
    begins(header::SERVER, CLOSES_AFTER_STREAMS)
        && begins(header::CONTENT_TYPE, "text/event-stream")
}

fn describe(error: &Error) -> UpstreamError {
    let mut cause = error.to_string();
    let mut source = std::error::Error::source(error);
    let mut is_short = false;
    while let Some(inner) = source {
        is_short |= matches!(inner.downcast_ref(), Some(ConnectError::NoFile(_)));
        cause = format!("{cause}: {inner}");
        source = inner.source();
    }
    if is_short {
        UpstreamError::NoFile(cause)
    } else if error.is_connect() {
        UpstreamError::Connect(cause)
    } else {
        UpstreamError::Broken(cause)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use std::task::Poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const STREAM: &str = "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n\
         Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n\
         6\r\ndata: \r\n0\r\n\r\n";

    /// As llama.cpp does: it announces that the connection stays, and reads nothing more from it.
    #[tokio::test]
    async fn no_request_goes_over_a_connection_that_is_closed_after_a_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut request = [0; 1_024];
                assert!(connection.read(&mut request).await.unwrap() > 0);
                connection.write_all(STREAM.as_bytes()).await.unwrap();
                // The client does not see yet that nothing will be read.
                open.push(connection);
            }
        });
        let upstream = Upstream::new(Duration::from_secs(30));
        for _ in 0..3 {
            let answer = tokio::time::timeout(Duration::from_secs(30), upstream.get(&url, "/"));
            let answer = answer.await.expect("a connection that is read").unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "data: ");
        }
        server.abort();
    }

    #[tokio::test]
    async fn no_redirect_is_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let elsewhere = other.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 1_024];
            assert!(connection.read(&mut request).await.unwrap() > 0);
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{elsewhere}/\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            connection.write_all(answer.as_bytes()).await.unwrap();
        });
        let upstream = Upstream::new(Duration::from_secs(30));
        // What is elsewhere would not answer.
        let answer = tokio::time::timeout(Duration::from_secs(30), upstream.get(&url, "/"));
        let answer = answer.await.expect("the redirect itself");
        assert_eq!(answer.unwrap().status(), 307);
        server.await.unwrap();
        let called = std::future::poll_fn(|cx| Poll::Ready(other.poll_accept(cx))).await;
        assert!(called.is_pending());
    }
}
