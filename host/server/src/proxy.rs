//! Requests that another process has to answer: a daemon, or the agent of a node.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Response, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use treadle_config::Config;
use treadle_trust::{Connector, Targets};

/// Time for a connection to another process to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What opens connections to daemons and nodes.
pub(crate) fn connector(config: &Config) -> Connector {
    Connector::new(Targets::all(), config.tls.trust(), CONNECT_TIMEOUT)
}

/// The way to other processes.
pub(crate) struct Proxy(Client<Connector, Body>);

/// Why a request was not passed on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// It has no such address.
    #[error("`{0}` is not a URL; correct the advertised URL")]
    Address(String),
    /// It does not answer.
    #[error("{0}")]
    Silent(#[from] hyper_util::client::legacy::Error),
}

impl Unreachable {
    /// Whether it was certainly not asked.
    pub(crate) fn was_never_asked(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Silent(error) => error.is_connect(),
        }
    }
}

impl Proxy {
    pub(crate) fn new(connector: Connector) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self(client)
    }

    /// Passes a request on as it is, bodies as they come. `mark` proves in its head where it comes
    /// from.
    pub(crate) async fn pass_on(
        &self,
        url: &str,
        mut request: Request,
        mark: impl FnOnce(&Method, &Uri, &mut HeaderMap),
    ) -> Result<Response<Body>, Unreachable> {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        let uri = format!("{}{path}", url.trim_end_matches('/')).parse::<Uri>();
        let uri = uri.map_err(|_| Unreachable::Address(url.to_owned()))?;
        let method = request.method().clone();
        mark(&method, &uri, request.headers_mut());
        *request.uri_mut() = uri;
        for hop in [header::HOST, header::CONNECTION, header::UPGRADE] {
            request.headers_mut().remove(hop);
        }
        Ok(self.0.request(request).await?.map(Body::new))
    }
}
