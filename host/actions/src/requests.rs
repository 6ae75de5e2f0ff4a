//! HTTP requests of actions: only to permitted destinations, with limited responses. Temporary
//! refusals by a quota are distinguished from results.

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

use crate::body::{BodyError, HttpRequest, ServiceCall, split_url};
use crate::capture::Capture;

/// The key with the permitted destinations.
const EGRESS: &str = "actions.egress";

/// Clients, one for each tenant with permitted destinations.
pub(crate) struct Requests {
    tenants: BTreeMap<String, Client>,
    /// Client for services of this machine, on ports chosen by the daemon.
    local: Upstream,
    output_bytes_max: usize,
}

struct Client {
    connector: Connector,
    upstream: Upstream,
}

/// A server, and the tenant of the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Server {
    /// Scheme, host and port.
    pub(crate) base: String,
    /// `None` for a service of this machine.
    pub(crate) tenant: Option<String>,
}

/// A request without its server.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The result of a request.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// A response, whatever its status.
    Answered {
        status: StatusCode,
        output: Vec<u8>,
        /// For status 429, the time after which it may be sent again; 0 if not specified. For 503,
        /// that time if it is specified.
        retry_after: Option<Span>,
    },
    /// No response in time.
    TimedOut,
    /// No response, or a destination that is not permitted.
    Failed(String),
}

impl Requests {
    /// Clients for a daemon that listens at `own`, for tenants with their lists of hosts, ports and
    /// networks.
    ///
    /// # Errors
    /// An invalid entry of a list.
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
            local: Upstream::new(connect_timeout),
            output_bytes_max,
        })
    }

    /// Sends a request and reads the response.
    pub(crate) async fn send(&self, server: &Server, message: Message, limit: Duration) -> Answer {
        let answered = tokio::time::timeout(limit, self.exchange(server, message));
        answered.await.unwrap_or(Answer::TimedOut)
    }

    async fn exchange(&self, server: &Server, message: Message) -> Answer {
        let upstream = match self.upstream(server).await {
            Ok(upstream) => upstream,
            Err(cause) => return Answer::Failed(cause),
        };
        let Message {
            method,
            path_and_query,
            headers,
            body,
        } = message;
        let sent = upstream.send(method, &server.base, &path_and_query, &headers, body);
        let answer = match sent.await {
            Ok(answer) => answer,
            Err(
                UpstreamError::Address(cause)
                | UpstreamError::Connect(cause)
                | UpstreamError::NoFile(cause)
                | UpstreamError::Broken(cause),
            ) => return Answer::Failed(cause),
        };
        let status = answer.status();
        let wait = treadle_http::retry_after(answer.headers());
        let is_told = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && !wait.is_zero());
        let retry_after = is_told.then(|| Span::from_micros(wait.as_micros() as u64));
        match take(answer.into_body(), self.output_bytes_max).await {
            Ok(output) => Answer::Answered {
                status,
                output,
                retry_after,
            },
            Err(error) => Answer::Failed(format!("the response was interrupted: {error}")),
        }
    }

    /// The client for a server, if the destination is permitted.
    async fn upstream(&self, server: &Server) -> Result<&Upstream, String> {
        let Some(tenant) = &server.tenant else {
            return Ok(&self.local);
        };
        let Some(client) = self.tenants.get(tenant) else {
            return Err(format!(
                "tenant {tenant} may not reach any server; list its destinations in {EGRESS}"
            ));
        };
        // Each connection is checked again, because the name may resolve to another address by
        // then.
        match client.connector.admit(&server.base).await {
            Ok(()) => Ok(&client.upstream),
            Err(ConnectError::Refused(refused)) => Err(refused.to_string()),
            Err(error) => Err(error.to_string()),
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

impl Message {
    /// The request of an action, and its server.
    pub(crate) fn of(request: &HttpRequest, tenant: &str) -> Result<(Server, Self), BodyError> {
        let (base, path_and_query) = split_url("http.url", &request.url)?;
        let tenant = Some(tenant.to_owned());
        let message = Self {
            method: method(&request.method),
            path_and_query,
            headers: headers(&request.headers),
            body: Bytes::from(request.body.clone()),
        };
        Ok((Server { base, tenant }, message))
    }

    /// The request of an action to its service.
    pub(crate) fn to_service(call: &ServiceCall) -> Self {
        Self {
            method: method(&call.method),
            path_and_query: call.path.clone(),
            headers: headers(&call.headers),
            body: Bytes::from(call.body.clone()),
        }
    }

    /// A GET request for a path.
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path_and_query: path.to_owned(),
            headers: headers(&BTreeMap::new()),
            body: Bytes::new(),
        }
    }

    /// A POST request with JSON.
    pub(crate) fn post(path: &str, json: &serde_json::Value) -> Self {
        let json_type = ("content-type".to_owned(), "application/json".to_owned());
        Self {
            method: Method::POST,
            path_and_query: path.to_owned(),
            headers: headers(&BTreeMap::from([json_type])),
            body: Bytes::from(json.to_string()),
        }
    }
}

fn method(name: &str) -> Method {
    // It was checked when the description was parsed.
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
