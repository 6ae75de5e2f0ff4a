//! Requests that are wrong, too long, too slow or withdrawn.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use treadle_tests::support::client::PATIENCE;
use treadle_tests::support::raw_client::RawClient;
use treadle_tests::support::raw_engine::RawEngine;
use treadle_tests::support::stand::{CHAT, COMPLETIONS, MODEL, Stand, chat, plain_endpoint};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_body_is_refused_by_name() {
    let stand = Stand::start(1, 100_000).await;
    let post = async |body: &str| {
        let client = stand.client.clone();
        client.send(Method::POST, CHAT, &[], body.to_owned()).await
    };
    post("{\"model\": \"m\", ")
        .await
        .refused(400, "invalid_json");
    post("\u{fffd}").await.refused(400, "invalid_json");
    post("").await.refused(400, "invalid_json");
    post("[]").await.refused(400, "body_not_object");
    post("7").await.refused(400, "body_not_object");
    let answer = post(r#"{"messages":[{"role":"user","content":"x"}]}"#).await;
    let message = answer.refused(400, "missing_field");
    assert_eq!(answer.json()["error"]["param"], "model");
    assert!(message.contains("model"), "{message}");
    let answer = post(r#"{"model":"m"}"#).await;
    answer.refused(400, "missing_field");
    assert_eq!(answer.json()["error"]["param"], "messages");
    let answer = post(r#"{"model":"m","messages":[],"stream":"yes"}"#).await;
    answer.refused(400, "invalid_field");
    assert_eq!(answer.json()["error"]["param"], "stream");
    assert_eq!(stand.client.metrics().await.count("treadle_programs"), 0);
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_and_a_wrong_method_are_told_as_json() {
    let stand = Stand::start(1, 100_000).await;
    let unknown = stand.client.get("/v1/nothing?x=1").await;
    let message = unknown.refused(404, "unknown_path");
    assert!(message.contains("/v1/nothing"), "{message}");
    for (method, path) in [
        (Method::GET, CHAT),
        (Method::PUT, "/programs/release"),
        (Method::DELETE, "/workers"),
        (Method::GET, "/sessions/s/v1/chat/completions"),
    ] {
        let answer = stand.client.send(method, path, &[], "").await;
        let message = answer.refused(405, "method_not_allowed");
        assert!(message.contains(path), "{message}");
    }
    stand.finish().await;
}

/// The bound on bodies in the tests below.
const BODY_BYTES_MAX: usize = 4 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_the_limit_passes_and_a_longer_one_does_not() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let stand = Stand::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 10_000_000)];
        config.server.body_bytes_max = BODY_BYTES_MAX as u64;
    })
    .await;
    let frame = chat("p", "", 1).to_string();
    let filler = "x".repeat(BODY_BYTES_MAX - frame.len());
    let body = chat("p", &filler, 1).to_string();
    assert_eq!(body.len(), BODY_BYTES_MAX);
    let sent = body.clone();
    let client = stand.client.clone();
    let passing =
        tokio::spawn(async move { client.send(Method::POST, CHAT, &[], sent).await.ok() });
    let request = engine.request().await;
    assert!(request.body == body.as_bytes(), "the body was changed");
    request.answer_chat().await;
    passing.await.expect("an answer");

    let longer = format!("{body} ");
    let answer = stand.client.send(Method::POST, CHAT, &[], longer).await;
    let message = answer.refused(413, "body_too_large");
    assert!(message.contains("server.body_bytes_max"), "{message}");
    // Twelve times the limit: refused before it is read.
    let flood = vec![b' '; 50_000_000];
    let refused = stand.client.open(Method::POST, CHAT, &[], flood).await;
    // The daemon may close the connection while the client is still sending.
    assert!(refused.is_err() || refused.is_ok_and(|answer| answer.status() == 413));
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_only_announced_is_refused_at_once() {
    let stand = Stand::start(1, 100_000).await;
    let mut raw = RawClient::connect(&stand.daemon.url()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000000000\r\n\r\n");
    raw.write(head).await.expect("it is sent");
    let answer = raw.until_text("body_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A chunked body has no announcement: it is counted.
    let stand_url = stand.daemon.url();
    let mut raw = RawClient::connect(&stand_url).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    raw.write(head).await.expect("it is sent");
    let piece = [b"100000\r\n", vec![b' '; 1 << 20].as_slice(), b"\r\n"].concat();
    for _ in 0..70 {
        if raw.write(&piece).await.is_err() {
            break;
        }
    }
    let answer = raw.until_closed().await;
    assert!(
        answer.is_empty() || answer.contains("body_too_large"),
        "{answer}"
    );
    stand.finish().await;
}

/// A daemon that has a second of patience with clients.
async fn impatient() -> Stand {
    Stand::tuned(1, 100_000, |config| {
        config.server.header_read_timeout_s = 1;
        config.server.body_read_timeout_s = 1;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dribbles_its_headers_is_cut_off() {
    let stand = impatient().await;
    let mut raw = RawClient::connect(&stand.daemon.url()).await;
    let began = Instant::now();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nx-slow: ");
    for byte in head.bytes().chain(std::iter::repeat(b'a')) {
        // However long it goes on, it sends in time for any bound between two bytes.
        if raw.write([byte]).await.is_err() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it is never cut off");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    raw.until_closed().await;
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_is_given_up() {
    let stand = impatient().await;
    let mut raw = RawClient::connect(&stand.daemon.url()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{\"mod");
    raw.write(head).await.expect("it is sent");
    let answer = raw.until_closed().await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("client_timeout"), "{answer}");
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_can_never_fit_is_refused_at_once() {
    let stand = Stand::start(2, 4_096).await;
    let ids: Vec<u32> = (0..5_000).collect();
    let body = json!({"model": MODEL, "prompt": ids, "max_tokens": 1, "program_id": "long"});
    let answer = stand.client.post(COMPLETIONS, &body).await;
    let message = answer.refused(400, "context_too_long");
    assert!(
        message.contains("5000") && message.contains("4096"),
        "{message}"
    );
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_withdrawn_by_its_id() {
    let stand = Stand::start(1, 100_000).await;
    let mut body = chat("p", "a long story", 20_000);
    body["rid"] = json!("story-1");
    let client = stand.client.clone();
    let asking = tokio::spawn(async move { client.post(CHAT, &body).await });
    let running =
        |m: &treadle_tests::support::metrics::Metrics| m.count("treadle_steps_running") == 1;
    stand.client.until("running", running).await;
    let told = stand
        .client
        .post("/abort_request", &json!({"rid": "story-1"}))
        .await;
    assert_eq!(told.ok()["aborted_here"], 1);
    let answer = asking.await.expect("an answer");
    // Either treadle's own word or the engine's, which was told too.
    if !answer.status.is_success() {
        answer.refused(409, "program_released");
    }
    stand.until_engines_idle().await;
    assert_eq!(
        stand.engines_finished().await,
        0,
        "an answer that nobody wants"
    );
    let told = stand
        .client
        .post("/abort_request", &json!({"rid": "unknown"}))
        .await;
    assert_eq!(told.ok()["aborted_here"], 0);
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_withdrawn_by_its_id() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let stand = Stand::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    let mut body = treadle_tests::support::stand::streamed(chat("p", "x", 100));
    body["rid"] = json!("story-2");
    let client = stand.client.clone();
    let asking = tokio::spawn(async move { client.stream(CHAT, &body).await });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(b"data: {\"choices\":[]}\n\n").await;
    let events = asking.await.expect("the head of an answer");
    let client = stand.client.clone();
    let telling = tokio::spawn(async move {
        client
            .post("/abort_request", &json!({"rid": "story-2"}))
            .await
            .ok()
    });
    // The engine itself is told too; this one does not care.
    let told = engine.request().await;
    assert!(
        told.line.starts_with("POST /abort_request"),
        "{}",
        told.line
    );
    told.answer("200 OK", "application/json", "{}").await;
    assert_eq!(telling.await.expect("an answer")["aborted_here"], 1);
    request.until_given_up().await;
    let ended = events.finish().await;
    assert!(ended.broken && !ended.is_done());
    let last = ended.objects().pop().expect("an error event");
    assert_eq!(last["error"]["code"], "program_released", "{last}");
    stand.finish().await;
}
