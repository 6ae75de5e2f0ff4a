//! The simulated engine over real sockets.

use std::time::Duration;

use super::*;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;

mod caches;
mod control;
mod generation;
mod handover;
mod ranks;

/// Nothing here should take longer.
const TIMEOUT: Duration = Duration::from_mins(1);

struct Bench {
    engine: EngineSimHandle,
    client: Client<HttpConnector, Body>,
}

impl Bench {
    async fn start(options: EngineSimOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let engine = EngineSim::serve(listener, options).expect("good options");
        Self {
            engine,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// An engine whose iterations take a microsecond.
    async fn quick() -> Self {
        let profile = EngineProfile::instant();
        Self::start(EngineSimOptions {
            profile,
            ..EngineSimOptions::default()
        })
        .await
    }

    async fn send(&self, method: Method, path: &str, body: String) -> http::Response<Incoming> {
        let uri = format!("{}{path}", self.engine.url());
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Body::from(body));
        let response = self.client.request(request.expect("a request"));
        tokio::time::timeout(TIMEOUT, response)
            .await
            .expect("in time")
            .expect("a response")
    }

    async fn post(&self, path: &str, body: &Value) -> http::Response<Incoming> {
        self.send(Method::POST, path, body.to_string()).await
    }

    async fn post_json(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_slice(&whole(response).await.expect("a body")).expect("JSON")
    }

    async fn get_text(&self, path: &str) -> (HeaderMap, String) {
        let response = self.send(Method::GET, path, String::new()).await;
        let headers = response.headers().clone();
        let body = whole(response).await.expect("a body");
        (headers, String::from_utf8(body.to_vec()).expect("text"))
    }

    /// Waits until no sequence holds memory.
    async fn until_empty(&self) {
        let empty = async {
            while self.engine.snapshot().await.used_blocks > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, empty)
            .await
            .expect("the blocks come free");
    }
}

async fn whole(response: http::Response<Incoming>) -> Result<Bytes, hyper::Error> {
    let collected = tokio::time::timeout(TIMEOUT, response.into_body().collect());
    Ok(collected.await.expect("in time")?.to_bytes())
}

/// The payloads of an event stream.
fn payloads(stream: &Bytes) -> Vec<String> {
    let text = std::str::from_utf8(stream).expect("text");
    let events = text.split_terminator("\n\n");
    events
        .map(|event| event.strip_prefix("data: ").expect("an event").to_owned())
        .collect()
}

fn chat(text: &str, max_tokens: u32, stream: bool) -> Value {
    json!({
        "model": "treadle-sim",
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": max_tokens,
        "stream": stream,
        "stream_options": { "include_usage": true },
    })
}

const CHAT: &str = "/v1/chat/completions";
