//! `/v1/responses`: requests to engines, and continued conversations.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{Fixture, MODEL, plain_endpoint};
use treadle_tests::support::raw_engine::RawEngine;

use crate::tenancy::{client_of, make_tenant};

const PATH: &str = "/v1/responses";
const JSON: &str = "application/json";

/// A daemon in front of one engine that the test plays itself.
async fn in_front_of(engine: &RawEngine) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await
}

async fn ask(client: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    client
        .send(Method::POST, path, headers, body.to_owned())
        .await
}

/// The answer of an engine that has the path.
fn response(id: &str) -> Value {
    let text = json!({"type": "output_text", "text": "so", "annotations": []});
    json!({
        "id": id, "object": "response", "status": "completed", "error": null,
        "output": [{"type": "message", "id": "m", "role": "assistant", "content": [text]}],
        "usage": {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14,
            "input_tokens_details": {"cached_tokens": 8}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_with_the_path_is_sent_requests_as_they_are() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let codex = [
        ("session-id", "s-1"),
        ("thread-id", "t-1"),
        ("content-type", JSON),
    ];
    for (path, program) in [(PATH, "t-1"), ("/sessions/u-1/v1/responses", "u-1")] {
        let body = r#"{ "store": false, "model":"m", "input": [{"role":"user","content":"hi"}],
            "prompt_cache_key": "k", "client_metadata": {"x": "y"}, "include": [], "tools": []}"#;
        let asking = ask(&fixture.client, path, &codex, body);
        let answering = async {
            let request = engine.request().await;
            assert_eq!(request.line, format!("POST {PATH} HTTP/1.1"));
            assert_eq!(String::from_utf8_lossy(&request.body), body);
            let answer = response("resp_1").to_string();
            request.answer("200 OK", JSON, &answer).await;
            answer
        };
        let (answer, sent) = tokio::join!(asking, answering);
        assert_eq!(answer.body, sent);
        assert_eq!(answer.headers["x-treadle-program"], program);
        let steps = fixture
            .client
            .get(&format!("/api/v1/programs/{program}/steps"))
            .await
            .ok();
        let step = &steps["steps"][0];
        assert_eq!(
            (&step["prompt_tokens"], &step["output_tokens"]),
            (&json!(11), &json!(3))
        );
        assert_eq!(step["cached_tokens"], 8);
    }
    // An answer with `store: false` can't be continued.
    let more = json!({"input": "and?", "previous_response_id": "resp_1"}).to_string();
    let message = ask(&fixture.client, PATH, &codex, &more).await;
    let message = message.refused(400, "previous_response_not_found");
    assert!(message.contains("send the whole conversation"), "{message}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_put_together_for_its_engine() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let mut previous = None;
    for turn in 0..3 {
        let id = format!("resp_{turn}");
        let tools = json!([{"type": "function", "name": "f"}, {"type": "web_search"}]);
        let body = json!({"input": "hi", "previous_response_id": previous, "tools": tools});
        let headers = [("x-program-id", "p"), ("content-type", JSON)];
        let named = if turn == 0 {
            &headers[..]
        } else {
            &headers[1..]
        };
        let body = body.to_string();
        let asking = ask(&fixture.client, PATH, named, &body);
        let answering = async {
            let request = engine.request().await;
            let sent: Value = serde_json::from_slice(&request.body).expect("JSON");
            let items = sent["input"].as_array().map_or(1, Vec::len);
            assert_eq!(items, 2 * turn + 1, "{sent}");
            assert!(sent.get("previous_response_id").is_none());
            assert_eq!(
                (&sent["store"], sent["tools"].as_array().map(Vec::len)),
                (&json!(false), Some(1))
            );
            request
                .answer("200 OK", JSON, &response(&id).to_string())
                .await;
        };
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer.headers["x-treadle-program"], "p");
        previous = Some(id);
    }
    // Another program can't continue it.
    let body = json!({"input": "hi", "previous_response_id": previous}).to_string();
    let other = ask(&fixture.client, PATH, &[("x-program-id", "q")], &body).await;
    other.refused(400, "previous_response_not_found");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_without_the_path_is_asked_for_it_once() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let body = json!({"model": "m", "input": "hi", "max_output_tokens": 9}).to_string();
    for turn in 0..2 {
        let asking = ask(&fixture.client, PATH, &[("x-program-id", "p")], &body);
        let answering = async {
            if turn == 0 {
                let request = engine.request().await;
                assert!(
                    request.line.starts_with("POST /v1/responses "),
                    "{}",
                    request.line
                );
                request
                    .answer("404 Not Found", JSON, r#"{"detail":"Not Found"}"#)
                    .await;
            }
            let request = engine.request().await;
            assert!(
                request.line.starts_with("POST /v1/chat/completions "),
                "{}",
                request.line
            );
            let sent: Value = serde_json::from_slice(&request.body).expect("JSON");
            let messages = json!([{"role": "user", "content": "hi"}]);
            assert_eq!(
                sent,
                json!({"model": "m", "messages": messages, "max_tokens": 9})
            );
            request.answer_chat().await;
        };
        let (answer, ()) = tokio::join!(asking, answering);
        let answer = answer.ok();
        assert_eq!(
            (&answer["object"], &answer["output"][0]["role"]),
            (&json!("response"), &json!("assistant"))
        );
    }
    // If the chat path returns 404 too, the model is missing.
    let steps = fixture.client.get("/api/v1/programs/p/steps").await.ok();
    assert_eq!(
        steps["steps"].as_array().map(Vec::len),
        Some(2),
        "one step each: {steps}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_continues_only_its_own_answers() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    let body = json!({"model": MODEL, "input": "hi"});
    let answer = acme.post(PATH, &body).await.ok();
    let more = json!({"model": MODEL, "input": "and?", "previous_response_id": answer["id"]});
    let refused = fixture.client.post(PATH, &more).await;
    refused.refused(400, "previous_response_not_found");
    let continued = acme.post(PATH, &more).await.ok();
    assert_eq!(continued["status"], "completed");
    fixture.finish_all(&[&acme]).await;
}
