//! Requests that another daemon has to answer.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use treadle_auth::relay;
use treadle_config::Secret;
use treadle_http::{ClientAddress, refuse};
use treadle_trust::Connector;
use treadle_wire::ErrorCode;

/// The way to other daemons.
pub(super) struct Proxy {
    client: Client<Connector, Body>,
    /// What daemons share.
    secret: Secret,
}

impl Proxy {
    pub(super) fn new(connector: Connector, secret: Secret) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self { client, secret }
    }

    /// Passes a request on as it is, bodies as they come.
    pub(super) async fn pass_on(&self, url: &str, mut request: Request) -> Response<Body> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let Ok(uri) = format!("{}{path}", url.trim_end_matches('/')).parse::<Uri>() else {
            let message =
                format!("`{url}` is not a URL; correct `cluster.advertise` of that daemon");
            return refuse(ErrorCode::Internal, message);
        };
        let client = request.extensions().get::<ClientAddress>();
        let client = client.map(|address| address.0);
        let asked = (&request.method().clone(), &uri);
        relay::mark(self.secret.reveal(), client, asked, request.headers_mut());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        for hop in [header::HOST, header::CONNECTION, header::UPGRADE] {
            headers.remove(hop);
        }
        match self.client.request(request).await {
            Ok(response) => response.map(Body::new),
            Err(error) => {
                tracing::debug!(url, %error, "a request could not be passed on");
                no_scheduler()
            }
        }
    }
}

/// No daemon answers for the shard at present.
pub(super) fn no_scheduler() -> Response<Body> {
    let message = "no daemon schedules at present; another takes over within seconds: try again";
    let mut response = refuse(ErrorCode::Overloaded, message);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
