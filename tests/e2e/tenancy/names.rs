//! Names that clients may not send, at every entry point: they are refused without any effect.

use http::Method;
use serde_json::{Value, json};
use treadle_config::Keep;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{CHAT, Fixture, chat};

use super::{client_of, make_tenant};

/// The program of tenant `acme` by the name that it has inside the daemon.
const FORGED: &str = "\u{1f}acme\u{1f}p";
const IN_PATH: &str = "%1Facme%1Fp";
const JSON: (&str, &str) = ("content-type", "application/json");

/// Checks that the answer is a refusal that names the field.
fn refused(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 400, "{what}: {:?}", answer.body);
    let message = answer.refused(400, "invalid_field");
    assert!(message.contains("; send a name "), "{what}: {message}");
    assert!(answer.json()["error"]["param"].is_string(), "{what}");
}

/// The recorded programs of `acme`, and its bindings.
async fn record_of(acme: &Client) -> Value {
    let events = acme.get("/api/v1/events?limit=1000").await.ok();
    let events = events["events"].as_array().expect("a list").iter();
    let own: Vec<_> = events.filter(|event| !event["program"].is_null()).collect();
    json!([own, acme.get("/api/v1/bindings").await.ok()])
}

/// Sends a forged name in every path parameter and every field of a body.
async fn forge_everywhere(client: &Client, step: &Value) {
    for path in [
        format!("/api/v1/programs/{IN_PATH}/steps/{step}/bodies"),
        format!("/api/v1/programs/{IN_PATH}"),
        format!("/api/v1/programs/{IN_PATH}/steps"),
        format!("/api/v1/programs/{IN_PATH}/decisions"),
        format!("/profiles/{IN_PATH}"),
        format!("/api/v1/events?program={IN_PATH}"),
        format!("/api/v1/programs?job={IN_PATH}"),
    ] {
        refused(&client.get(&path).await, &path);
    }
    for path in [
        format!("/api/v1/programs/{IN_PATH}"),
        format!("/api/v1/jobs/{IN_PATH}"),
        format!("/api/v1/bindings?world=eviction&job={IN_PATH}"),
    ] {
        refused(&client.delete(&path).await, &path);
    }
    let started = json!({"program_id": FORGED, "action_id": "a", "event": "started", "tool": "sh"});
    let action = |field: &str| {
        let mut body = started.clone();
        body["program_id"] = "mine".into();
        body[field] = FORGED.into();
        body
    };
    for (path, body) in [
        ("/api/v1/actions", started.clone()),
        ("/api/v1/actions", action("action_id")),
        ("/api/v1/actions", action("tool")),
        ("/programs/release", json!({"program_id": FORGED})),
        (
            "/api/v1/ask",
            json!({"world": "reward", "function": "x", "columns": {}, "job": FORGED}),
        ),
        (
            "/api/v1/bindings/rollback",
            json!({"world": "eviction", "job": FORGED}),
        ),
        (
            "/api/v1/what-if/runs",
            json!({"sets": ["sticky"], "window": {"job": FORGED}}),
        ),
    ] {
        refused(&client.post(path, &body).await, &format!("{path} {body}"));
    }
    let session = format!("/finish_session?session_id={IN_PATH}");
    refused(&client.post(&session, &json!({})).await, &session);
    let bind = json!({"world": "eviction", "policy": "native", "job": FORGED}).to_string();
    let bound = client
        .send(Method::PUT, "/api/v1/bindings", &[], bind)
        .await;
    refused(&bound, "a binding");
}

/// Generation requests: the name in the path, in each header, in the body.
async fn generate_with(client: &Client, bad: &str) {
    let body = chat("mine", "hello", 4).to_string();
    let long = "j".repeat(9_000);
    for name in [
        "x-dynamo-session-id",
        "x-session-id",
        "x-smg-routing-key",
        "x-program-id",
        "x-treadle-job",
        "x-fairness-id",
    ] {
        for value in ["a\tb", &long] {
            let headers = [JSON, (name, value)];
            let answer = client.send(Method::POST, CHAT, &headers, body.clone());
            refused(&answer.await, name);
        }
    }
    let path = format!("/sessions/{IN_PATH}{CHAT}");
    let answer = client.send(Method::POST, &path, &[JSON], body.clone());
    refused(&answer.await, &path);
    let mut with_id = chat("mine", "hello", 4);
    with_id["rid"] = bad.into();
    for body in [chat(bad, "hello", 4), chat(&long, "hello", 4), with_id] {
        refused(&client.post(CHAT, &body).await, "a body");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_name_reads_and_changes_nothing_of_another_tenant() {
    let fixture = Fixture::tuned(1, 100_000, |config| config.payloads.keep = Keep::All).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    acme.post(CHAT, &chat("p", "a secret", 4)).await.ok();
    let steps = acme.get("/api/v1/programs/p/steps").await.ok();
    let step = &steps["steps"][0]["step"];
    let bodies = format!("/api/v1/programs/p/steps/{step}/bodies");
    let began = std::time::Instant::now();
    while acme.get(&bodies).await.ok()["bodies"] == json!([]) {
        assert!(began.elapsed().as_secs() < 10, "bodies are kept");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let before = record_of(&acme).await;
    // A caller of the default tenant that, as admin of the whole daemon, has all permissions.
    forge_everywhere(&fixture.client, step).await;
    generate_with(&fixture.client, FORGED).await;
    assert_eq!(record_of(&acme).await, before);
    let runs = fixture.client.get("/api/v1/what-if/runs").await.ok();
    assert_eq!(runs["runs"], json!([]));
    let released = acme.delete("/api/v1/programs/p").await.ok();
    assert_eq!(released["released"], true);
    fixture.finish_all(&[&acme]).await;
}
