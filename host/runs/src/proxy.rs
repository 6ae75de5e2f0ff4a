//! Forwarding requests to other processes: daemons and nodes' agents.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Response, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use treadle_config::Config;
use treadle_trust::{Connector, Targets};

/// Timeout for connecting to another process.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The connector for daemons and nodes.
pub fn connector(config: &Config) -> Connector {
    Connector::new(Targets::all(), config.tls.trust(), CONNECT_TIMEOUT)
}

/// The client for other processes.
pub struct Proxy(Client<Connector, Body>);

/// Why a request was not forwarded.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The address is invalid.
    #[error("`{0}` is not a URL; correct the advertised URL")]
    Address(String),
    /// The process does not respond.
    #[error("{0}")]
    Silent(#[from] hyper_util::client::legacy::Error),
}

impl Unreachable {
    /// Whether the request was certainly not sent.
    pub fn was_never_asked(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Silent(error) => error.is_connect(),
        }
    }
}

impl Proxy {
    /// A client that connects with this connector.
    pub fn new(connector: Connector) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self(client)
    }

    /// Forwards a request unchanged and streams its body. `mark` adds headers that prove its
    /// origin.
    pub async fn pass_on(
        &self,
        url: &str,
        mut request: Request,
        mark: impl FnOnce(&Method, &Uri, &mut HeaderMap),
    ) -> Result<Response<Body>, Unreachable> {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        let uri = format!("{}{path}", url.trim_end_matches('/'))
            .parse::<Uri>()
            .map_err(|_| Unreachable::Address(url.to_owned()))?;
        let method = request.method().clone();
        mark(&method, &uri, request.headers_mut());
        *request.uri_mut() = uri;
        for hop in [header::HOST, header::CONNECTION, header::UPGRADE] {
            request.headers_mut().remove(hop);
        }
        Ok(self.0.request(request).await?.map(Body::new))
    }
}
