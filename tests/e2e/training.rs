//! Training runs over HTTP: what was acknowledged outlives everything, batches never change, and
//! what is wrong is refused and changes nothing.

mod affinity;
mod bandit;
mod captured_kills;
mod characters;
mod cut;
mod groups;
mod harness;
mod history;
mod kills;
mod messages;
mod models;
mod native;
pub(crate) mod real;
pub(crate) mod real_weights;
mod relay;
mod reports;
mod shaping;
mod streams;
mod tenants;
mod token_stream;
mod tokens;
mod translated;
mod weight_store;
mod weights;
mod wrong;

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use treadle_config::Config;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{Fixture, chat, config};
use treadle_tests::support::process::{DaemonProcess, binary};

use super::restart::DAEMON;

const JOB: &str = "/api/v1/jobs/math";

async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let path = format!("{JOB}{path}");
    client
        .send(Method::PUT, &path, &[], body.into_bytes())
        .await
}

async fn post(client: &Client, path: &str, body: Value) -> Answer {
    client.post(&format!("{JOB}{path}"), &body).await
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(&format!("{JOB}{path}")).await
}

async fn declare(client: &Client, settings: Value) {
    put(client, "", &settings).await.ok();
}

async fn submit(client: &Client, groups: &[&str]) {
    let groups = groups
        .iter()
        .map(|key| json!({"group": key, "content": {"prompt": key}}));
    let groups: Vec<Value> = groups.collect();
    post(client, "/groups", json!({"groups": groups}))
        .await
        .ok();
}

/// A sample of two steps that form one sequence.
fn sample(token: i32) -> Value {
    json!({"steps": [
        {"prompt": [1, token], "output": [3, 4], "logprobs": [-0.5, -0.25]},
        {"prompt": [1, token, 3, 4, 9], "output": [2], "logprobs": [-0.125]},
    ]})
}

fn whole(reward: f64, token: i32) -> Value {
    json!({"end": "completed", "reward": reward, "sample": sample(token), "info": {"token": token}})
}

/// Begins and ends a member of a group.
async fn member(client: &Client, program: &str, group: &str, reward: f64) {
    let begun = post(
        client,
        "/members",
        json!({"program": program, "group": group}),
    )
    .await;
    assert_eq!(begun.ok()["surplus"], false, "{program}");
    let end = whole(reward, 8);
    put(client, &format!("/members/{program}"), &end).await.ok();
}

async fn payload(client: &Client, batch: u64, slice: &str) -> Vec<u8> {
    let answer = get(client, &format!("/batches/{batch}/payload{slice}")).await;
    assert_eq!(
        answer.status,
        200,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    let length = answer.headers.get("content-length");
    let expected = answer.body.len().to_string();
    let length = length.and_then(|length| length.to_str().ok());
    assert_eq!(length, Some(&*expected), "it is known before");
    answer.body.to_vec()
}

/// The report of `treadle training check` on the batches in a folder, which has no violations.
fn proven(client: &Client, batches: &Path) -> Value {
    let output = std::process::Command::new(binary())
        .args(["training", "check", "--json", "--job", "math", "--batches"])
        .arg(batches)
        .args(["--url", client.base()])
        .args(["--token", client.token().unwrap_or_default()])
        .output()
        .expect("it runs");
    let [out, err] = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t));
    assert!(output.status.success(), "{out}{err}");
    let report: Value = serde_json::from_str(&out).expect("a report");
    assert_eq!(report["violations"], json!([]), "{report}");
    report
}

/// The content of a batch: what must never change.
async fn batch(client: &Client, number: u64) -> (Value, Vec<u8>) {
    let answer = get(client, &format!("/batches/{number}?wait_s=10")).await;
    let mut view = answer.ok();
    assert_eq!(view["ready"], true, "{view}");
    let fields = view.as_object_mut().expect("an object");
    fields.retain(|field, _| field == "groups" || field == "batch" || field == "trained_on");
    (view, payload(client, number, "").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_begins_and_ends_once() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(
        client,
        json!({"group_size": 2, "batch_groups": 1, "capture": "tokens"}),
    )
    .await;
    submit(client, &["a", "b"]).await;
    submit(client, &["b", "c"]).await;
    let begun = post(client, "/members", json!({"program": "p1"}))
        .await
        .ok();
    assert_eq!(begun["group"], "a", "{begun}");
    assert_eq!(begun["content"], json!({"prompt": "a"}));
    let again = post(client, "/members", json!({"program": "p1"}))
        .await
        .ok();
    assert_eq!(begun, again);
    let early = get(client, "/batches/1").await;
    assert_eq!(early.status, 202);
    assert_eq!(early.json()["waits"][0]["waits_for"], "members");
    for _ in 0..2 {
        put(client, "/members/p1", &whole(1.0, 2)).await.ok();
    }
    for other in [whole(1.0, 7), whole(0.5, 2)] {
        let other = put(client, "/members/p1", &other).await;
        other.refused(409, "member_conflict");
    }
    let later = json!({"reward": 0.5});
    put(client, "/members/p1/reward", &later).await.ok();
    member(client, "p2", "a", 0.0).await;
    let (view, _) = batch(client, 1).await;
    let member = &view["groups"][0]["members"][0];
    assert_eq!(member["reward"], 0.5, "the last one counts");
    assert_eq!(member["info"], json!({"token": 2}));
    put(client, "/members/p1", &whole(0.5, 2)).await.ok();
    put(client, "/members/p1", &whole(1.0, 2))
        .await
        .refused(409, "member_conflict");
    let over = post(client, "/members", json!({"program": "p1"})).await;
    over.refused(409, "member_dropped");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_from_groups_to_batches_and_on() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(
        client,
        json!({"group_size": 2, "batch_groups": 2, "capture": "tokens"}),
    )
    .await;
    submit(client, &["a", "b"]).await;
    member(client, "p1", "a", 0.5).await;
    member(client, "p2", "a", 0.0).await;
    member(client, "p3", "b", 0.25).await;
    let failing = json!({"program": "p4", "group": "b"});
    post(client, "/members", failing).await.ok();
    let failed = json!({"end": "environment_failed"});
    for _ in 0..2 {
        put(client, "/members/p4", &failed).await.ok();
    }
    member(client, "p5", "b", 1.0).await;
    let (view, bytes) = batch(client, 1).await;
    assert_eq!(
        view["groups"][1]["members"][1]["program"], "p5",
        "p4 failed"
    );
    let shape = |bytes: &[u8], tensor: &str| {
        let file = safetensors::SafeTensors::deserialize(bytes).expect("a payload");
        file.tensor(tensor).expect("it is there").shape().to_vec()
    };
    assert_eq!(shape(&bytes, "ids"), [4 * 6]);
    assert_eq!(shape(&bytes, "sampled"), [8, 3]);
    for slice in ["?rank=0&of=2", "?rank=1&of=2"] {
        assert_eq!(shape(&payload(client, 1, slice).await, "ids"), [2 * 6]);
    }
    let text = payload(client, 1, "?format=json&rank=0&of=2").await;
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    let members = &text["members"];
    assert_eq!(members.as_array().map(Vec::len), Some(2), "of group a");
    let digest = view["groups"][0]["members"][0]["sample"].clone();
    let sequence = json!({"ids": [1, 8, 3, 4, 9, 2], "mask": [0, 0, 1, 1, 0, 1],
        "logprobs": [-0.5, -0.25, -0.125], "versions": [[2, 4, 0, 0], [5, 6, 0, 0]]});
    let expected = json!({"group": "a", "program": "p1", "reward": 0.5, "sample": digest,
        "sequences": [sequence], "excluded": []});
    assert_eq!(members[0], expected);
    get(client, "/batches/1/payload?format=csv")
        .await
        .refused(400, "invalid_field");
    post(client, "/batches/1/trained", json!({})).await.ok();
    let told = json!({"version": 1, "digest": "x"});
    assert_eq!(post(client, "/versions", told).await.ok()["version"], 1);
    post(client, "/checkpoints", json!({"batch": 1})).await.ok();
    get(client, "/batches/1")
        .await
        .refused(410, "batch_released");
    let job = get(client, "").await.ok();
    let failed = &job["account"]["lost"]["environment_failed"];
    assert_eq!(failed["members"], 1, "{job}");
    assert_eq!(job["account"]["served"]["reward_mean"], 0.4375);
    assert_eq!(client.get("/api/v1/jobs").await.ok()["jobs"][0], job);
    let metrics = client.metrics().await;
    let served = "treadle_training_members_served_total";
    assert_eq!(metrics.count_with(served, "job=\"math\""), 4);
    let gone = client.delete(&format!("{JOB}?forget=true")).await.ok();
    assert_eq!(gone["forgotten"], true);
    get(client, "").await.refused(404, "job_unknown");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_waits_for_the_trainer_and_for_weights() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(
        client,
        json!({"group_size": 1, "batch_groups": 1, "lag_max": 0}),
    )
    .await;
    submit(client, &["a", "b", "c"]).await;
    member(client, "p1", "a", 1.0).await;
    let full = post(client, "/members", json!({"program": "p2"})).await;
    assert_eq!(full.status, 202, "one group has begun, which is the limit");
    assert_eq!(full.json()["waits"][0]["waits_for"], "trainer");
    batch(client, 1).await;
    let old = post(client, "/members", json!({"program": "p2"})).await;
    assert_eq!(old.json()["waits"][0]["waits_for"], "weights");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { post(&client, "/members", json!({"program": "p3", "wait_s": 30})).await }
    });
    post(client, "/batches/1/trained", json!({})).await.ok();
    post(client, "/versions", json!({"version": 1})).await.ok();
    let begun = waiting.await.expect("it ends").ok();
    assert_eq!(
        (&begun["group"], &begun["version"]),
        (&json!("b"), &json!(1))
    );
    fixture.finish().await;
}

fn on_disk(folder: &Path) -> Config {
    let mut config = config();
    config.store.path = folder.join("treadle.db").to_string_lossy().into_owned();
    config.store.snapshot_events = 7;
    config
}

/// Kills the daemon at every turn of a run, and goes back to a checkpoint: each batch is the same
/// bytes whenever it is asked for, and none lacks what was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_the_same_after_kills_and_a_rollback() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = on_disk(folder.path());
    let mut daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let settings = json!({"group_size": 2, "batch_groups": 2, "capture": "tokens"});
    declare(&daemon.client, settings).await;
    let mut batches = Vec::new();
    for number in 1..=4_u64 {
        let keys = ["a", "b"].map(|name| format!("{name}{number}"));
        submit(&daemon.client, &[&keys[0], &keys[1]]).await;
        for (index, key) in keys.iter().enumerate() {
            member(&daemon.client, &format!("{key}-1"), key, index as f64).await;
            daemon.kill();
            daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
            member(&daemon.client, &format!("{key}-2"), key, 0.5).await;
        }
        batches.push(batch(&daemon.client, number).await);
        daemon.kill();
        daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
        assert_eq!(
            batch(&daemon.client, number).await,
            batches[number as usize - 1]
        );
        let trained = format!("/batches/{number}/trained");
        post(&daemon.client, &trained, json!({})).await.ok();
        post(&daemon.client, "/versions", json!({"version": number}))
            .await
            .ok();
    }
    post(&daemon.client, "/checkpoints", json!({"batch": 1}))
        .await
        .ok();
    let resume = json!({"batch": 2, "lineage": 0});
    let resumed = post(&daemon.client, "/resume", resume.clone()).await.ok();
    assert_eq!(resumed["lineage"], 1);
    assert_eq!(
        post(&daemon.client, "/resume", resume).await.ok(),
        resumed,
        "once"
    );
    daemon.kill();
    daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let client = &daemon.client;
    get(client, "/batches/1")
        .await
        .refused(410, "batch_released");
    for number in 2..=4 {
        assert_eq!(batch(client, number).await, batches[number as usize - 1]);
    }
    post(client, "/versions", json!({"version": 2, "lineage": 0}))
        .await
        .refused(409, "version_conflict");
    post(client, "/versions", json!({"version": 2, "lineage": 1}))
        .await
        .ok();
}

/// A step of a program that names its group, over the gateway.
async fn step(client: &Client, program: &str, group: &str) -> Answer {
    let headers = [
        ("x-treadle-job", "math"),
        ("x-treadle-group", group),
        ("x-program-id", program),
    ];
    let body = chat(program, "hello", 3).to_string();
    let path = "/v1/chat/completions";
    client
        .send(Method::POST, path, &headers, body.into_bytes())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_become_members_by_naming_their_group() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    step(client, "before", "a").await.ok();
    declare(
        client,
        json!({"group_size": 1, "batch_groups": 1, "lag_max": 0}),
    )
    .await;
    step(client, "p1", "a").await.ok();
    step(client, "p1", "a").await.ok();
    step(client, "surplus", "a").await.ok();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { step(&client, "p2", "b").await }
    });
    client.delete("/api/v1/programs/p1").await.ok();
    let reward = json!({"reward": 1.0}).to_string().into_bytes();
    let path = "/api/v1/programs/p1/reward";
    client.send(Method::PUT, path, &[], reward).await.ok();
    let (view, _) = batch(client, 1).await;
    let member = &view["groups"][0]["members"][0];
    assert_eq!(
        (&member["program"], &member["turns"]),
        (&json!("p1"), &json!(2)),
        "{view}"
    );
    assert!(
        !waiting.is_finished(),
        "engines have version 0, which is too old for batch 2"
    );
    post(client, "/versions", json!({"version": 1})).await.ok();
    waiting.await.expect("it ends").ok();
    client.delete("/api/v1/programs/p2").await.ok();
    put(client, "/members/p2/reward", &json!({"failed": "no judge"}))
        .await
        .ok();
    step(client, "p2", "b").await.refused(409, "member_dropped");
    for program in ["before", "surplus"] {
        client
            .delete(&format!("/api/v1/programs/{program}"))
            .await
            .ok();
    }
    fixture.finish().await;
}
