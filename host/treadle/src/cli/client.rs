//! The client of a running daemon: one request at a time, JSON both ways.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use treadle_wire::SseScanner;

use super::connection::Connection;
use super::environment;
use super::error::CliError;
use super::local_token::{self, Challenge, ChallengeOutcome, LocalToken};
use treadle_auth::credentials::TENANT_HEADER;
use treadle_trust::{Secret, Trust, UrlError, port_of, url_remedy};

/// The default address of a daemon.
const DEFAULT_URL: &str = "http://127.0.0.1:8300";
/// Timeout of a whole response; an upload is compiled and tried out before its response.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum size of a response.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Timeout of the daemon's proof that it knows a token.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response with a proof.
const PROOF_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a stream's event.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// Header with the signature of an upload.
const SIGNATURE: HeaderName = HeaderName::from_static("x-treadle-signature");

/// Which daemon to call.
#[derive(Args, Clone, Debug)]
pub(super) struct Server {
    /// Base URL of the daemon.
    #[arg(long, env = environment::URL, default_value = DEFAULT_URL, value_parser = base_url, global = true, value_name = "URL")]
    pub(super) url: String,
    /// Token to send; by default that of the daemon whose store is here or in a parent folder.
    #[arg(long, env = environment::TOKEN, hide_env_values = true, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// CA certificates (PEM) to trust in addition to the system's, for https:// URLs.
    #[arg(long, env = environment::CA, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Tenant to act in; for tokens of the whole daemon.
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
}

/// Which daemon to call, and how to print its response.
#[derive(Args, Clone, Debug)]
pub(super) struct Remote {
    #[command(flatten)]
    pub(super) server: Server,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Flattens [`Remote`] into a command that calls a daemon, for groups in which not all do.
#[derive(Args, Clone, Debug)]
pub(super) struct Asking<A: Args> {
    #[command(flatten)]
    pub(super) server: Server,
    #[command(flatten)]
    pub(super) args: A,
}

impl Remote {
    /// The client of this daemon.
    pub(super) fn client(&self) -> Client {
        self.server.client()
    }
}

impl Server {
    /// The client of this daemon.
    pub(super) fn client(&self) -> Client {
        Client {
            tenant: self.tenant.clone(),
            ..Client::of(&self.url, self.token.as_deref(), self.ca.as_deref())
        }
    }
}

/// Checks a base URL and removes its trailing slash.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let is_http = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    let is_base = |uri: &Uri| is_http(uri) && uri.query().is_none();
    match text.parse::<Uri>() {
        Ok(uri) if uri.authority().map(port_of) == Some(Err(UrlError::Port)) => {
            Err(UrlError::Port.to_string())
        }
        Ok(uri) if is_base(&uri) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(url_remedy(text)),
    }
}

/// Escapes a text as part of a path or query.
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
    url: String,
    token: Token,
    tenant: Option<String>,
    /// The certificate authorities that are accepted.
    trust: Trust,
}

/// Where a token comes from.
#[derive(Clone, Debug)]
enum Token {
    /// Given by the user for this URL.
    Given(String),
    /// Files where a daemon stores its first token; each may be of another daemon.
    Found(Vec<LocalToken>),
}

impl Client {
    /// A client of the daemon at a URL, with this token or one found in local files.
    pub(super) fn of(url: &str, token: Option<&str>, ca: Option<&Path>) -> Self {
        let token = match token {
            Some(token) => Token::Given(token.to_owned()),
            None => Token::Found(local_token::find(url)),
        };
        Self {
            url: url.to_owned(),
            token,
            tenant: None,
            trust: Trust::new(ca),
        }
    }

    /// Sends a GET request.
    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        let (status, body) = self.send(Method::GET, path, Bytes::new()).await?;
        successful(status, body)
    }

    /// Sends a command.
    pub(super) async fn command(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, CliError> {
        let (status, body) = self.send(method, path, body.to_string().into()).await?;
        successful(status, body)
    }

    /// Uploads a file, with its signature if there is one.
    pub(super) async fn upload(
        &self,
        path: &str,
        bytes: Bytes,
        signature: Option<HeaderValue>,
    ) -> Result<Value, CliError> {
        let mut headers = HeaderMap::new();
        headers.extend(signature.map(|text| (SIGNATURE, text)));
        let sent = self.send_with(Method::POST, path, bytes, headers).await;
        let (status, body) = sent?;
        successful(status, body)
    }

    /// Passes the data of each event of a stream to `on_data`, until the stream ends or `on_data`
    /// fails.
    pub(super) async fn follow(
        &self,
        path: &str,
        on_data: &mut (dyn FnMut(&str) -> Result<(), CliError> + Send),
    ) -> Result<(), CliError> {
        let mut headers = HeaderMap::new();
        let events = HeaderValue::from_static("text/event-stream");
        headers.insert(header::ACCEPT, events);
        let (answer, withheld) = self.ask(Method::GET, path, Bytes::new(), headers).await?;
        if !answer.status().is_success() {
            let (status, body) = self.whole(answer, withheld).await?;
            return successful(status, body).map(drop);
        }
        let mut body = answer.into_body();
        let mut scanner = SseScanner::new(EVENT_BYTES_MAX);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(error.to_string()))?;
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
                url: self.shown_url(),
                what: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// Sends a request and returns status and body, whatever the status.
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
            let (answer, withheld) = self.ask(method, path, body, beside).await?;
            self.whole(answer, withheld).await
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask);
        answer.await.unwrap_or_else(|_| {
            Err(CliError::Slow {
                url: self.shown_url(),
                seconds: ANSWER_TIMEOUT.as_secs(),
            })
        })
    }

    /// Sends a request on a new connection. Returns the response and the local token that was
    /// withheld because the daemon does not know it.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        beside: HeaderMap,
    ) -> Result<(Response<Incoming>, Option<&LocalToken>), CliError> {
        let mut connection = self.open().await?;
        let mut withheld = None;
        let mut token = None;
        match &self.token {
            Token::Given(given) => token = Some(given),
            Token::Found(found) => {
                for found in found {
                    if self.is_for(&mut connection, found).await? {
                        (token, withheld) = (Some(&found.secret), None);
                        break;
                    }
                    // A server that is not treadle may close the connection at any time.
                    connection = self.open().await?;
                    withheld = withheld.or(Some(found));
                }
            }
        }
        let headers = self.headers(token, beside)?;
        let sent = connection.send(method, path, headers, body).await;
        Ok((sent.map_err(|cause| self.broken(cause))?, withheld))
    }

    async fn open(&self) -> Result<Connection, CliError> {
        let connection = Connection::open(&self.url, &self.trust).await;
        connection.map_err(|cause| self.unreachable(cause))
    }

    /// Whether the daemon at the other end of this connection knows the token.
    async fn is_for(
        &self,
        connection: &mut Connection,
        token: &LocalToken,
    ) -> Result<bool, CliError> {
        let challenge =
            Challenge::of(token).map_err(|error| CliError::Failed(error.to_string()))?;
        // Without the tenant header, which requires a token.
        let headers = HeaderMap::new();
        let path = challenge.path();
        let asked = connection.send(Method::GET, &path, headers, Bytes::new());
        let asked = async {
            let answer = asked.await.ok()?;
            let body = Limited::new(answer.into_body(), PROOF_BYTES_MAX);
            serde_json::from_slice(&body.collect().await.ok()?.to_bytes()).ok()
        };
        let answer = tokio::time::timeout(PROOF_TIMEOUT, asked).await;
        // Any other response means that the server does not know the token.
        let answer: Value = answer.ok().flatten().unwrap_or_default();
        match challenge.check(connection.peer, &answer) {
            ChallengeOutcome::Own => Ok(true),
            ChallengeOutcome::Unknown => Ok(false),
            ChallengeOutcome::Unproven => Err(CliError::Unproven {
                url: self.shown_url(),
                file: token.file.clone(),
            }),
        }
    }

    /// The headers of every request; those in `beside` take precedence.
    fn headers(&self, token: Option<&String>, beside: HeaderMap) -> Result<HeaderMap, CliError> {
        let mut headers = beside;
        let json = HeaderValue::from_static("application/json");
        headers.entry(header::ACCEPT).or_insert(json);
        let value = |text: &str, what: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| CliError::Usage(format!("the {what} contains non-ASCII characters")))
        };
        if let Some(token) = token {
            let bearer = value(&format!("Bearer {token}"), "token")?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        if let Some(tenant) = &self.tenant {
            headers.insert(TENANT_HEADER, value(tenant, "tenant")?);
        }
        Ok(headers)
    }

    /// Reads a response and returns its status and body.
    async fn whole(
        &self,
        answer: Response<Incoming>,
        withheld: Option<&LocalToken>,
    ) -> Result<(StatusCode, Value), CliError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = body
            .await
            .map_err(|error| self.broken(error.to_string()))?
            .to_bytes();
        let foreign = |what: &str| CliError::Foreign {
            url: self.shown_url(),
            what: format!("status {} and {what}", status.as_u16()),
        };
        let value: Value = serde_json::from_slice(&body).map_err(|_| foreign("no JSON"))?;
        // treadle's own error codes are words.
        if value.pointer("/error/code").is_some_and(Value::is_number) {
            return Err(foreign("an engine's error"));
        }
        match withheld {
            Some(token) if status == StatusCode::UNAUTHORIZED => Err(CliError::Withheld {
                refusal: refused(status, &value).to_string(),
                url: self.shown_url(),
                file: token.file.clone(),
            }),
            _ => Ok((status, value)),
        }
    }

    /// The URL without its secrets.
    fn shown_url(&self) -> String {
        Secret::new(&*self.url).to_string()
    }

    fn broken(&self, cause: String) -> CliError {
        CliError::Broken {
            url: self.shown_url(),
            cause,
        }
    }

    fn unreachable(&self, cause: String) -> CliError {
        CliError::Unreachable {
            url: self.shown_url(),
            cause,
        }
    }
}

/// The body of a successful response, or the daemon's error.
fn successful(status: StatusCode, body: Value) -> Result<Value, CliError> {
    if status.is_success() {
        return Ok(body);
    }
    Err(refused(status, &body))
}

fn refused(status: StatusCode, body: &Value) -> CliError {
    let text = |at: &str| body.pointer(at).and_then(Value::as_str);
    let status = status.as_u16();
    CliError::Refused {
        code: text("/error/code").map_or_else(|| status.to_string(), str::to_owned),
        message: text("/error/message").map_or_else(|| body.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_base_url_has_a_scheme_and_no_slash_at_its_end() {
        assert_eq!(base_url("http://a:1/").as_deref(), Ok("http://a:1"));
        assert_eq!(base_url("https://a:1/").as_deref(), Ok("https://a:1"));
        for bad in ["a:1", "ftp://a:1", "http://a:1?x", "", "http://"] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
        for bad in ["http://a:0", "http://a:99999"] {
            assert!(base_url(bad).unwrap_err().contains("65535"), "{bad}");
        }
    }

    #[test]
    fn no_error_shows_the_secret_of_a_url() {
        let client = Client::of("http://treadle:tr_1@127.0.0.1:1", Some("t"), None);
        for error in [
            client.broken(String::new()),
            client.unreachable(String::new()),
        ] {
            let text = error.to_string();
            let shown = "http://treadle:[redacted]@127.0.0.1:1";
            assert!(text.contains(shown) && !text.contains("tr_1"), "{text}");
        }
    }

    #[test]
    fn names_survive_the_way_through_a_path() {
        assert_eq!(escaped("task/7 ü?"), "task%2F7%20%C3%BC%3F");
        assert_eq!(escaped("a-b_c.d~9"), "a-b_c.d~9");
    }

    #[test]
    fn refusals_keep_their_code_and_message() {
        let body = json!({"error": {"code": "program_unknown", "message": "no program"}});
        let error = successful(StatusCode::NOT_FOUND, body).expect_err("a refusal");
        assert_eq!(error.to_string(), "no program [program_unknown]");
        let error = successful(StatusCode::BAD_GATEWAY, json!({})).expect_err("a refusal");
        assert_eq!(error.to_string(), "{} [502]");
    }
}
