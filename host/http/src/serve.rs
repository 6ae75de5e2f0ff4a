//! Accepting connections: no delay, a bound on their number, a timeout for headers, and a graceful
//! end for requests in flight.

use crate::address::{ClientAddress, ServedAddress};
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use treadle_trust::{Acceptor, Stream};

/// Pause after an accept that failed, so that a shortage of files passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// Time that a client has for its request's headers.
    pub header_read_timeout: Duration,
    /// Time that requests in flight have to end at shutdown.
    pub shutdown_grace: Duration,
}

/// A port, and what it proves itself with if it speaks TLS.
pub struct Listener {
    /// The port.
    pub tcp: TcpListener,
    /// What makes its connections encrypted ones.
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
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let (closing, _) = watch::channel(false);
    // Held by every connection, so that its end is the end of all of them.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    tokio::pin!(stop);
    loop {
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
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let served = stream.local_addr().ok();
        let inner = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let extensions = request.extensions_mut();
            extensions.insert(ClientAddress(peer));
            if let Some(address) = served {
                extensions.insert(ServedAddress(address));
            }
            inner.call(request)
        });
        let (http, tls) = (http.clone(), tls.clone());
        let (closed, open) = (closing.subscribe(), open.clone());
        tokio::spawn(async move {
            let secured = secured(stream, tls, limits.header_read_timeout).await;
            if let Some(stream) = secured {
                let connection = http.serve_connection(TokioIo::new(stream), service);
                // Clients that vanish are an everyday matter; their steps report it.
                let _ = until_closed(connection.with_upgrades(), closed).await;
            }
            drop((permit, open));
        });
    }
    drop(tcp);
    drop(open);
    closing.send_replace(true);
    let _ = tokio::time::timeout(limits.shutdown_grace, all_closed.recv()).await;
}

/// The connection as the port speaks; nothing if the client does not speak TLS in time.
async fn secured(stream: TcpStream, tls: Option<Acceptor>, timeout: Duration) -> Option<Stream> {
    let Some(tls) = tls else {
        return Some(stream.into());
    };
    let accepted = tokio::time::timeout(timeout, tls.accept(stream)).await;
    let accepted = accepted.ok()?;
    let accepted = accepted.inspect_err(|error| tracing::debug!(%error, "no TLS with a client"));
    accepted.ok()
}

/// Serves a connection; once all are to be closed, to the end of its present request.
async fn until_closed<S>(
    connection: UpgradeableConnection<TokioIo<Stream>, S>,
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
