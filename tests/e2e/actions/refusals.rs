//! An action that can't run is refused with the name of the field, and has no effect.

use super::{ACTIONS, fixture, shell, with};
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

async fn refused(client: &Client, action: Value, status: u16, code: &str, param: &str) {
    let answer = client.post(ACTIONS, &action).await;
    let message = answer.refused(status, code);
    let error = answer.json();
    assert_eq!(error["error"]["param"], param, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 2, |_| {}).await;
    let client = &fixture.client;
    let before = client.get("/api/v1/events").await.ok()["events"].clone();
    let cost = |cost: Value| with(shell("true"), &json!({"cost": cost}));
    let run = |run: Value| json!({"kind": "x", "run": run});
    let process = |command: Value| run(json!({"process": {"command": command}}));
    let stdin = json!({"process": {"command": ["cat"], "stdin": "x".repeat((1 << 20) + 1)}});
    for (action, param) in [
        (cost(json!({"cpu": -1})), "cost.cpu"),
        (cost(json!({"cpu": 0})), "cost.cpu"),
        (cost(json!({"cpu": 3})), "cost.cpu"),
        (cost(json!({"cpu": {"min": 2, "max": 1}})), "cost.cpu"),
        (cost(json!({"fuel": 1})), "cost.fuel"),
        (cost(json!({"gpu": 1})), "cost.gpu"),
        (cost(json!({"memory": 1_u64 << 40})), "cost.memory"),
        (run(json!({"process": {}})), "run.process.command"),
        (process(json!([])), "run.process.command"),
        (run(json!({})), "run.body"),
        (run(json!({"magic": 1})), "run.magic"),
        (run(stdin), "run.process.stdin"),
        (run(json!({"http": {"url": "ftp://h"}})), "run.http.url"),
        (
            run(json!({"service": {"name": "judge", "path": "/"}})),
            "cost.gpu",
        ),
        (with(shell("true"), &json!({"run_s_max": 0})), "run_s_max"),
        (
            with(shell("true"), &json!({"durations_us": [1, 2]})),
            "durations_us",
        ),
        (with(shell("true"), &json!({"kind": ""})), "kind"),
        // Actions don't wait for one another, so there is no cycle of waits.
        (with(shell("true"), &json!({"after": [1]})), "after"),
        (cost(json!({"gpu_memory": 1})), "cost.gpu_memory"),
    ] {
        let answer = client.post(ACTIONS, &action).await;
        let error = answer.json();
        let message = error["error"]["message"].to_string();
        assert_eq!(answer.status, 400, "{message}");
        assert_eq!(error["error"]["param"], param, "{message}");
    }
    let none = with(shell("true"), &json!({"program_id": "nobody"}));
    refused(client, none, 404, "program_unknown", "program_id").await;
    let large = json!({"process": {"command": ["cat"], "stdin": "x".repeat(100 << 20)}});
    let answer = client.post(ACTIONS, &run(large)).await;
    answer.refused(413, "body_too_large");
    client
        .get("/api/v1/actions/7")
        .await
        .refused(404, "action_unknown");
    let after = client.get("/api/v1/events").await.ok()["events"].clone();
    assert_eq!(after, before);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_where_actions_are_off() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let message = client
        .post(ACTIONS, &shell("true"))
        .await
        .refused(409, "actions_disabled");
    assert!(message.contains("actions.enabled = true"), "{message}");
    let resources = client.get("/api/v1/resources").await.ok();
    assert_eq!(resources["enabled"], false);
    fixture.finish().await;
}
