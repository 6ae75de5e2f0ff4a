//! The lifecycle of tokens.

use std::os::unix::fs::PermissionsExt;

use http::Method;
use serde_json::{Value, json};
use treadle_server::start::Daemon;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, config, plain_endpoint};
use treadle_tests::support::raw_engine::RawEngine;

use super::{client_of, make_tenant};

async fn status_of(client: &Client) -> u16 {
    client.get("/api/v1/tokens").await.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_rotated_revoked_and_each_is_on_record() {
    let fixture = Fixture::start(1, 100_000).await;
    let body = json!({"name": "ci", "scope": "admin"});
    let headers = [("x-request-id", "my-request")];
    let made = fixture
        .client
        .send(Method::POST, "/api/v1/tokens", &headers, body.to_string())
        .await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let (id, secret) = (
        made["id"].as_str().unwrap(),
        made["secret"].as_str().unwrap(),
    );
    let first = fixture.client.with_token(secret);
    assert_eq!(status_of(&first).await, 200);

    let path = format!("/api/v1/tokens/{id}/rotate");
    let rotated = first.post(&path, &json!({})).await.ok();
    let second = fixture
        .client
        .with_token(rotated["secret"].as_str().unwrap());
    assert_eq!(status_of(&first).await, 200, "the old secret has its grace");
    assert_eq!(status_of(&second).await, 200);
    assert!(rotated["previous_until_us"].is_u64());

    let listed = fixture.client.get("/api/v1/tokens").await;
    let text = String::from_utf8_lossy(&listed.body).into_owned();
    assert!(!text.contains("tr_") && !text.contains("hash"), "{text}");
    let entry = listed.json()["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["id"] == id)
        .cloned();
    assert!(entry.expect("it is listed")["last_used_at_us"].is_u64());

    fixture
        .client
        .delete(&format!("/api/v1/tokens/{id}"))
        .await
        .ok();
    for client in [&first, &second] {
        client
            .get("/api/v1/tokens")
            .await
            .refused(401, "token_invalid");
    }
    let changes = fixture
        .client
        .get(&format!("/api/v1/audit?target={id}"))
        .await
        .ok();
    let changes = changes["changes"].as_array().unwrap();
    let actions: Vec<&Value> = changes.iter().map(|change| &change["action"]).collect();
    assert_eq!(actions, ["token.revoked", "token.rotated", "token.created"]);
    assert_eq!(changes[2]["before"], Value::Null);
    assert_eq!(changes[2]["after"]["name"], "ci");
    assert_eq!(changes[2]["request_id"], "my-request");
    assert!(
        changes[2]["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    assert!(changes[1]["who"].as_str().unwrap().contains(id));
    assert_eq!(changes[0]["before"]["revoked_at_us"], Value::Null);
    assert!(changes[0]["after"]["revoked_at_us"].is_u64());
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grace_of_a_rotation_can_be_none() {
    let fixture = Fixture::tuned(1, 100_000, |config| config.auth.rotation_grace_s = 0).await;
    let first = client_of(&fixture, "default", "admin").await;
    let listed = first.get("/api/v1/tokens").await.ok();
    let id = listed["tokens"][0]["id"].as_str().unwrap();
    first
        .post(&format!("/api/v1/tokens/{id}/rotate"), &json!({}))
        .await
        .ok();
    first
        .get("/api/v1/tokens")
        .await
        .refused(401, "token_expired");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_paged_by_a_cursor() {
    let fixture = Fixture::start(1, 100_000).await;
    for _ in 0..5 {
        client_of(&fixture, "default", "viewer").await;
    }
    let (mut path, mut seen) = ("/api/v1/audit?limit=2".to_owned(), Vec::new());
    loop {
        let page = fixture.client.get(&path).await.ok();
        let ids = page["changes"].as_array().unwrap().iter();
        seen.extend(ids.map(|change| change["id"].as_u64().unwrap()));
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        path = format!("/api/v1/audit?limit=2&before={next}");
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_engine_sees_a_token() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let root = fixture.client.clone();
    for own in ["authorization", "x-api-key"] {
        let secret = fixture.daemon.first_token.as_ref().unwrap().secret.clone();
        let client = root.without_token();
        let asking = tokio::spawn(async move {
            let value = if own == "x-api-key" {
                secret
            } else {
                format!("Bearer {secret}")
            };
            let headers = [
                ("content-type", "application/json"),
                (own, value.as_str()),
                ("x-treadle-tenant", "acme"),
            ];
            let body = chat("p", "x", 5).to_string();
            client.send(Method::POST, CHAT, &headers, body).await.ok();
        });
        let request = engine.request().await;
        let headers = request.headers.join("\n");
        for gone in ["tr_", "authorization", "x-api-key", "x-treadle-tenant"] {
            assert!(!headers.contains(gone), "{headers}");
        }
        request.answer_chat().await;
        asking.await.expect("an answer");
    }
    let live = root.get("/programs").await.ok();
    assert_eq!(live, json!({}), "the program is the chosen tenant's");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dummy_keys_count_as_none() {
    let fixture = Fixture::start(1, 100_000).await;
    let nobody = fixture.client.without_token();
    for key in ["EMPTY", "sk-1234", "dummy", "none", "eyJh.eyJi.c"] {
        let headers = [("authorization", format!("Bearer {key}"))];
        let headers = headers
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let body = chat("p", "hello", 4).to_string();
        nobody.send(Method::POST, CHAT, &headers, body).await.ok();
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_token_is_made_once_and_left_for_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.store.path = folder
        .path()
        .join("treadle.db")
        .to_string_lossy()
        .into_owned();
    let file = folder.path().join("admin-token");

    let daemon = Daemon::start(&config).await.expect("it starts");
    let first = daemon.first_token.clone().expect("a new store has none");
    assert_eq!(first.file.as_deref(), Some(file.as_path()));
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first.secret);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    daemon.stop().await;

    let daemon = Daemon::start(&config).await.expect("it starts again");
    assert!(daemon.first_token.is_none());
    let client = Client::new(daemon.url()).with_token(&first.secret);
    let tokens = client.get("/api/v1/tokens").await.ok();
    let id = tokens["tokens"][0]["id"].as_str().unwrap().to_owned();
    client.delete(&format!("/api/v1/tokens/{id}")).await.ok();
    assert_eq!(status_of(&client).await, 401);
    daemon.stop().await;

    // An admin who is locked out restarts the daemon.
    let daemon = Daemon::start(&config)
        .await
        .expect("it starts a third time");
    let again = daemon.first_token.clone().expect("no good token is left");
    let client = Client::new(daemon.url()).with_token(&again.secret);
    assert_eq!(status_of(&client).await, 200);
    let database = std::fs::read(folder.path().join("treadle.db")).unwrap();
    for secret in [&first.secret, &again.secret] {
        let is_there = database
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!is_there, "a secret is in the store");
    }
    daemon.stop().await;
}
