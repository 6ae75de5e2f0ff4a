//! Actions that treadle runs, over REST: real processes below a real supervisor.

mod crashes;
mod messages;
mod refusals;
mod services;

use serde_json::{Value, json};
use std::path::Path;
use treadle_config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::process::binary;

/// Runs a script by `treadle actions run -- sh -c`; returns the exit code.
fn command_line(client: &Client, script: &str) -> Option<i32> {
    let token = client.token().expect("the owner's");
    let place = ["actions", "--url", client.base(), "--token", token];
    let run = ["run", "--", "sh", "-c", script];
    treadle(&[&place[..], &run[..]].concat()).code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_ends_as_the_command_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 2, |_| {}).await;
    assert_eq!(command_line(&fixture.client, "true"), Some(0));
    assert_eq!(command_line(&fixture.client, "exit 3"), Some(3));
    assert_eq!(command_line(&fixture.client, "kill -9 $$"), Some(137));
    fixture.finish().await;
}

const ACTIONS: &str = "/api/v1/actions";

/// Enables actions with the given number of cores and a folder below `folder`.
pub(crate) fn with_actions(config: &mut Config, folder: &Path, cores: u64) {
    config.actions.enabled = true;
    config.actions.cores = cores;
    config.actions.memory_bytes = 1 << 30;
    config.actions.supervisor = binary().display().to_string();
    config.actions.folder = folder.join("actions").display().to_string();
    config.actions.workdir = folder.display().to_string();
}

async fn fixture(folder: &Path, cores: u64, tune: impl FnOnce(&mut Config)) -> Fixture {
    Fixture::tuned(1, 100_000, |config| {
        with_actions(config, folder, cores);
        tune(config);
    })
    .await
}

/// An action that runs a shell script.
fn shell(script: &str) -> Value {
    let command = ["sh", "-c", script];
    json!({"kind": "sh", "run": {"process": {"command": command}}})
}

fn with(mut action: Value, fields: &Value) -> Value {
    let all = action.as_object_mut().expect("an object");
    all.extend(fields.as_object().expect("an object").clone());
    action
}

async fn submit(client: &Client, action: &Value) -> u64 {
    let answer = client.post(ACTIONS, action).await.ok();
    answer["action"].as_u64().expect("a number")
}

async fn show(client: &Client, action: u64) -> Value {
    client.get(&format!("{ACTIONS}/{action}")).await.ok()
}

/// The action once it has ended.
async fn ended(client: &Client, action: u64) -> Value {
    let path = format!("{ACTIONS}/{action}?wait_s=60");
    let view = client.get(&path).await.ok();
    assert_eq!(view["status"], "ended", "{view}");
    view
}

async fn until_status(client: &Client, action: u64, status: &str) {
    for _ in 0..2_000 {
        if show(client, action).await["status"] == status {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{action} is not {status}: {}", show(client, action).await);
}

async fn used(client: &Client, resource: &str) -> u64 {
    let resources = client.get("/api/v1/resources").await.ok();
    let all = resources["resources"].as_array().expect("a list");
    let known = all.iter().find(|one| one["name"] == resource);
    known.expect("it is there")["used"]
        .as_u64()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_runs_and_its_output_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 2, |_| {}).await;
    let client = &fixture.client;
    let script = "cat; echo $GREETING; nproc; exit 3";
    let run = json!({"process": {
        "command": ["sh", "-c", script], "stdin": "in\n", "env": {"GREETING": "hello"},
    }});
    let action = submit(client, &json!({"kind": "sh", "run": run})).await;
    let view = ended(client, action).await;
    assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 3}));
    assert_eq!(view["output"]["text"], "in\nhello\n1\n");
    assert_eq!(
        (&view["cost"], &view["given"]),
        (&json!({"cpu": 1}), &json!({"cpu": 1}))
    );
    let times = [
        "submitted_at_us",
        "granted_at_us",
        "began_at_us",
        "ended_at_us",
    ];
    let times = times.map(|field| view[field].as_u64().expect("a time"));
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(used(client, "cpu").await, 0);

    let list = client.get(ACTIONS).await.ok();
    assert_eq!(list["actions"][0]["action"], action);
    assert!(list["actions"][0].get("output").is_none(), "{list}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_typed_and_give_their_cores_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 1, |_| {}).await;
    let client = &fixture.client;
    let outcome = async |action: Value| {
        let action = submit(client, &action).await;
        ended(client, action).await["outcome"].clone()
    };
    let late = with(shell("sleep 60"), &json!({"run_s_max": 1}));
    assert_eq!(outcome(late).await["outcome"], "timed_out");
    let killed = outcome(shell("kill -9 $$")).await;
    assert_eq!(killed, json!({"outcome": "killed", "signal": 9}));
    let absent = json!({"kind": "x", "run": {"process": {"command": ["/no/such/program"]}}});
    assert_eq!(outcome(absent).await["outcome"], "infrastructure_failure");
    let large = "x=$(head -c 200000000 /dev/zero | tr '\\0' a); sleep 5";
    let large = with(
        shell(large),
        &json!({"cost": {"cpu": 1, "memory": 64 << 20}}),
    );
    assert_eq!(outcome(large).await["outcome"], "out_of_memory");
    let unreachable = json!({"kind": "get", "run": {"http": {"url": "http://127.0.0.1:9/"}}});
    assert_eq!(
        outcome(unreachable).await["outcome"],
        "infrastructure_failure"
    );

    // One expires while it waits for the core of another; a third is cancelled while it runs.
    let runs = submit(client, &shell("sleep 60")).await;
    until_status(client, runs, "running").await;
    let waits = submit(client, &with(shell("true"), &json!({"start_s_max": 1}))).await;
    assert_eq!(show(client, waits).await["status"], "waiting");
    assert_eq!(ended(client, waits).await["outcome"]["outcome"], "expired");
    client.delete(&format!("{ACTIONS}/{runs}")).await.ok();
    assert_eq!(ended(client, runs).await["outcome"]["outcome"], "cancelled");
    assert_eq!(used(client, "cpu").await, 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_names_one_action() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 1, |_| {}).await;
    let client = &fixture.client;
    let keyed = with(shell("echo x >> count"), &json!({"idempotency_key": "k"}));
    let action = submit(client, &keyed).await;
    for _ in 0..3 {
        let again = client.post(ACTIONS, &keyed).await.ok();
        assert_eq!(
            (&again["action"], &again["repeated"]),
            (&json!(action), &json!(true))
        );
    }
    ended(client, action).await;
    let written = std::fs::read_to_string(folder.path().join("count"));
    assert_eq!(written.expect("it ran"), "x\n");
    let other = with(shell("true"), &json!({"idempotency_key": "k"}));
    let refused = client.post(ACTIONS, &other).await;
    let message = refused.refused(409, "idempotency_key_taken");
    assert!(message.contains("new key"), "{message}");
    // The same key of another job is another action.
    let elsewhere = with(other, &json!({"job": "other"}));
    assert_ne!(submit(client, &elsewhere).await, action);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_of_a_program_is_of_its_job_and_ends_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 1, |_| {}).await;
    let client = &fixture.client;
    let step = chat("p", "go", 4).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-treadle-job", "math"),
    ];
    client
        .send(http::Method::POST, CHAT, &headers, step)
        .await
        .ok();
    let program = client.get("/api/v1/programs/p").await.ok();
    let of_program = with(shell("sleep 60"), &json!({"program_id": "p"}));
    let action = submit(client, &of_program).await;
    until_status(client, action, "running").await;
    let view = show(client, action).await;
    assert_eq!(
        (&view["job"], &program["job"]),
        (&json!("math"), &json!("math"))
    );
    let phase = client.get("/api/v1/programs/p").await.ok();
    assert_eq!(phase["phase"], "acting");
    client.delete("/api/v1/programs/p").await.ok();
    assert_eq!(
        ended(client, action).await["outcome"]["outcome"],
        "cancelled"
    );
    let late = client.post(ACTIONS, &of_program).await;
    late.refused(404, "program_unknown");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_action_gets_what_is_free_from_the_bound_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 4, |_| {}).await;
    let client = &fixture.client;
    let elastic = with(
        shell("nproc"),
        &json!({"cost": {"cpu": [1, 2, 4]}, "durations_us": [4_000_000, 2_000_000, 1_000_000]}),
    );
    let units = async || {
        let action = submit(client, &elastic).await;
        let view = ended(client, action).await;
        (view["given"]["cpu"].clone(), view["output"]["text"].clone())
    };
    assert_eq!(units().await, (json!(1), json!("1\n")));
    let wasm = treadle_tests::support::policy::guest("tangram_allocation");
    let uploaded = client
        .send(http::Method::POST, "/api/v1/plugins", &[], wasm)
        .await;
    uploaded.ok();
    let bind = json!({"policy": "tangram-allocation", "job": "*", "world": "allocation"});
    client
        .send(http::Method::PUT, "/api/v1/bindings", &[], bind.to_string())
        .await
        .ok();
    let (given, _) = units().await;
    assert_eq!(given, json!(4));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_where_egress_lets_them_and_quotas_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = treadle_tests::support::fixture::engine(1_000).await;
    let url = server.url();
    let authority = url.trim_start_matches("http://").to_owned();
    let fixture = fixture(folder.path(), 1, |config| {
        config.actions.egress = vec![authority];
        config.actions.quotas = vec!["search concurrent=1".to_owned()];
    })
    .await;
    let client = &fixture.client;
    let get = json!({"http": {"url": format!("{url}/v1/models"), "quota": "search"}});
    let action = submit(client, &json!({"kind": "get", "run": get})).await;
    let view = ended(client, action).await;
    assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 200}));
    assert_eq!(view["given"], json!({"search": 1}));
    assert!(
        view["output"]["text"]
            .as_str()
            .expect("text")
            .contains("object"),
        "{view}"
    );
    fixture.stop().await;
}
