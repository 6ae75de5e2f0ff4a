//! Streams of members' steps: what was asked for on the client's behalf is taken out of them.

use super::tokens::{answer, asked, gateway, release, step};
use super::{batch, get};
use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::fixture::chat;
use treadle_tests::support::raw_engine::RawEngine;

const EVENTS: &str = "text/event-stream";

#[tokio::test(flavor = "multi_thread")]
async fn streams_reach_the_client_without_what_was_asked_for_it() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let mut body = chat("p", "hello", 5);
    body["stream"] = json!(true);
    let sent = step(client, "p", body);
    let mut request = engine.request().await;
    assert_eq!(asked(&request)["stream_options"]["include_usage"], true);
    request.begin_events().await;
    let score = json!({"content": [{"token": "t", "logprob": -0.5}]});
    let start = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}],
        "prompt_token_ids": [1, 2]});
    let part = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": score,
        "token_ids": [7]}]});
    // A token of a call whose text is not known yet, and the stop token.
    let held = json!({"choices": [{"index": 0, "delta": {}, "logprobs": score, "token_ids": [8],
        "finish_reason": null}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "logprobs": score, "token_ids": [9],
        "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}});
    for event in [&start, &part, &held, &end, &usage] {
        request.chunk(format!("data: {event}\n\n").as_bytes()).await;
    }
    request.chunk(b"data: [DONE]\n\n").await;
    request.end().await;
    let shown = sent.await.expect("it ends");
    assert_eq!(shown.headers["content-type"], EVENTS);
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    let hidden = |mut event: Value| {
        let choice = &mut event["choices"][0];
        (choice["logprobs"], choice["token_ids"]) = (Value::Null, Value::Null);
        format!("data: {event}")
    };
    let start =
        r#"data: {"choices":[{"delta":{"role":"assistant"},"index":0}],"prompt_token_ids":null}"#;
    assert_eq!(
        shown.split_terminator("\n\n").collect::<Vec<_>>(),
        [start, &hidden(part), &hidden(end), "data: [DONE]"]
    );
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(steps["steps"][0]["output"], json!([7, 8, 9]));
    assert_eq!(steps["steps"][0]["prompt"], json!([1, 2]));
    fixture.finish().await;
}

/// Its streams lack log-probabilities, so the whole answer is asked for and played.
#[tokio::test(flavor = "multi_thread")]
async fn chats_of_sglang_are_asked_for_whole() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Sglang).await;
    let client = &fixture.client;
    let mut body = chat("p", "hello", 5);
    body["stream"] = json!(true);
    let sent = step(client, "p", body);
    let request = engine.request().await;
    assert_eq!(asked(&request)["stream"], false);
    let whole = json!({"id": "c", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "yes"},
        "logprobs": {"content": [{"logprob": -0.5}]},
        "prompt_token_ids": [1, 2], "response_token_ids": [7]}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1}});
    answer(request, &whole).await;
    let shown = sent.await.expect("it ends");
    assert_eq!(shown.headers["content-type"], EVENTS);
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(
        shown.contains(r#""content":"yes""#) && shown.ends_with("data: [DONE]\n\n"),
        "{shown}"
    );
    assert!(
        !shown.contains("token_ids") && !shown.contains("-0.5"),
        "{shown}"
    );
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(steps["steps"][0]["output"], json!([7]));
    fixture.finish().await;
}
