//! One request of a client, and whether its answer was complete.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;

/// Longest silence of a server before a client abandons the request.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Time limit for opening a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The complete answer, with its token counts if it has them.
    Complete {
        /// The whole body, or the last object of a stream with the usage.
        answer: Value,
        /// The generated text.
        text: String,
    },
    /// No answer or only a part: to be retried.
    Broken(String),
    /// Refused permanently.
    Refused(String),
}

/// A whole answer.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body as JSON; null if it has another form.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A client of any daemon.
#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_MAX));
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // The pool must not repeat a request: each attempt is recorded.
            .retry_canceled_requests(false)
            .build(connector);
        Self { pool }
    }

    /// Posts JSON about a job and reads the answer to its end.
    pub(crate) async fn post(&self, base: &str, path: &str, job: &str, body: &Value) -> Outcome {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{base}{path}"))
            .header("content-type", "application/json")
            .header("x-treadle-job", job)
            .body(Full::new(Bytes::from(body.to_string())));
        let Ok(request) = request else {
            return Outcome::Refused("the request can't be written".to_owned());
        };
        let Reply {
            status,
            body: bytes,
        } = match self.send(request).await {
            Ok(reply) => reply,
            Err(why) => return Outcome::Broken(why),
        };
        let streams = body["stream"] == true && status.is_success();
        let text = String::from_utf8_lossy(&bytes);
        match status {
            _ if status.is_success() && streams => of_stream(&text),
            _ if status.is_success() => match serde_json::from_str(&text) {
                Ok(answer) => {
                    let text = text_of(&answer);
                    Outcome::Complete { answer, text }
                }
                Err(error) => Outcome::Broken(format!("no JSON: {error}")),
            },
            // Errors that a good client retries.
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                Outcome::Broken(format!("{status}: {text}"))
            }
            _ if status.is_server_error() => Outcome::Broken(format!("{status}: {text}")),
            _ => Outcome::Refused(format!("{status}: {text}")),
        }
    }

    /// Sends a request and reads its answer to the end; otherwise says why there is no whole one.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let response = tokio::time::timeout(SILENCE_MAX, self.pool.request(request)).await;
        let response = response.map_err(|_| "silence".to_owned())?;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = whole(response.into_body()).await?;
        Ok(Reply { status, body })
    }

    /// The body of a page, if there is one; of this shard, if it is named.
    pub(crate) async fn get(&self, base: &str, path: &str, shard: Option<&str>) -> Option<String> {
        let mut request = Request::get(format!("{base}{path}"));
        if let Some(shard) = shard {
            request = request.header("x-treadle-shard", shard);
        }
        let request = request.body(Full::default()).ok()?;
        let response = tokio::time::timeout(CONNECT_MAX, self.pool.request(request));
        let response = response.await.ok()?.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let bytes = whole(response.into_body()).await.ok()?;
        String::from_utf8(bytes).ok()
    }
}

async fn whole(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Err(_) => return Err("silence".to_owned()),
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(frame))) => {
                bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            }
        }
    }
}

/// A stream is complete with its last mark and without an error in it.
fn of_stream(text: &str) -> Outcome {
    let payloads = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut last = Value::Null;
    let mut generated = String::new();
    let mut is_done = false;
    for payload in payloads {
        if payload == "[DONE]" {
            is_done = true;
            continue;
        }
        match serde_json::from_str::<Value>(payload) {
            Ok(event) if !event["error"].is_null() => {
                return Outcome::Broken(format!("an error in the stream: {payload}"));
            }
            Ok(event) => {
                generated += &text_of(&event);
                if event["usage"].is_object() {
                    last = event;
                }
            }
            Err(error) => return Outcome::Broken(format!("no JSON in the stream: {error}")),
        }
    }
    if is_done {
        Outcome::Complete {
            answer: last,
            text: generated,
        }
    } else {
        Outcome::Broken("the stream ended without its last mark".to_owned())
    }
}

/// The text in an answer or in a part of one, of a completion or a chat.
fn text_of(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    let texts = [
        &choice["text"],
        &choice["message"]["content"],
        &choice["delta"]["content"],
    ];
    let text = texts.into_iter().find_map(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_end_without_an_error_is_complete() {
        let whole = "data: {\"choices\":[{\"text\":\"ab\"}]}\n\n\
                     data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n\
                     data: {\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
        let Outcome::Complete { answer, text } = of_stream(whole) else {
            panic!("it is complete");
        };
        assert_eq!(text, "abc");
        assert_eq!(answer["usage"]["completion_tokens"], 3);
        for broken in [
            "data: {\"usage\":{}}\n\n",
            "data: {\"error\":{\"code\":\"x\"}}\n\ndata: [DONE]\n\n",
            "data: {\"us",
            "",
        ] {
            assert!(matches!(of_stream(broken), Outcome::Broken(_)), "{broken}");
        }
    }
}
