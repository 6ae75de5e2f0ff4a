//! Clients that hold shared resources: silent, slow, numerous, or not reading.

use std::time::{Duration, Instant};

use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_client::RawClient;
use treadle_tests::support::raw_engine::RawEngine;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_request_is_closed() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.server.first_head_timeout_s = 1;
    })
    .await;
    let mut silent = RawClient::connect(&fixture.daemon.url()).await;
    assert_eq!(silent.until_closed().await, "");
    let mut half = RawClient::connect(&fixture.daemon.url()).await;
    half.write("GET /health HTTP/1.1\r\n").await.expect("sent");
    half.until_closed().await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_in_is_given_up() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.server.body_read_timeout_s = 1;
    })
    .await;
    let mut raw = RawClient::connect(&fixture.daemon.url()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n");
    raw.write(head).await.expect("it is sent");
    let began = Instant::now();
    // No pause is as long as one may be.
    while raw.write("x").await.is_ok() {
        assert!(began.elapsed() < TIMEOUT, "it is never cut off");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_is_given_up_on_every_path() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.server.body_read_timeout_s = 1;
    })
    .await;
    for path in ["/workers", "/programs/release", "/tokenize"] {
        let mut raw = RawClient::connect(&fixture.daemon.url()).await;
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
        raw.write(head).await.expect("it is sent");
        let answer = raw.until_text("client_timeout").await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_loses_its_stream() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
        config.server.write_pause_s_max = 1;
    })
    .await;
    let body = streamed(chat("p", "x", 100)).to_string();
    let length = body.len();
    let mut raw = RawClient::connect(&fixture.daemon.url()).await;
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    raw.write(request).await.expect("it is sent");
    let mut request = engine.request().await;
    request.begin_events().await;
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(60_000)
    );
    // The engine's request ends, though its client is still connected.
    request.flood(event.as_bytes()).await;
    fixture
        .client
        .until("the step is over", |m| {
            m.count("treadle_steps_running") == 0
        })
        .await;
    drop(raw);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_all_requests_together_are_bounded() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
        config.server.bodies_bytes_max = 3_000;
    })
    .await;
    let body = chat("p", &"x".repeat(2_000), 4);
    let (client, held) = (fixture.client.clone(), body.clone());
    let holding = tokio::spawn(async move { client.post(CHAT, &held).await.ok() });
    let request = engine.request().await;
    let refused = fixture.client.post(CHAT, &body).await;
    let message = refused.refused(503, "overloaded");
    assert!(message.contains("server.bodies_bytes_max"), "{message}");
    assert_eq!(refused.headers["retry-after"], "1");
    request.answer_chat().await;
    holding.await.expect("an answer");
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move { client.post(CHAT, &body).await.ok() });
    engine.request().await.answer_chat().await;
    asking.await.expect("an answer");
    fixture.finish().await;
}
