//! Accepting connections: no delay, limits on their number in total and per peer, timeouts for
//! heads and for clients that don't read, and graceful shutdown.

use crate::address::{ClientAddress, Encrypted, ServedAddress};
use crate::guarded::guard;
use crate::peers::Peers;
use crate::reached_limits::ReachedLimits;
use crate::steady::Steady;
use crate::unread::ReadOut;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use treadle_trust::{Acceptor, Stream};

/// Pause after a failed accept, to wait out a shortage of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Most concurrent connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Most concurrent connections from one address; further ones are closed.
    pub address_connections_max: usize,
    /// Time that a client has for the whole head of its first request.
    pub first_head_timeout: Duration,
    /// Time that a client has for its request's headers.
    pub header_read_timeout: Duration,
    /// How long a client may read nothing while data is being written to it.
    pub write_pause_max: Duration,
    /// Time that requests in flight have to end at shutdown.
    pub shutdown_grace: Duration,
}

/// A port, with a certificate if it uses TLS.
pub struct Listener {
    /// The port.
    pub tcp: TcpListener,
    /// The TLS acceptor, if the port uses TLS.
    pub tls: Option<Acceptor>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

/// Serves until `stop` completes.
pub async fn serve(
    listener: impl Into<Listener>,
    router: Router,
    limits: ServeLimits,
    stop: impl Future<Output = ()>,
) {
    let Listener { tcp, tls } = listener.into();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout);
    let reached = ReachedLimits::default();
    let peers = Arc::new(Peers::default());
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let (closing, _) = watch::channel(false);
    // Held by every connection, so that its end is the end of all of them.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    tokio::pin!(stop);
    loop {
        if permits.available_permits() == 0 {
            reached.connections_max(limits.connections_max);
        }
        let accepted = async {
            // The semaphore is never closed.
            let permit = permits.clone().acquire_owned().await.ok();
            (tcp.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                reached.no_connection(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(counted) = peers.count(peer.ip(), limits.address_connections_max) else {
            reached.address_max(peer, limits.address_connections_max);
            continue;
        };
        let attended = attend(
            http.clone(),
            router.clone(),
            stream,
            peer,
            tls.clone(),
            limits,
            closing.subscribe(),
        );
        let open = open.clone();
        tokio::spawn(async move {
            attended.await;
            drop((permit, counted, open));
        });
    }
    drop(tcp);
    drop(open);
    closing.send_replace(true);
    let _ = tokio::time::timeout(limits.shutdown_grace, all_closed.recv()).await;
}

/// The connection, with TLS if configured; `None` if the handshake fails or takes too long.
async fn secured(stream: TcpStream, tls: Option<Acceptor>, timeout: Duration) -> Option<Stream> {
    let Some(tls) = tls else {
        return Some(stream.into());
    };
    let accepted = tokio::time::timeout(timeout, tls.accept(stream)).await;
    let accepted = accepted.ok()?;
    let accepted = accepted
        .inspect_err(|error| tracing::debug!(%error, "the TLS handshake with a client failed"));
    accepted.ok()
}

/// Serves one connection to its end.
async fn attend(
    http: http1::Builder,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Acceptor>,
    limits: ServeLimits,
    closed: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let served = stream.local_addr().ok();
    let inner = TowerToHyperService::new(router);
    let asked = Arc::new(AtomicBool::new(false));
    let is_asked = asked.clone();
    let is_encrypted = tls.is_some();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        is_asked.store(true, Ordering::Relaxed);
        let extensions = request.extensions_mut();
        extensions.insert(ClientAddress(peer));
        if is_encrypted {
            extensions.insert(Encrypted);
        }
        if let Some(address) = served {
            extensions.insert(ServedAddress(address));
        }
        let answering = inner.call(ReadOut::within(request));
        async move {
            let mut answer = answering.await?;
            guard(answer.headers_mut());
            Ok::<_, Infallible>(answer)
        }
    });
    let Some(stream) = secured(stream, tls, limits.first_head_timeout).await else {
        return;
    };
    let stream = TokioIo::new(Steady::new(stream, limits.write_pause_max));
    let connection = http.serve_connection(stream, service);
    let silent = until_silent(asked, limits.first_head_timeout);
    tokio::select! {
        // Disconnected clients are normal; their steps report it.
        _ = until_closed(connection.with_upgrades(), closed) => {}
        () = silent => {}
    }
}

/// Completes if no request has arrived in this time.
async fn until_silent(asked: Arc<AtomicBool>, timeout: Duration) {
    tokio::time::sleep(timeout).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Serves a connection; at shutdown, to the end of its current request.
async fn until_closed<S>(
    connection: UpgradeableConnection<TokioIo<Steady>, S>,
    mut closed: watch::Receiver<bool>,
) -> Result<(), hyper::Error>
where
    S: HttpService<Incoming, ResBody = Body> + Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let is_closed = async move { closed.wait_for(|closed| *closed).await.is_ok() };
    tokio::select! {
        ended = connection.as_mut() => return ended,
        _ = is_closed => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// What the server answers on a new connection, and the connection.
    async fn ask(address: SocketAddr) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        // It may be closed already.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = vec![0; 1_024];
        let read = stream.read(&mut answer).await.unwrap_or(0);
        (
            String::from_utf8_lossy(&answer[..read]).into_owned(),
            stream,
        )
    }

    #[tokio::test]
    async fn one_address_takes_only_its_share_of_the_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let long = Duration::from_mins(10);
        let limits = ServeLimits {
            connections_max: 10,
            address_connections_max: 2,
            first_head_timeout: long,
            header_read_timeout: long,
            write_pause_max: long,
            shutdown_grace: Duration::ZERO,
        };
        let router = Router::new().route("/", get(|| async { "here" }));
        let served = tokio::spawn(serve(listener, router, limits, std::future::pending()));
        let (one, other) = (ask(address).await, ask(address).await);
        assert!(one.0.ends_with("here") && other.0.ends_with("here"));
        assert!(one.0.contains("x-content-type-options: nosniff"));
        assert!(
            one.0
                .contains("content-security-policy: default-src 'none'")
        );
        assert_eq!(ask(address).await.0, "", "its address has two already");
        drop(one);
        // The server learns of it soon.
        while ask(address).await.0.is_empty() {
            tokio::task::yield_now().await;
        }
        served.abort();
    }
}
