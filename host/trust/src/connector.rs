//! Connections to other servers: whenever one is opened, the name is resolved, the address checked
//! and the certificate verified.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::{Refused, Stream, Targets, Trust, UrlError, base_url, note_shortage, port_of};

/// Pause after which a silent connection is tested.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is invalid.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// The address is refused.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The name can't be resolved.
    #[error("{host} can't be resolved: {error}")]
    Name {
        /// The name.
        host: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The connection failed.
    #[error("{0}")]
    Connect(String),
    /// There is no free file for the connection: the other end has no part in that.
    #[error("{0}")]
    NoFile(String),
    /// The TLS handshake failed.
    #[error(
        "the TLS handshake with {host} failed: {error}; its certificate must be from an authority \
         in `tls.ca` (`--ca` of the command line)"
    )]
    Tls {
        /// The server.
        host: String,
        /// What went wrong.
        error: std::io::Error,
    },
    /// It took too long.
    #[error("no connection within {} ms", .0.as_millis())]
    Timeout(Duration),
}

/// Opens connections.
#[derive(Clone, Debug)]
pub struct Connector(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    targets: Targets,
    trust: Trust,
    timeout: Duration,
}

impl Connector {
    /// A connector with a timeout for connecting.
    pub fn new(targets: Targets, trust: Trust, timeout: Duration) -> Self {
        Self(Arc::new(Parts {
            targets,
            trust,
            timeout,
        }))
    }

    /// A connector to all addresses that trusts the system's authorities.
    pub fn to_all(timeout: Duration) -> Self {
        Self::new(Targets::all(), Trust::default(), timeout)
    }

    /// Checks the URL of a server before it is connected to. A name that can't be resolved yet passes: each connection is checked again.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn admit(&self, url: &str) -> Result<(), ConnectError> {
        let uri: Uri = base_url(url)?.parse().map_err(|_| UrlError::Form)?;
        let (host, port) = place(&uri)?;
        let found = tokio::time::timeout(self.0.timeout, self.addresses(host, port)).await;
        match found {
            Ok(Err(ConnectError::Name { .. })) | Err(_) => Ok(()),
            Ok(found) => found.map(drop),
        }
    }

    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn connect(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        let timeout = self.0.timeout;
        let connected = tokio::time::timeout(timeout, self.open(uri)).await;
        connected.unwrap_or(Err(ConnectError::Timeout(timeout)))
    }

    async fn open(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        let (host, port) = place(uri)?;
        let mut last = ConnectError::Connect(format!("{host} has no address"));
        for address in self.addresses(host, port).await? {
            match tcp(address).await {
                Ok(stream) if uri.scheme_str() == Some("https") => {
                    let encrypted = self.0.trust.connect(host, stream).await;
                    let host = host.to_owned();
                    return encrypted.map_err(|error| ConnectError::Tls { host, error });
                }
                Ok(stream) => return Ok(stream.into()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The addresses of a host. One refused address also rules out the others, since the name is
    /// under another's control.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        self.0.targets.check_host(host)?;
        let found = tokio::net::lookup_host((host, port)).await;
        let found = found.map_err(|error| ConnectError::Name {
            host: host.to_owned(),
            error,
        })?;
        let addresses: Vec<_> = found.collect();
        for address in &addresses {
            self.0.targets.check(host, *address)?;
        }
        Ok(addresses)
    }
}

/// Host and port of a URL of HTTP.
fn place(uri: &Uri) -> Result<(&str, u16), UrlError> {
    let port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(UrlError::Form),
    };
    let authority = uri.authority().ok_or(UrlError::Form)?;
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok((bare, port_of(authority)?.unwrap_or(port)))
}

async fn tcp(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    let failed =
        |error: &dyn std::fmt::Display| ConnectError::Connect(format!("{address}: {error}"));
    let uri: Uri = format!("http://{address}/")
        .parse()
        .map_err(|e: http::uri::InvalidUri| failed(&e))?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    let connected = connector.call(uri).await;
    let connected = connected.map_err(|error| match std::error::Error::source(&error) {
        Some(cause) => {
            if cause.downcast_ref().is_some_and(note_shortage) {
                ConnectError::NoFile(format!("{address}: {cause}"))
            } else {
                failed(cause)
            }
        }
        None => failed(&error),
    })?;
    Ok(connected.into_inner())
}

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, ConnectError>> + Send>>;

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests;
