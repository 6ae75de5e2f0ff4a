//! Accepting connections: no delay, a bound on how many, patience with
//! headers, and an end that lets requests in flight finish.

use crate::auth::ClientAddress;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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

/// Serves until `stop` completes.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    stop: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout);
    let seats = Arc::new(Semaphore::new(limits.connections_max));
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let seat = seats.clone().acquire_owned().await.ok();
            (listener.accept().await, seat)
        };
        let (accepted, seat) = tokio::select! {
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
        let inner = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ClientAddress(peer));
            inner.call(request)
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // Clients that vanish are an everyday matter; their steps report it.
            let _ = connection.await;
            drop(seat);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(limits.shutdown_grace, graceful.shutdown()).await;
}
