//! Limits of a tenant, and the behaviour at each.

use http::Method;
use serde_json::json;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::fixture::{plain_endpoint, streamed};
use treadle_tests::support::policy::lru_eviction;
use treadle_tests::support::raw_engine::RawEngine;

use super::{client_of, make_tenant};

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_rate_get_a_retry_time() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({"requests_per_s": 2})).await;
    let acme = client_of(&fixture, "acme", "viewer").await;
    let refused = loop {
        let answer = acme.get("/api/v1/whoami").await;
        if !answer.status.is_success() {
            break answer;
        }
    };
    refused.refused(429, "rate_limited");
    assert_eq!(refused.headers["retry-after"], "1");
    // Neither other requests nor its own health check wait for it.
    fixture.client.get("/api/v1/whoami").await.ok();
    acme.get("/health").await.ok();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_live_programs_have_their_bounds() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(
        &fixture,
        "acme",
        json!({"body_bytes": 2_000, "live_programs": 2}),
    )
    .await;
    let acme = client_of(&fixture, "acme", "operator").await;
    let long = "x".repeat(3_000);
    let answer = acme.post(CHAT, &chat("p", &long, 4)).await;
    answer.refused(413, "body_too_large");
    let answer = acme
        .post("/programs/release", &json!({"program_id": long}))
        .await;
    answer.refused(413, "body_too_large");
    fixture.client.post(CHAT, &chat("p", &long, 4)).await.ok();

    for program in ["a", "b", "a"] {
        acme.post(CHAT, &chat(program, "hello", 4)).await.ok();
    }
    let answer = acme.post(CHAT, &chat("c", "hello", 4)).await;
    let message = answer.refused(429, "tenant_programs_full");
    assert!(message.contains("2 live programs"), "{message}");
    for program in ["c", "d", "e"] {
        fixture
            .client
            .post(CHAT, &chat(program, "hello", 4))
            .await
            .ok();
    }
    acme.delete("/api/v1/programs/a").await.ok();
    acme.post(CHAT, &chat("c", "hello", 4)).await.ok();

    let body = json!({"limits": {"live_programs": 3}}).to_string();
    let own = client_of(&fixture, "acme", "admin").await;
    let loosened = own
        .send(Method::PUT, "/api/v1/tenants/acme", &[], body.clone())
        .await;
    loosened.refused(403, "forbidden");
    let path = "/api/v1/tenants/acme";
    fixture.client.send(Method::PUT, path, &[], body).await.ok();
    acme.post(CHAT, &chat("d", "hello", 4)).await.ok();
    let tighter = json!({"limits": {"live_programs": 1}}).to_string();
    let answer = own.send(Method::PUT, path, &[], tighter).await.ok();
    assert_eq!(answer["limits"]["live_programs"], 1);
    let nonsense = json!({"limits": {"live_program": 1}}).to_string();
    let answer = own.send(Method::PUT, path, &[], nonsense).await;
    answer.refused(400, "invalid_field");
    fixture.finish_all(&[&acme]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_tenant_counts_its_own_programs_alone() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    for program in ["a", "b", "c"] {
        acme.post(CHAT, &chat(program, "hello", 4)).await.ok();
    }
    let body = json!({"limits": {"live_programs": 1}}).to_string();
    let path = "/api/v1/tenants/default";
    fixture.client.send(Method::PUT, path, &[], body).await.ok();
    fixture.client.post(CHAT, &chat("a", "hello", 4)).await.ok();
    let answer = fixture.client.post(CHAT, &chat("b", "hello", 4)).await;
    answer.refused(429, "tenant_programs_full");
    fixture.finish_all(&[&acme]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_are_counted_weighed_and_may_have_to_be_signed() {
    let fixture = Fixture::start(1, 100_000).await;
    for (name, limits) in [
        ("few", json!({"plugins": 0})),
        ("small", json!({"plugin_bytes": 1_000})),
        ("strict", json!({"unsigned_plugins": false})),
    ] {
        make_tenant(&fixture, name, limits).await;
        let client = client_of(&fixture, name, "operator").await;
        let answer = client.send(Method::POST, "/api/v1/plugins", &[], lru_eviction());
        let message = answer.await.refused(403, "tenant_limit");
        assert!(message.contains(&format!("`{name}`")), "{message}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_limits_tenants_have_equal_shares() {
    let fixture = Fixture::tuned(1, 100_000, |config| config.scheduler.programs_max = 4).await;
    let client = &fixture.client;
    for program in ["a", "b", "c"] {
        client.post(CHAT, &chat(program, "hello", 4)).await.ok();
    }
    client.delete("/api/v1/programs/c").await.ok();
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "operator").await;
    for program in ["a", "b"] {
        acme.post(CHAT, &chat(program, "hello", 4)).await.ok();
    }
    acme.delete("/api/v1/programs/b").await.ok();
    for program in ["a", "b"] {
        client.post(CHAT, &chat(program, "hello", 4)).await.ok();
    }
    let answer = client.post(CHAT, &chat("c", "hello", 4)).await;
    let message = answer.refused(429, "tenant_programs_full");
    assert!(message.contains("2 live programs"), "{message}");
    // The share that it does not use is still there for the other.
    acme.post(CHAT, &chat("b", "hello", 4)).await.ok();
    acme.delete("/api/v1/programs/b").await.ok();
    let path = "/api/v1/tenants/default";
    let body = json!({"limits": {"live_programs": 3}}).to_string();
    client.send(Method::PUT, path, &[], body).await.ok();
    client.post(CHAT, &chat("c", "hello", 4)).await.ok();
    fixture.finish_all(&[&acme]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_bodies_of_one_tenant_leave_room_for_the_others() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 1_000_000)];
        config.scheduler.queue_len_max = 4;
        config.server.bodies_bytes_max = 10_000;
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "operator").await;
    let ask = |client: &Client, program: &'static str, bytes: usize| {
        let (client, body) = (client.clone(), chat(program, &"x".repeat(bytes), 4));
        tokio::spawn(async move { client.post(CHAT, &body).await.ok() })
    };
    let first = [ask(&acme, "a", 100), ask(&acme, "b", 100)];
    let held = [engine.request().await, engine.request().await];
    let answer = acme.post(CHAT, &chat("c", "hello", 4)).await;
    let message = answer.refused(429, "tenant_busy");
    assert!(message.contains("2 steps"), "{message}");
    let other = ask(&fixture.client, "a", 100);
    engine.request().await.answer_chat().await;
    other.await.expect("an answer");
    for request in held {
        request.answer_chat().await;
    }
    for asking in first {
        asking.await.expect("an answer");
    }

    // A stream counts until its end.
    let (client, body) = (acme.clone(), streamed(chat("a", "x", 4)));
    let streaming = tokio::spawn(async move { client.stream(CHAT, &body).await });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(b"data: {\"choices\":[]}\n\n").await;
    let events = streaming.await.expect("the head of an answer");
    let first = ask(&acme, "b", 100);
    let held = engine.request().await;
    let answer = acme.post(CHAT, &chat("c", "hello", 4)).await;
    answer.refused(429, "tenant_busy");
    held.answer_chat().await;
    first.await.expect("an answer");
    drop(events);
    request.until_given_up().await;

    let large = ask(&acme, "a", 4_000);
    let held = engine.request().await;
    let answer = acme.post(CHAT, &chat("b", &"x".repeat(2_000), 4)).await;
    let message = answer.refused(429, "tenant_busy");
    assert!(message.contains("`bodies_bytes`"), "{message}");
    let other = ask(&fixture.client, "b", 4_000);
    engine.request().await.answer_chat().await;
    other.await.expect("an answer");
    held.answer_chat().await;
    large.await.expect("an answer");
    fixture.finish_all(&[&acme]).await;
}
