//! What a tenant may use, and what happens at each bound.

use http::Method;
use serde_json::json;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::policy::lru_eviction;

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
    // No other request waits for it, and neither does its own health check.
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
