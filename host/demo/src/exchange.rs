//! One step over HTTP: a chat request and its response, as one body or as events.

use super::naming::{Naming, Sender};
use super::run_counters::PromptTokens;
use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use std::borrow::Cow;
use treadle_http::Upstream;
use treadle_wire::SseScanner;

const CHAT: &str = "/v1/chat/completions";
/// Maximum size of a response, and of an event in a stream, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Maximum length of an error's body in a message, in bytes.
const CAUSE_BYTES_MAX: usize = 300;

/// The response of a step.
pub struct StepAnswer {
    /// The generated text.
    pub text: String,
    /// Token counts of the prompt.
    pub prompt: PromptTokens,
}

/// Sends a step and reads its whole response. The error is text for people.
pub async fn step(
    upstream: &Upstream,
    url: &str,
    headers: &HeaderMap,
    body: String,
) -> Result<StepAnswer, String> {
    let body = post(upstream, url, CHAT, headers, body).await?;
    if body.starts_with(b"{") {
        let reply: Reply<'_> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let mut answer = StepAnswer::empty();
        answer.take(&reply);
        return Ok(answer);
    }
    answer_of_events(&body)
}

/// Reports the end of a program, if the router needs it.
pub async fn release(
    upstream: &Upstream,
    url: &str,
    naming: &Naming,
    sender: Sender<'_>,
) -> Result<(), String> {
    let Some(path) = &naming.release else {
        return Ok(());
    };
    let headers = naming.headers(sender);
    let body = serde_json::json!({"program_id": sender.program}).to_string();
    post(upstream, url, path, &headers, body).await.map(drop)
}

/// Sends a GET request and returns the body. The error is text for people.
pub async fn get(upstream: &Upstream, url: &str, path: &str) -> Result<Bytes, String> {
    let (headers, body) = (HeaderMap::new(), String::new());
    send(upstream, Method::GET, url, path, &headers, body).await
}

/// Sends a DELETE request and returns the body. The error is text for people.
pub async fn delete(upstream: &Upstream, url: &str, path: &str) -> Result<Bytes, String> {
    let (headers, body) = (HeaderMap::new(), String::new());
    send(upstream, Method::DELETE, url, path, &headers, body).await
}

/// Sends a PUT request with a body and returns the response's.
pub async fn put(
    upstream: &Upstream,
    url: &str,
    path: &str,
    body: String,
) -> Result<Bytes, String> {
    send(upstream, Method::PUT, url, path, &HeaderMap::new(), body).await
}

/// Sends a POST request with a body and returns the response's.
pub async fn post(
    upstream: &Upstream,
    url: &str,
    path: &str,
    headers: &HeaderMap,
    body: String,
) -> Result<Bytes, String> {
    send(upstream, Method::POST, url, path, headers, body).await
}

async fn send(
    upstream: &Upstream,
    method: Method,
    url: &str,
    path: &str,
    headers: &HeaderMap,
    body: String,
) -> Result<Bytes, String> {
    let sent = upstream.send(method, url, path, headers, body.into());
    let response = sent.await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
    let body = body.await.map_err(|error| error.to_string())?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let said = &body[..body.len().min(CAUSE_BYTES_MAX)];
    Err(format!("{status}: {}", String::from_utf8_lossy(said)))
}

fn answer_of_events(body: &[u8]) -> Result<StepAnswer, String> {
    let mut answer = StepAnswer::empty();
    let mut events = SseScanner::new(ANSWER_BYTES_MAX);
    let mut take = |event: &[u8]| {
        if let Ok(reply) = serde_json::from_slice::<Reply<'_>>(event) {
            answer.take(&reply);
        }
    };
    let fed = events.feed(body, &mut take);
    fed.map_err(|error| error.to_string())?;
    if events.saw_done() {
        Ok(answer)
    } else {
        Err("the stream broke off before its end".to_owned())
    }
}

impl StepAnswer {
    fn empty() -> Self {
        Self {
            text: String::new(),
            prompt: PromptTokens::default(),
        }
    }

    fn take(&mut self, reply: &Reply<'_>) {
        if let Some(usage) = &reply.usage {
            let details = usage.prompt_tokens_details.as_ref();
            self.prompt = PromptTokens {
                all: usage.prompt_tokens,
                cached: details.and_then(|d| d.cached_tokens).unwrap_or(0),
            };
        }
        let choice = reply.choices.first();
        let message = choice.and_then(|c| c.message.as_ref().or(c.delta.as_ref()));
        if let Some(content) = message.and_then(|message| message.content.as_deref()) {
            self.text.push_str(content);
        }
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    delta: Option<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_events_is_the_answer_in_one_piece() {
        let events = concat!(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\\n\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,",
            "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
            "data: [DONE]\n\n",
        );
        let answer = answer_of_events(events.as_bytes()).unwrap();
        let prompt = PromptTokens { all: 9, cached: 4 };
        assert_eq!((answer.text.as_str(), answer.prompt), ("a\nb", prompt));
        assert!(answer_of_events(&events.as_bytes()[..200]).is_err());
    }
}
