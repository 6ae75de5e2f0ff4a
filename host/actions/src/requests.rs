//! Requests on behalf of actions: only to where the tenant may go, answers within a bound, refusals
//! for a time told apart from ends.

mod retry_after;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use treadle_http::{Upstream, UpstreamError};
use treadle_model::Span;
use treadle_trust::{ConnectError, Connector, Targets, Trust};

use crate::body::HttpBody;
use crate::capture::Capture;
use retry_after::retry_after;

/// Where an operator lets tenants' requests go.
const EGRESS: &str = "actions.egress";

/// Clients, one for each tenant that may reach anything.
pub(crate) struct HttpExecutor {
    tenants: BTreeMap<String, Client>,
    output_bytes_max: usize,
}

struct Client {
    connector: Connector,
    upstream: Upstream,
}

/// How a request ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// With an answer, whatever its status.
    Answered { status: u16, output: Vec<u8> },
    /// Not now: nothing came of it.
    QuotaRefused(Span),
    /// There was no answer in time.
    TimedOut,
    /// The tenant may not go there.
    Refused(String),
    /// Nobody answered.
    Failed(String),
}

impl HttpExecutor {
    /// Clients of a daemon that listens at `own`, for tenants with their lists of hosts, ports and
    /// networks.
    ///
    /// # Errors
    /// An entry of a list that can't be read.
    pub(crate) fn new(
        own: SocketAddr,
        egress: &BTreeMap<String, Vec<String>>,
        trust: &Trust,
        connect_timeout: Duration,
        output_bytes_max: usize,
    ) -> Result<Self, io::Error> {
        let client = |(tenant, list): (&String, &Vec<String>)| {
            let list = list.iter().map(String::as_str);
            let targets = Targets::egress(own, list).map_err(io::Error::other)?;
            let connector = Connector::new(targets, trust.clone(), connect_timeout);
            let upstream = Upstream::over(connector.clone());
            let client = Client {
                connector,
                upstream,
            };
            Ok((tenant.clone(), client))
        };
        let tenants = egress.iter().filter(|(_, list)| !list.is_empty());
        Ok(Self {
            tenants: tenants.map(client).collect::<Result<_, io::Error>>()?,
            output_bytes_max,
        })
    }

    /// Sends a tenant's request and takes the answer in.
    pub(crate) async fn send(&self, tenant: &str, request: &HttpBody, limit: Duration) -> Answer {
        let Some(client) = self.tenants.get(tenant) else {
            let told =
                format!("tenant {tenant} may reach nothing; have {EGRESS} list where it may");
            return Answer::Refused(told);
        };
        // Each connection is checked again: the name may have another address by then.
        match client.connector.admit(&request.base).await {
            Err(ConnectError::Refused(refused)) => return Answer::Refused(refused.to_string()),
            Err(error) => return Answer::Failed(error.to_string()),
            Ok(()) => {}
        }
        self.send_to(&client.upstream, &request.base, request, limit)
            .await
    }

    /// Sends a request to a server that is known.
    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        base: &str,
        request: &HttpBody,
        limit: Duration,
    ) -> Answer {
        let limit = request.timeout().map_or(limit, |own| own.min(limit));
        let exchange = self.exchange(upstream, base, request);
        let answered = tokio::time::timeout(limit, exchange).await;
        answered.unwrap_or(Answer::TimedOut)
    }

    async fn exchange(&self, upstream: &Upstream, base: &str, request: &HttpBody) -> Answer {
        let (method, headers) = (method(&request.method), headers(&request.headers));
        let body = Bytes::from(request.body.clone());
        let sent = upstream.send(method, base, &request.path_and_query, &headers, body);
        let answer = match sent.await {
            Ok(answer) => answer,
            Err(
                UpstreamError::Address(cause)
                | UpstreamError::Connect(cause)
                | UpstreamError::Broken(cause),
            ) => return Answer::Failed(cause),
        };
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            return Answer::QuotaRefused(retry_after(answer.headers()));
        }
        let status = answer.status().as_u16();
        match take(answer.into_body(), self.output_bytes_max).await {
            Ok(output) => Answer::Answered { status, output },
            Err(error) => Answer::Failed(format!("the answer broke off: {error}")),
        }
    }
}

async fn take(mut body: Incoming, bytes_max: usize) -> Result<Vec<u8>, hyper::Error> {
    let mut captured = Capture::new(bytes_max);
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            captured.take(data);
        }
    }
    Ok(captured.finish())
}

fn method(name: &str) -> Method {
    // It was checked when the description was read.
    Method::from_bytes(name.as_bytes()).unwrap_or_default()
}

fn headers(written: &BTreeMap<String, String>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(written.len() + 1);
    let agent = HeaderValue::from_static(concat!("treadle/", env!("CARGO_PKG_VERSION")));
    headers.insert(header::USER_AGENT, agent);
    for (name, value) in written {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    headers
}
