//! A connection to a daemon. All requests on it reach the same process.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use treadle_trust::{Connector, Stream, Targets, Trust};

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection for consecutive requests.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The server's address.
    pub(super) peer: SocketAddr,
    host: HeaderValue,
    /// Prefix of every path, from the base URL.
    start: String,
}

impl Connection {
    /// Connects to a base URL; with `https://` the server's certificate must be trusted.
    ///
    /// # Errors
    /// The system's error, as text.
    pub(super) async fn open(url: &str, trust: &Trust) -> Result<Self, String> {
        let uri = url.parse::<Uri>().map_err(|error| error.to_string())?;
        let authority = uri.authority().ok_or("the URL names no host")?;
        let connector = Connector::new(Targets::all(), trust.clone(), CONNECT_TIMEOUT);
        let stream = connector.connect(&uri).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let peer = stream
            .tcp()
            .peer_addr()
            .map_err(|error| error.to_string())?;
        let stream = ReadsOn {
            stream,
            is_deaf: false,
        };
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| words(&error))?;
        // Its errors come out of the requests.
        tokio::spawn(connection);
        // A user and a password before the host are no part of it.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::from_str(host);
        Ok(Self {
            sender,
            peer,
            host: host.map_err(|error| error.to_string())?,
            start: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let uri = format!("{}{path}", self.start).parse::<Uri>();
        *request.uri_mut() = uri.map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        request
            .headers_mut()
            .insert(header::HOST, self.host.clone());
        let ready = self.sender.ready().await;
        ready.map_err(|error| words(&error))?;
        let sent = self.sender.send_request(request).await;
        sent.map_err(|error| words(&error))
    }
}

/// A connection whose response is read even if the server stops reading: one that refuses a large
/// body may respond and close before it has received all of it.
struct ReadsOn {
    stream: Stream,
    /// Whether the server has stopped reading; further writes are discarded.
    is_deaf: bool,
}

impl AsyncRead for ReadsOn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ReadsOn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_deaf {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, bytes)) {
                Err(error) if is_refusal(&error) => self.is_deaf = true,
                written => return Poll::Ready(written),
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        match ready!(Pin::new(&mut self.stream).poll_flush(cx)) {
            Err(error) if is_refusal(&error) => self.is_deaf = true,
            flushed => return Poll::Ready(flushed),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Whether the error means that the server has stopped reading.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// The innermost cause, which is the most specific.
fn words(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
