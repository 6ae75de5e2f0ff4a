//! Bodies of requests that are answered before they have fully arrived: the rest is read and
//! dropped.
//!
//! Closing a connection while its client still sends resets it, and the reset overtakes the
//! response: a client whose large body is refused would only see a broken connection.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How much of a body is read and dropped before its connection is closed: more than a client sends
/// by mistake.
const REST_BYTES_MAX: usize = 256 << 20;
/// For how long it is read.
const REST_MAX: Duration = Duration::from_secs(10);

/// The body of a request. When this is dropped, the unread rest is read and discarded.
pub(crate) struct ReadOut {
    /// Absent once it has ended.
    body: Option<Incoming>,
    /// Whether the client waits for `100 Continue`.
    waits: bool,
}

impl ReadOut {
    /// A request with such a body.
    pub(crate) fn within(request: Request<Incoming>) -> Request<Self> {
        // `100-continue` is the only defined expectation.
        let waits = request.headers().contains_key(EXPECT);
        request.map(|body| Self {
            body: Some(body),
            waits,
        })
    }
}

impl Body for ReadOut {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Reading sends `100 Continue`.
        self.waits = false;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = SizeHint::with_exact(0);
        self.body.as_ref().map_or(none, Incoming::size_hint)
    }
}

impl Drop for ReadOut {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        let Some(rest) = rest.filter(|_| !self.waits) else {
            return;
        };
        // Without a runtime there are no connections left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(read_out(rest));
        }
    }
}

/// Reads a body to its end, within limits on size and time.
async fn read_out(mut body: Incoming) {
    let rest = async {
        let mut left = REST_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(less) = left.checked_sub(length) else {
                break;
            };
            left = less;
        }
    };
    // Slow or long: either way the connection closes.
    let _ = tokio::time::timeout(REST_MAX, rest).await;
}

#[cfg(test)]
mod tests {
    use crate::{ServeLimits, serve};
    use axum::Router;
    use axum::http::StatusCode;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    /// A server that refuses everything, whatever the body.
    async fn refusing() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let long = Duration::from_mins(10);
        let limits = ServeLimits {
            connections_max: 10,
            address_connections_max: 10,
            first_head_timeout: long,
            header_read_timeout: long,
            write_pause_max: long,
            shutdown_grace: Duration::ZERO,
        };
        let router = Router::new().fallback(|| async { StatusCode::UNAUTHORIZED });
        tokio::spawn(serve(listener, router, limits, std::future::pending()));
        address
    }

    /// The head of the next answer.
    async fn answer(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn a_body_that_is_refused_is_read_so_that_the_answer_comes_through() {
        let mut stream = TcpStream::connect(refusing().await).await.unwrap();
        let part = vec![b'x'; 1 << 20];
        // One with a content length, and one in chunks, over the same connection.
        for chunked in [false, true] {
            let framing = if chunked {
                "transfer-encoding: chunked"
            } else {
                "content-length: 25165824"
            };
            let head = format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..24 {
                if chunked {
                    stream.write_all(b"100000\r\n").await.unwrap();
                }
                stream.write_all(&part).await.unwrap();
                if chunked {
                    stream.write_all(b"\r\n").await.unwrap();
                }
            }
            if chunked {
                stream.write_all(b"0\r\n\r\n").await.unwrap();
            }
            let head = answer(&mut stream).await;
            assert!(head.starts_with("HTTP/1.1 401"), "{head}");
        }
    }

    #[tokio::test]
    async fn a_body_that_waits_to_be_asked_for_is_not_asked_for() {
        let mut stream = TcpStream::connect(refusing().await).await.unwrap();
        let head =
            "POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let head = answer(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    }
}
