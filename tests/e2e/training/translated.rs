//! Captured requests to `/v1/responses` and `/v1/messages`, whole and streamed: the engine gets a
//! chat, and the client its own API without what was asked for it.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use treadle_config::EngineChoice;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

use super::tokens::{answer, asked, gateway, release, vllm};
use super::{batch, get};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Sends a request of a member of group `a`.
fn sent(client: &Client, path: &'static str, body: &Value) -> JoinHandle<Answer> {
    let (client, body) = (client.clone(), body.to_string().into_bytes());
    tokio::spawn(async move {
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", "a"),
            ("x-program-id", "p"),
        ];
        client.send(Method::POST, path, &headers, body).await
    })
}

/// The request that the engine got instead, which asks for tokens.
async fn chat_of(engine: &mut RawEngine) -> RawRequest {
    let request = engine.request().await;
    let line = &request.line;
    assert!(line.contains("/v1/chat/completions"), "{line}");
    let body = asked(&request);
    let asks = (&body["return_token_ids"], &body["logprobs"]);
    assert_eq!(asks, (&json!(true), &json!(true)));
    request
}

/// Answers with the text `ab` in tokens 7, 8 and the stop token 9, as vLLM streams them.
async fn stream(mut request: RawRequest) {
    request.begin_events().await;
    let event = |delta: Value, token: i32, finish: Value| {
        let score = json!({"content": [{"token": "t", "logprob": -0.5}]});
        json!({"choices": [{"index": 0, "delta": delta, "logprobs": score, "token_ids": [token],
            "finish_reason": finish}]})
    };
    let start = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}],
        "prompt_token_ids": [1, 2]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}});
    for event in [
        start,
        event(json!({"content": "a"}), 7, Value::Null),
        event(json!({"content": "b"}), 8, Value::Null),
        event(json!({}), 9, json!("stop")),
        usage,
    ] {
        request.chunk(format!("data: {event}\n\n").as_bytes()).await;
    }
    request.chunk(b"data: [DONE]\n\n").await;
    request.end().await;
}

/// The events that a client got, without tokens.
async fn events(sent: JoinHandle<Answer>) -> Vec<Value> {
    let shown = sent.await.expect("it ends");
    assert_eq!(shown.headers["content-type"], "text/event-stream");
    let text = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(!text.contains("token_ids"), "{text}");
    assert!(!text.contains("-0.5"), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let data = data.filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// The texts of events of a type, in their order.
fn texts(events: &[Value], kind: &str, field: &str) -> String {
    let own = events.iter().filter(|event| event["type"] == kind);
    own.filter_map(|event| event.pointer(field)?.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_captured_over_turns() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let body = json!({"model": "m", "instructions": "be brief", "input": "hello"});
    let first = sent(client, RESPONSES, &body);
    let request = chat_of(&mut engine).await;
    assert_eq!(asked(&request)["messages"][0]["content"], "be brief");
    answer(request, &vllm(&[1, 2], &[3])).await;
    let first = first.await.expect("it ends").ok();
    assert_eq!(first["object"], "response");
    assert_eq!(first["output"][0]["content"][0]["text"], "yes");
    assert_eq!(first["usage"]["output_tokens"], 1);
    assert!(!first.to_string().contains("token_ids"), "{first}");
    let body = json!({"model": "m", "input": "more", "previous_response_id": first["id"]});
    let second = sent(client, RESPONSES, &body);
    let request = chat_of(&mut engine).await;
    let messages = asked(&request)["messages"].to_string();
    assert!(messages.contains("\"yes\""), "{messages}");
    answer(request, &vllm(&[1, 2, 3, 4], &[5, 6])).await;
    second.await.expect("it ends").ok();
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(steps["sequences"][0]["ids"], json!([1, 2, 3, 4, 5, 6]));
    let sampled = json!([{"step": 0, "start": 2, "end": 3}, {"step": 1, "start": 4, "end": 6}]);
    assert_eq!(steps["sequences"][0]["sampled"], sampled);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_both_apis_are_captured() {
    for path in [MESSAGES, RESPONSES] {
        let mut engine = RawEngine::start().await;
        let fixture = gateway(&engine, EngineChoice::Vllm).await;
        let client = &fixture.client;
        let body = match path {
            MESSAGES => json!({"model": "m", "max_tokens": 5, "stream": true,
                "messages": [{"role": "user", "content": "hello"}]}),
            _ => json!({"model": "m", "stream": true, "input": "hello"}),
        };
        let answered = sent(client, path, &body);
        stream(chat_of(&mut engine).await).await;
        let events = events(answered).await;
        let (kind, delta, end, usage_at) = match path {
            MESSAGES => (
                "content_block_delta",
                "/delta/text",
                "message_delta",
                "/usage",
            ),
            _ => (
                "response.output_text.delta",
                "/delta",
                "response.completed",
                "/response/usage",
            ),
        };
        let text = texts(&events, kind, delta);
        let usage = events.iter().find(|event| event["type"] == end);
        let usage = usage.and_then(|event| event.pointer(usage_at));
        assert_eq!(text, "ab", "{path}: {events:?}");
        let usage = usage.expect("the end is told");
        assert_eq!(usage["output_tokens"], 3, "{path}");
        release(client, "p").await;
        batch(client, 1).await;
        let steps = get(client, "/members/p/steps").await.ok();
        assert_eq!(steps["steps"][0]["prompt"], json!([1, 2]), "{path}");
        assert_eq!(steps["steps"][0]["output"], json!([7, 8, 9]), "{path}");
        assert_eq!(steps["steps"][0]["logprobs"], json!([-0.5, -0.5, -0.5]));
        fixture.finish().await;
    }
}

/// Its streams of chats lack log-probabilities: the whole answer is asked for, and played.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_both_apis_are_played_if_the_engine_must_answer_whole() {
    for path in [MESSAGES, RESPONSES] {
        let mut engine = RawEngine::start().await;
        let fixture = gateway(&engine, EngineChoice::Sglang).await;
        let client = &fixture.client;
        let body = match path {
            MESSAGES => json!({"model": "m", "max_tokens": 5, "stream": true,
                "messages": [{"role": "user", "content": "hello"}]}),
            _ => json!({"model": "m", "stream": true, "input": "hello"}),
        };
        let answered = sent(client, path, &body);
        let request = engine.request().await;
        assert!(request.line.contains("/v1/chat/completions"));
        assert_eq!(asked(&request)["stream"], false);
        let whole = json!({"id": "c", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "yes"},
            "logprobs": {"content": [{"logprob": -0.5}]},
            "prompt_token_ids": [1, 2], "response_token_ids": [7]}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1}});
        answer(request, &whole).await;
        let events = events(answered).await;
        let text = match path {
            MESSAGES => texts(&events, "content_block_delta", "/delta/text"),
            _ => texts(&events, "response.output_text.delta", "/delta"),
        };
        assert_eq!(text, "yes", "{path}: {events:?}");
        release(client, "p").await;
        batch(client, 1).await;
        let steps = get(client, "/members/p/steps").await.ok();
        assert_eq!(steps["steps"][0]["output"], json!([7]), "{path}");
        fixture.finish().await;
    }
}
