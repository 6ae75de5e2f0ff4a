//! The client of a running daemon: one request at a time, JSON both ways.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use treadle_wire::SseScanner;

use super::environment;
use super::error::CliError;
use super::local_token;
use crate::auth::credentials::TENANT_HEADER;
use crate::gateway::Upstream;

/// Where a daemon listens unless it is told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8300";
/// For a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For a whole answer; an upload is compiled and tried out before it is one.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Largest event of a stream.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// Carries the signature of an upload.
const SIGNATURE: HeaderName = HeaderName::from_static("treadle-signature");

/// Which daemon to ask, and how to show what it says.
#[derive(Args, Clone, Debug)]
pub(super) struct Remote {
    /// Base URL of the daemon.
    #[arg(long, env = environment::URL, default_value = DEFAULT_URL, value_parser = base_url, global = true, value_name = "URL")]
    pub(super) url: String,
    /// Token to send; without one, that of the daemon whose store is here.
    #[arg(long, env = environment::TOKEN, hide_env_values = true, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Tenant to act in; for tokens of the whole daemon.
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl Remote {
    /// The client for it.
    pub(super) fn client(&self) -> Client {
        let token = match &self.token {
            Some(token) => Some(Token::Given(token.clone())),
            None => local_token::find(&self.url).map(Token::Found),
        };
        Client {
            upstream: Upstream::new(CONNECT_TIMEOUT),
            url: self.url.clone(),
            token,
            tenant: self.tenant.clone(),
        }
    }
}

/// Checks a base URL and takes the slash at its end away.
fn base_url(text: &str) -> Result<String, String> {
    let is_base = |uri: &Uri| uri.scheme_str() == Some("http") && uri.query().is_none();
    match text.parse::<Uri>() {
        Ok(uri) if is_base(&uri) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("write it as http://host:port".to_owned()),
    }
}

/// A text as a part of a path or query.
pub(super) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// A client of one daemon.
pub(super) struct Client {
    upstream: Upstream,
    url: String,
    token: Option<Token>,
    tenant: Option<String>,
}

/// Where a token is from.
#[derive(Clone, Debug)]
enum Token {
    /// Somebody said it.
    Given(String),
    /// It lies where a daemon's first one would; it may be that of another.
    Found(String),
}

impl Client {
    /// Asks for something.
    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        successful(self.send(Method::GET, path, Bytes::new()).await?)
    }

    /// Sends a command.
    pub(super) async fn command(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, CliError> {
        successful(self.send(method, path, body.to_string().into()).await?)
    }

    /// Sends a file, and beside it what vouches for it, if there is something.
    pub(super) async fn upload(
        &self,
        path: &str,
        bytes: Bytes,
        signature: Option<HeaderValue>,
    ) -> Result<Value, CliError> {
        let mut headers = HeaderMap::new();
        headers.extend(signature.map(|text| (SIGNATURE, text)));
        successful(self.send_with(Method::POST, path, bytes, headers).await?)
    }

    /// Hands over the data of events as a daemon sends them, until it ends the stream
    /// or `on_data` fails.
    pub(super) async fn follow(
        &self,
        path: &str,
        on_data: &mut (dyn FnMut(&str) -> Result<(), CliError> + Send),
    ) -> Result<(), CliError> {
        let mut headers = HeaderMap::new();
        let events = HeaderValue::from_static("text/event-stream");
        headers.insert(header::ACCEPT, events);
        let headers = self.headers(true, &headers)?;
        let sent = self
            .upstream
            .send(Method::GET, &self.url, path, &headers, Bytes::new());
        let answer = sent.await.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return successful(self.whole(answer).await?).map(drop);
        }
        let mut body = answer.into_body();
        let mut scanner = SseScanner::new(EVENT_BYTES_MAX);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.unreachable(&error))?;
            let Some(chunk) = frame.data_ref() else {
                continue;
            };
            let mut told = Ok(());
            let fed = scanner.feed(chunk, &mut |data| {
                if told.is_ok() {
                    told = on_data(&String::from_utf8_lossy(data));
                }
            });
            told?;
            fed.map_err(|error| CliError::Foreign {
                url: self.url.clone(),
                what: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// One request, whatever the status of its answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Value), CliError> {
        self.send_with(method, path, body, HeaderMap::new()).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        beside: HeaderMap,
    ) -> Result<(StatusCode, Value), CliError> {
        let ask = async {
            let headers = self.headers(true, &beside)?;
            let answer = self.read(method.clone(), path, &headers, body.clone());
            let (status, value) = answer.await?;
            let is_found = matches!(self.token, Some(Token::Found(_)));
            if is_found && status == StatusCode::UNAUTHORIZED {
                let headers = self.headers(false, &beside)?;
                return self.read(method, path, &headers, body).await;
            }
            Ok((status, value))
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask);
        answer.await.unwrap_or_else(|_| {
            Err(CliError::Slow {
                url: self.url.clone(),
                seconds: ANSWER_TIMEOUT.as_secs(),
            })
        })
    }

    /// Those of every request, with `beside`, which go before them.
    fn headers(&self, with_token: bool, beside: &HeaderMap) -> Result<HeaderMap, CliError> {
        let mut headers = beside.clone();
        let json = HeaderValue::from_static("application/json");
        headers.entry(header::ACCEPT).or_insert(json);
        let value = |text: &str, what: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                CliError::Usage(format!("the {what} holds other than ASCII characters"))
            })
        };
        if let Some(Token::Given(token) | Token::Found(token)) =
            self.token.as_ref().filter(|_| with_token)
        {
            let bearer = value(&format!("Bearer {token}"), "token")?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        if let Some(tenant) = &self.tenant {
            headers.insert(TENANT_HEADER, value(tenant, "tenant")?);
        }
        Ok(headers)
    }

    async fn read(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, Value), CliError> {
        let sent = self.upstream.send(method, &self.url, path, headers, body);
        self.whole(sent.await.map_err(|error| self.unreachable(&error))?)
            .await
    }

    /// Status and body of an answer.
    async fn whole(&self, answer: Response<Incoming>) -> Result<(StatusCode, Value), CliError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = body
            .await
            .map_err(|error| self.unreachable(&*error))?
            .to_bytes();
        let value = serde_json::from_slice(&body).map_err(|_| CliError::Foreign {
            url: self.url.clone(),
            what: format!("status {} and no JSON", status.as_u16()),
        })?;
        Ok((status, value))
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> CliError {
        let text = error.to_string();
        // What comes first tells which layers the error went through.
        let cause = text.rsplit(": ").next().unwrap_or(&text);
        CliError::Unreachable {
            url: self.url.clone(),
            cause: cause.to_owned(),
        }
    }
}

/// The body of a success, or what the daemon says is wrong.
fn successful((status, body): (StatusCode, Value)) -> Result<Value, CliError> {
    if status.is_success() {
        return Ok(body);
    }
    let text = |at: &str| body.pointer(at).and_then(Value::as_str);
    let status = status.as_u16();
    Err(CliError::Refused {
        code: text("/error/code").map_or_else(|| status.to_string(), str::to_owned),
        message: text("/error/message").map_or_else(|| body.to_string(), str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_base_url_has_a_scheme_and_no_slash_at_its_end() {
        assert_eq!(base_url("http://a:1/").as_deref(), Ok("http://a:1"));
        for bad in ["a:1", "https://a:1", "http://a:1?x", "", "http://"] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_survive_the_way_through_a_path() {
        assert_eq!(escaped("task/7 ü?"), "task%2F7%20%C3%BC%3F");
        assert_eq!(escaped("a-b_c.d~9"), "a-b_c.d~9");
    }

    #[test]
    fn refusals_keep_their_code_and_their_words() {
        let body = json!({"error": {"code": "program_unknown", "message": "no program"}});
        let error = successful((StatusCode::NOT_FOUND, body)).expect_err("a refusal");
        assert_eq!(error.to_string(), "no program [program_unknown]");
        let error = successful((StatusCode::BAD_GATEWAY, json!({}))).expect_err("a refusal");
        assert_eq!(error.to_string(), "{} [502]");
    }
}
