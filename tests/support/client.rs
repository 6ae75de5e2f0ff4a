//! A client of HTTP interfaces: JSON in, answers and event streams out.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use treadle_trust::{Connector, Targets, Trust};

use super::metrics::Metrics;

/// No answer and no event of a test takes longer, whatever else the machine does. Waits end as soon
/// as their condition holds, so that a long timeout costs nothing.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// How long a connection may idle: less than any server keeps one, so that no request meets one that
/// is about to close.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// A client with one base URL.
#[derive(Clone)]
pub struct Client {
    base: String,
    /// The headers of every request, unless it sets them otherwise.
    token: Option<String>,
    pool: Pool<Connector, Full<Bytes>>,
    timeout: Duration,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON, {error}: {:?}", self.body))
    }

    /// The body as JSON of an answer that must be a success.
    pub fn ok(&self) -> Value {
        assert!(
            self.status.is_success(),
            "{}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        self.json()
    }

    /// Checks that this is the error with this status and code; returns its message.
    pub fn refused(&self, status: u16, code: &str) -> String {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), status, "{text}");
        let error = &self.json()["error"];
        assert_eq!(error["code"], code, "{text}");
        error["message"].as_str().expect("a message").to_owned()
    }
}

impl Client {
    /// A client of the server at this URL, which has no slash at its end.
    pub fn new(base: impl Into<String>) -> Self {
        Self::trusting(base, Trust::default())
    }

    /// A client that accepts these certificates.
    pub fn trusting(base: impl Into<String>, trust: Trust) -> Self {
        Self {
            base: base.into(),
            token: None,
            pool: Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_MAX)
                .build(Connector::new(Targets::all(), trust, TIMEOUT)),
            timeout: TIMEOUT,
        }
    }

    /// Its base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The same client with a token in each request.
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self {
            token: Some(token.into()),
            ..self.clone()
        }
    }

    /// The token of its requests.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The same client without a token.
    pub fn without_token(&self) -> Self {
        Self {
            token: None,
            ..self.clone()
        }
    }

    /// The same client with this timeout for each answer and each event of a stream.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let says_otherwise = headers.iter().any(|(name, _)| *name == "authorization");
        if let Some(token) = self.token.as_ref().filter(|_| !says_otherwise) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        tokio::time::timeout(self.timeout, self.pool.request(request))
            .await
            .expect("an answer in time")
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = self.open(method, path, headers, body).await;
        let (parts, body) = response.expect("an answer").into_parts();
        let body = tokio::time::timeout(self.timeout, body.collect()).await;
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.expect("a body in time").expect("a body").to_bytes(),
        }
    }

    /// Gets a page.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, path, &headers, body.to_string())
            .await
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], "").await
    }

    /// Posts JSON and follows the event stream that answers.
    pub async fn stream(&self, path: &str, body: &Value) -> Events {
        let headers = [("content-type", "application/json")];
        let response = self.open(Method::POST, path, &headers, body.to_string());
        self.events(response.await.expect("an answer"))
    }

    /// Follows an event stream.
    pub async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let response = self.open(Method::GET, path, headers, "");
        self.events(response.await.expect("an answer"))
    }

    /// The events of a response.
    pub fn events(&self, response: Response<Incoming>) -> Events {
        assert_eq!(response.status(), StatusCode::OK);
        Events {
            body: response.into_body(),
            seen: Vec::new(),
            timeout: self.timeout,
        }
    }

    /// The figures at `/metrics`.
    pub async fn metrics(&self) -> Metrics {
        let page = self.get("/metrics").await;
        Metrics::parse(std::str::from_utf8(&page.body).expect("text"))
    }

    /// Waits until a condition on the figures holds.
    pub async fn until(&self, what: &str, condition: impl Fn(&Metrics) -> bool) -> Metrics {
        let started = std::time::Instant::now();
        loop {
            let metrics = self.metrics().await;
            if condition(&metrics) {
                return metrics;
            }
            assert!(started.elapsed() < TIMEOUT, "not {what}: {metrics:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An event stream under way. Dropping it closes the connection.
pub struct Events {
    body: Incoming,
    seen: Vec<u8>,
    timeout: Duration,
}

/// How a stream ended.
#[derive(Debug)]
pub struct Ended {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// True if the connection broke instead of ending in order.
    pub broken: bool,
}

impl Events {
    /// The next piece as received; `None` at a clean end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let frame = tokio::time::timeout(self.timeout, self.body.frame());
        let frame = frame.await.expect("an event in time")?;
        let data = frame.map(|frame| frame.into_data().unwrap_or_default());
        if let Ok(data) = &data {
            self.seen.extend_from_slice(data);
        }
        Some(data)
    }

    /// Reads to the end.
    pub async fn finish(mut self) -> Ended {
        let mut broken = false;
        while let Some(piece) = self.piece().await {
            if piece.is_err() {
                broken = true;
                break;
            }
        }
        Ended {
            bytes: self.seen,
            broken,
        }
    }
}

impl Ended {
    /// The payloads of the events, in order.
    pub fn payloads(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }

    /// The payloads that are JSON.
    pub fn objects(&self) -> Vec<Value> {
        let payloads = self.payloads();
        let objects = payloads.iter().filter_map(|p| serde_json::from_str(p).ok());
        objects.collect()
    }

    /// True if `[DONE]` came.
    pub fn is_done(&self) -> bool {
        self.payloads().iter().any(|payload| payload == "[DONE]")
    }

    /// The usage in one of the events.
    pub fn usage(&self) -> Option<Value> {
        let mut objects = self.objects().into_iter().rev();
        objects.find_map(|event| event.get("usage").filter(|u| u.is_object()).cloned())
    }
}
