//! Updates of weights that trainers drive through the relay: with the clients of vLLM and SkyRL as
//! they are published, and with the calls of slime and prime-rl.

mod generations;
mod ranks;
mod recorded;

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use treadle_config::{AnonymousScope, EngineChoice};
use treadle_engine_sim::LoadFault;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{Fixture, chat};
use treadle_tests::support::policy::root;

use super::get;
use crate::clients::python;

/// Two engines, and no job: a trainer that treadle relays for need not declare one.
async fn fixture(kind: EngineChoice) -> Fixture {
    Fixture::tuned(2, 10_000, |config| {
        for endpoint in &mut config.engines.endpoints {
            endpoint.kind = Some(kind);
        }
    })
    .await
}

fn all(client: &Client) -> String {
    format!("{}/api/v1/jobs/math/engine", client.base())
}

fn one(client: &Client, worker: u32) -> String {
    format!("{}/api/v1/jobs/math/workers/{worker}/engine", client.base())
}

/// What a client of another project reports.
async fn drive(python: &PathBuf, client: &str, version: &str, urls: &[String]) -> Value {
    let mut command = Command::new(python);
    command
        .arg(root().join("tests/e2e/training/weight_clients.py"))
        .arg(root().join(".treadle/llm-clients/files"))
        .args([client, version])
        .args(urls);
    let output = command.output().await.expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Which engines serve which version, as treadle knows.
async fn held(client: &Client) -> Vec<(bool, Value)> {
    let view = get(client, "/weights").await.ok();
    let workers = view["workers"].as_array().expect("a list");
    let workers = workers.iter();
    workers
        .map(|w| (w["fenced"] == false, w["held"]["name"].clone()))
        .collect()
}

/// The version that an answer names.
async fn named(client: &Client) -> Value {
    let body = json!({"text": "hello", "sampling_params": {"max_new_tokens": 4}});
    let answer = client.post("/generate", &body).await.ok();
    answer["meta_info"]["weight_version"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_vllm_updates_all_engines() {
    let Some(python) = python() else { return };
    let fixture = fixture(EngineChoice::Vllm).await;
    let client = &fixture.client;
    let url = [all(client)];
    let report = drive(&python, "vllm-7", "1", &url).await;
    let error = report["update"].as_str().unwrap_or_default();
    assert!(error.contains("has 7 ranks and the engines 2"), "{report}");
    assert!(fixture.engines[0].weight_groups().is_empty(), "none joined");
    let report = drive(&python, "vllm-3", "7", &url).await;
    assert_eq!(report, json!({}));
    let view = get(client, "/weights").await.ok();
    assert_eq!(
        (&view["serving"]["name"], &view["last"]["held"]),
        (&json!("7"), &json!(2)),
        "{view}"
    );
    assert_eq!(view["update"], Value::Null);
    assert_eq!(held(client).await, vec![(true, json!("7")); 2]);
    let offset = |at: usize| {
        let groups = fixture.engines[at].weight_groups();
        groups[0]["init_info"]["rank_offset"].clone()
    };
    assert_eq!((offset(0), offset(1)), (json!(1), json!(2)));
    assert_eq!(named(client).await, "7");
    // Publishing and relaying exclude each other.
    let body = json!({"version": 0, "folder": "/weights/0"});
    super::declare(client, json!({"group_size": 1})).await;
    let refused = super::post(client, "/weights", body).await;
    refused.refused(409, "weights_conflict");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skyrl_can_not_resume_an_engine_that_is_torn() {
    let Some(python) = python() else { return };
    let fixture = fixture(EngineChoice::Vllm).await;
    let client = &fixture.client;
    let urls = [one(client, 0), one(client, 1)];
    assert_eq!(drive(&python, "skyrl", "1", &urls).await, json!({}));
    assert_eq!(held(client).await, vec![(true, json!("1")); 2]);
    fixture.engines[1].set_load_fault(LoadFault::Tear);
    let report = drive(&python, "skyrl", "2", &urls).await;
    let words = |field: &str| report[field].as_str().unwrap_or_default().to_owned();
    assert!(words("update").contains("[500]"), "{report}");
    // It gave up before the end of the update of the other one.
    assert!(words("resume").contains("failed [409]"), "{report}");
    assert!(
        words("resume").contains("has begun and has not ended"),
        "{report}"
    );
    let resumed = client
        .post("/api/v1/jobs/math/workers/1/engine/resume", &Value::Null)
        .await;
    let refusal = resumed.refused(409, "weights_conflict");
    assert!(refusal.contains("may be a mixture"), "{refusal}");
    assert!(refusal.contains("told to tear its weights"), "{refusal}");
    assert!(fixture.engines[1].is_torn());
    let fenced = held(client).await;
    assert_eq!(
        fenced,
        vec![(false, json!("1")); 2],
        "no step is sent to a mixture"
    );
    // The update that was given up is ended first.
    assert_eq!(drive(&python, "skyrl", "3", &urls).await, json!({}));
    assert_eq!(held(client).await, vec![(true, json!("3")); 2]);
    assert!(!fixture.engines[1].is_torn());
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skyrl_goes_on_with_the_engines_that_stand_the_update() {
    let Some(python) = python() else { return };
    let fixture = fixture(EngineChoice::Vllm).await;
    let client = &fixture.client;
    // Two ranks behind one URL.
    let urls = [all(client)];
    fixture.engines[0].set_load_fault(LoadFault::Tear);
    let report = drive(&python, "skyrl", "1", &urls).await;
    assert_eq!(report, json!({}));
    let view = get(client, "/weights").await.ok();
    let behind = &view["last"]["behind"][0];
    assert_eq!(
        (&view["last"]["held"], &behind["worker"]),
        (&json!(1), &json!(0)),
        "{view}"
    );
    for turn in 0..4 {
        let body = chat(&format!("program-{turn}"), "go on", 4);
        client.post("/v1/chat/completions", &body).await.ok();
    }
    let at_the_torn = fixture.engines[0].snapshot().await;
    assert_eq!(
        at_the_torn.counters.finished_requests, 0,
        "it gets no steps"
    );
    assert_eq!(drive(&python, "skyrl", "2", &urls).await, json!({}));
    assert_eq!(held(client).await, vec![(true, json!("2")); 2]);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_lies_serves_nothing() {
    let fixture = Fixture::start(3, 10_000).await;
    let client = &fixture.client;
    fixture.engines[1].set_load_fault(LoadFault::Lie);
    let path = "/api/v1/jobs/math/engine";
    let call = async |step: &str, body: Value| client.post(&format!("{path}{step}"), &body).await;
    call("/pause?mode=keep", Value::Null).await.ok();
    call("/start_weight_update", Value::Null).await.ok();
    call("/update_weights", json!({"update_info": {"names": ["w"]}}))
        .await
        .ok();
    call("/finish_weight_update", json!({"weight_version": "5"}))
        .await
        .ok();
    let answer = call("/resume", Value::Null).await.ok();
    assert_eq!(answer["status"], "resumed");
    let behind = &answer["treadle"]["behind"];
    assert_eq!(behind[0]["worker"], 1, "{answer}");
    let held = held(client).await;
    let serves: Vec<bool> = held.iter().map(|(serves, _)| *serves).collect();
    assert_eq!(serves, [true, false, true]);
    fixture.finish().await;
}

/// Its trainer resumes it, though the job's weights were released meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_paused_outlives_its_job() {
    let fixture = Fixture::start(2, 10_000).await;
    let client = &fixture.client;
    let call = async |step: &str| {
        let path = format!("/api/v1/jobs/math/workers/0/engine{step}");
        client.post(&path, &Value::Null).await
    };
    call("/pause?mode=keep").await.ok();
    client.delete("/api/v1/jobs/math/weights").await.ok();
    let view = get(client, "/weights").await.ok();
    let workers = view["workers"].as_array().expect("a list");
    assert_eq!((workers.len(), &workers[0]["fenced"]), (1, &json!(true)));
    let cause = workers[0]["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("its trainer paused it"), "{view}");
    assert_eq!(call("/resume").await.ok()["status"], "resumed");
    get(client, "/weights").await.refused(404, "job_unknown");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_of_another_job_is_left_alone() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let call = async |job: &str, step: &str| {
        let path = format!("/api/v1/jobs/{job}/workers/0/engine{step}");
        client.post(&path, &json!({})).await
    };
    call("math", "/pause?mode=keep").await.ok();
    // It is paused, but not for that job.
    for step in [
        "/sleep",
        "/abort_requests",
        "/shutdown_weight_transfer_engine",
    ] {
        let refused = call("code", step).await;
        let refusal = refused.refused(409, "weights_conflict");
        assert!(refusal.contains("weights of another job"), "{refusal}");
    }
    let look = client.get("/api/v1/jobs/code/workers/0/engine/is_paused");
    assert_eq!(look.await.ok()["is_paused"], true);
    call("math", "/resume").await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_relayed_is_refused() {
    let fixture = Fixture::tuned(1, 10_000, |config| {
        config.auth.anonymous_scope = AnonymousScope::None;
    })
    .await;
    let client = &fixture.client;
    let base = "/api/v1/jobs/math/engine";
    let anonymous = client.without_token();
    let path = format!("{base}/pause");
    anonymous
        .post(&path, &Value::Null)
        .await
        .refused(401, "token_missing");
    // Clients of trainers send no header of ours; a token in their URL becomes this one.
    let secret = client.token().expect("a token");
    let basic = format!("Basic {}", STANDARD.encode(format!("treadle:{secret}")));
    let headers = [("authorization", &*basic)];
    let answer = anonymous
        .send(
            Method::GET,
            &format!("{base}/is_paused"),
            &headers,
            Vec::new(),
        )
        .await;
    assert_eq!(answer.ok()["is_paused"], false);
    for path in [
        "/v1/chat/completions",
        "/sim/faults",
        "/../../status",
        "/kv",
    ] {
        client
            .post(&format!("{base}{path}"), &json!({}))
            .await
            .refused(404, "unknown_path");
    }
    client
        .get(&format!("{base}/pause"))
        .await
        .refused(405, "method_not_allowed");
    let body = b"{".to_vec();
    let path = format!("{base}/update_weights");
    let wrong = client.send(Method::POST, &path, &[], body).await;
    wrong.refused(400, "invalid_json");
    let part = json!({"update_info": {"names": ["w"]}});
    let early = client.post(&path, &part).await;
    let refusal = early.refused(409, "weights_conflict");
    assert!(refusal.contains("pause it first"), "{refusal}");
    let long = json!({"model_path": "/w", "weight_version": "v".repeat(65)});
    let path = format!("{base}/update_weights_from_disk");
    client
        .post(&path, &long)
        .await
        .refused(400, "invalid_field");
    let nowhere = "/api/v1/jobs/math/workers/9/engine/pause";
    client
        .post(nowhere, &Value::Null)
        .await
        .refused(404, "worker_unknown");
    fixture.finish().await;
}

/// Waits until a worker is as wanted.
async fn until(client: &Client, what: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..400 {
        let view = get(client, "/weights").await.ok();
        if what(&view) {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{}", get(client, "/weights").await.ok());
}
