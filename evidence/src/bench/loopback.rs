//! Bytes from memory over HTTP, with what the daemon serves with (hyper): what a connection on this
//! machine and its client take, whoever makes the bytes.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves the same bytes at every path, on one connection; it ends when this is dropped.
pub(super) struct Loopback {
    /// Its base URL.
    pub(super) url: String,
    serving: JoinHandle<()>,
}

impl Loopback {
    /// Serves these bytes.
    pub(super) async fn of(bytes: Bytes) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let _ = stream.set_nodelay(true);
            let service = service_fn(move |_: Request<Incoming>| {
                let answer = Response::new(Full::new(bytes.clone()));
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The client closes it.
            let _ = connection.await;
        });
        Ok(Self { url, serving })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
