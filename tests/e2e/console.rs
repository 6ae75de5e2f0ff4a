//! Serving the console, and the data that it reads.

use http::Method;
use serde_json::{Value, json};
use treadle_config::{AnonymousScope, Role};
use treadle_tests::support::cluster::{Cluster, until_scheduled};
use treadle_tests::support::fixture::{CHAT, Fixture, chat};

use crate::cluster::DAEMON;
use crate::offload::stage::until;

const SESSION: &str = "/api/v1/session";

#[tokio::test(flavor = "multi_thread")]
async fn every_daemon_serves_the_console_and_its_session() {
    let mut cluster = Cluster::new(DAEMON, |_, _| ());
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    for client in [&scheduler.client, &gateway.client] {
        let page = client.without_token().get("/console/workers").await;
        if treadle_console::is_built() {
            assert_eq!(page.status, 200);
            let policy = page.headers["content-security-policy"].to_str();
            assert!(policy.is_ok_and(|policy| policy.contains("default-src 'none'")));
        } else {
            page.refused(404, "unknown_path");
        }
        client.get("/consoles").await.refused(404, "unknown_path");
        // A browser that sends only `Origin`.
        let token = json!({"token": client.token().expect("it has one")});
        let browser = client.without_token();
        let begun = browser.post(SESSION, &token).await;
        let cookie = begun.headers["set-cookie"].to_str().expect("text");
        let cookie = cookie.split(';').next().expect("a pair").to_owned();
        let token_of_its_own = json!({"name": "made here", "scope": "viewer"}).to_string();
        let make = async |origin: &str| {
            let headers = [("cookie", cookie.as_str()), ("origin", origin)];
            let path = "/api/v1/tokens";
            browser
                .send(Method::POST, path, &headers, token_of_its_own.clone())
                .await
        };
        assert_eq!(make(client.base()).await.status, 201);
        let elsewhere = make("http://elsewhere.example").await;
        elsewhere.refused(401, "token_missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_sees_what_its_token_does_where_nothing_is_needed() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.auth.anonymous_scope = AnonymousScope::None;
    })
    .await;
    let browser = fixture.client.without_token();
    let token = json!({"token": fixture.client.token().expect("it has one")});
    let begun = browser.post(SESSION, &token).await;
    let cookie = begun.headers["set-cookie"].to_str().expect("text");
    let headers = [("cookie", cookie.split(';').next().expect("a pair"))];
    let health = browser.send(Method::GET, "/health", &headers, "").await;
    assert!(health.ok()["mode"].is_string(), "{:?}", health.body);
    assert_eq!(browser.get("/health").await.ok()["mode"], Value::Null);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_kept_and_programs_found_by_a_part_of_their_names() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        // Samples come as much more often.
        config.scheduler.time_scale = 10.0;
    })
    .await;
    let client = &fixture.client;
    for program in ["Alpha-1", "beta-1"] {
        client.post(CHAT, &chat(program, "hi", 4)).await.ok();
    }
    let points = async || client.get("/api/v1/history").await.ok()["points"].clone();
    let has_two = async || {
        let points = points().await;
        let last = points.as_array().and_then(|points| points.last());
        last.is_some_and(|point| point["values"]["treadle_programs"] == 2.0)
    };
    until("a sample with both programs", has_two).await;
    client
        .get("/api/v1/history?points=many")
        .await
        .refused(400, "invalid_field");

    let found = client.get("/api/v1/programs?search=ALPHA").await.ok();
    let names: Vec<&Value> = found["programs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|program| &program["program_id"])
        .collect();
    assert_eq!(names, ["Alpha-1"]);
    let long = format!("/api/v1/programs?search={}", "x".repeat(257));
    client.get(&long).await.refused(400, "invalid_field");
    fixture.finish().await;
}
