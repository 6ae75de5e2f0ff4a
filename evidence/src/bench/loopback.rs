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
use tokio::task::{JoinHandle, JoinSet};

/// Serves the same bytes at every path; it ends when this is dropped.
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
            // They end with this task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let bytes = bytes.clone();
                let service = service_fn(move |_: Request<Incoming>| {
                    let answer = Response::new(Full::new(bytes.clone()));
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(connection);
            }
        });
        Ok(Self { url, serving })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
