//! Requests that are invalid, too long, too slow or cancelled.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, MODEL, chat, plain_endpoint};
use treadle_tests::support::raw_client::RawClient;
use treadle_tests::support::raw_engine::RawEngine;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_body_is_refused_by_name() {
    let fixture = Fixture::start(1, 100_000).await;
    let post = async |body: &str| {
        let client = fixture.client.clone();
        client.send(Method::POST, CHAT, &[], body.to_owned()).await
    };
    post("{\"model\": \"m\", ")
        .await
        .refused(400, "invalid_json");
    post("\u{fffd}").await.refused(400, "invalid_json");
    post("").await.refused(400, "invalid_json");
    post("[]").await.refused(400, "body_not_object");
    post("7").await.refused(400, "body_not_object");
    let answer = post(r#"{"model":"m"}"#).await;
    answer.refused(400, "missing_field");
    assert_eq!(answer.json()["error"]["param"], "messages");
    let answer = post(r#"{"model":"m","messages":[],"stream":"yes"}"#).await;
    answer.refused(400, "invalid_field");
    assert_eq!(answer.json()["error"]["param"], "stream");
    assert_eq!(fixture.client.metrics().await.count("treadle_programs"), 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_and_a_wrong_method_are_json_errors() {
    let fixture = Fixture::start(1, 100_000).await;
    let unknown = fixture.client.get("/v1/nothing?x=1").await;
    let message = unknown.refused(404, "unknown_path");
    assert!(message.contains("/v1/nothing"), "{message}");
    for (method, path) in [
        (Method::GET, CHAT),
        (Method::PUT, "/programs/release"),
        (Method::DELETE, "/workers"),
        (Method::GET, "/sessions/s/v1/chat/completions"),
    ] {
        let answer = fixture.client.send(method, path, &[], "").await;
        let message = answer.refused(405, "method_not_allowed");
        assert!(message.contains(path), "{message}");
    }
    fixture.finish().await;
}

/// The bound on bodies in the tests below.
const BODY_BYTES_MAX: usize = 4 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_the_limit_passes_and_a_longer_one_does_not() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 10_000_000)];
        config.server.body_bytes_max = BODY_BYTES_MAX as u64;
    })
    .await;
    let frame = chat("p", "", 1).to_string();
    let filler = "x".repeat(BODY_BYTES_MAX - frame.len());
    let body = chat("p", &filler, 1).to_string();
    assert_eq!(body.len(), BODY_BYTES_MAX);
    let sent = body.clone();
    let client = fixture.client.clone();
    let passing =
        tokio::spawn(async move { client.send(Method::POST, CHAT, &[], sent).await.ok() });
    let request = engine.request().await;
    assert!(request.body == body.as_bytes(), "the body was changed");
    request.answer_chat().await;
    passing.await.expect("an answer");

    let longer = format!("{body} ");
    let answer = fixture.client.send(Method::POST, CHAT, &[], longer).await;
    let message = answer.refused(413, "body_too_large");
    assert!(message.contains("server.body_bytes_max"), "{message}");
    // Twelve times the limit: refused before it is read.
    let flood = vec![b' '; 50_000_000];
    let refused = fixture.client.open(Method::POST, CHAT, &[], flood).await;
    // The daemon may close the connection while the client is still sending.
    assert!(refused.is_err() || refused.is_ok_and(|answer| answer.status() == 413));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_for_no_engine_has_a_short_body() {
    let fixture = Fixture::start(0, 0).await;
    let long = json!({"program_id": "x".repeat(2 << 20)});
    for path in ["/programs/release", "/workers"] {
        let answer = fixture.client.post(path, &long).await;
        let message = answer.refused(413, "body_too_large");
        assert!(
            message.contains("accepts at most 1048576 bytes"),
            "{message}"
        );
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_only_announced_is_refused_at_once() {
    let fixture = Fixture::start(1, 100_000).await;
    let mut raw = RawClient::connect(&fixture.daemon.url()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000000000\r\n\r\n");
    raw.write(head).await.expect("it is sent");
    let answer = raw.until_text("body_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A chunked body has no announced length: its bytes are counted.
    let fixture_url = fixture.daemon.url();
    let mut raw = RawClient::connect(&fixture_url).await;
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
    fixture.finish().await;
}

/// A daemon with a client timeout of a second.
async fn impatient() -> Fixture {
    Fixture::tuned(1, 100_000, |config| {
        config.server.header_read_timeout_s = 1;
        config.server.body_read_timeout_s = 1;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dribbles_its_headers_is_cut_off() {
    let fixture = impatient().await;
    let mut raw = RawClient::connect(&fixture.daemon.url()).await;
    let began = Instant::now();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nx-slow: ");
    for byte in head.bytes().chain(std::iter::repeat(b'a')) {
        // It sends often enough for any timeout between two bytes.
        if raw.write([byte]).await.is_err() {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "it is never cut off");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    raw.until_closed().await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_is_given_up() {
    let fixture = impatient().await;
    let mut raw = RawClient::connect(&fixture.daemon.url()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{\"mod");
    raw.write(head).await.expect("it is sent");
    let answer = raw.until_closed().await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("client_timeout"), "{answer}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_can_never_fit_is_refused_at_once() {
    let fixture = Fixture::start(2, 4_096).await;
    let ids: Vec<u32> = (0..5_000).collect();
    let body = json!({"model": MODEL, "prompt": ids, "max_tokens": 1, "program_id": "long"});
    let answer = fixture.client.post(COMPLETIONS, &body).await;
    let message = answer.refused(400, "context_too_long");
    assert!(
        message.contains("5000") && message.contains("4096"),
        "{message}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_withdrawn_by_its_id() {
    let fixture = Fixture::start(1, 100_000).await;
    let mut body = chat("p", "a long story", 20_000);
    body["rid"] = json!("story-1");
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move { client.post(CHAT, &body).await });
    let running =
        |m: &treadle_tests::support::metrics::Metrics| m.count("treadle_steps_running") == 1;
    fixture.client.until("running", running).await;
    let told = fixture
        .client
        .post("/abort_request", &json!({"rid": "story-1"}))
        .await;
    assert_eq!(told.ok()["aborted_here"], 1);
    let answer = asking.await.expect("an answer");
    // Either treadle's own message or the engine's, which was notified too.
    if !answer.status.is_success() {
        answer.refused(409, "program_released");
    }
    fixture.until_engines_idle().await;
    assert_eq!(
        fixture.engines_finished().await,
        0,
        "an answer that nobody wants"
    );
    let told = fixture
        .client
        .post("/abort_request", &json!({"rid": "unknown"}))
        .await;
    assert_eq!(told.ok()["aborted_here"], 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_withdrawn_by_its_id() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    let mut body = treadle_tests::support::fixture::streamed(chat("p", "x", 100));
    body["rid"] = json!("story-2");
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move { client.stream(CHAT, &body).await });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(b"data: {\"choices\":[]}\n\n").await;
    let events = asking.await.expect("the head of an answer");
    let client = fixture.client.clone();
    let telling = tokio::spawn(async move {
        client
            .post("/abort_request", &json!({"rid": "story-2"}))
            .await
            .ok()
    });
    // The engine itself is notified too; this one ignores it.
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
    fixture.finish().await;
}
