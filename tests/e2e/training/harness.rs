//! An agent harness that knows nothing of treadle, at a real engine: its sample is what the engine
//! sampled, token by token and bit by bit.

use super::{declare, get, payload, proven, submit};
use crate::offload::stage::until;
use crate::sandboxes::stage;
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::process::Command;
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture};
use treadle_tests::support::llama_server::{self, LlamaServer, tiny_model};
use treadle_tests::support::policy::root;

const STEPS: usize = 3;
/// What the harness asks for by default.
const OUTPUT_MAX: u64 = 64;
const SEED: u64 = 1;

/// Runs mini-swe-agent as it is; returns what it did.
async fn agent(python: &PathBuf, client: &Client, engine: &str) -> Value {
    let base = format!("{}/v1", client.base());
    let mut command = Command::new(python);
    command
        .arg(root().join("tests/e2e/training/mini_swe.py"))
        .args([&*base, "tiny", "--actions-of", engine])
        .args(["--steps", &STEPS.to_string()])
        .args(["--header", "X-Treadle-Job=math"])
        .args(["--header", "X-Treadle-Group=a"])
        .args(["--header", "X-Program-Id=agent"]);
    let output = command.output().await.expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("a summary")
}

fn numbers(value: &Value) -> Vec<i64> {
    let numbers = value.as_array().expect("a list").iter();
    numbers.map(|n| n.as_i64().expect("a number")).collect()
}

/// Log-probabilities as they are kept.
fn scores(value: &Value) -> Vec<f32> {
    let scores = value.as_array().expect("a list").iter();
    scores
        .map(|p| p.as_f64().expect("a number") as f32)
        .collect()
}

/// Waits until it is known what the engine's log-probabilities are of: it is asked once tokens are
/// captured, which takes the place of what its only slot has cached.
async fn kind_is_known(client: &Client) {
    let headers = [
        ("x-treadle-job", "math"),
        ("x-treadle-group", "first"),
        ("x-program-id", "first"),
    ];
    let messages = json!([{"role": "user", "content": "kimu"}]);
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 1}).to_string();
    let answer = client.send(Method::POST, CHAT, &headers, body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    until("the kind is known", async || {
        let workers = client.get("/api/v1/workers").await.ok();
        workers["workers"][0]["capabilities"]["logprobs"] == "raw"
    })
    .await;
}

/// Asks another engine for what the agent asked for, in the same order: it samples the same.
async fn twins_are_equal(twin: &Client, summary: &Value, steps: &[Value]) {
    let messages = summary["messages"].as_array().expect("a list");
    let answers = messages.iter().enumerate();
    let answers = answers.filter(|(_, message)| message["role"] == "assistant");
    let places: Vec<usize> = answers.map(|(place, _)| place).collect();
    assert_eq!(places.len(), steps.len());
    for (place, step) in places.into_iter().zip(steps) {
        let mut body = summary["added"].clone();
        let own = json!({"model": "tiny", "messages": &messages[..place], "seed": SEED,
            "max_tokens": OUTPUT_MAX, "logprobs": true, "top_logprobs": 1});
        let fields = own.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        let answer = twin.post(CHAT, &body).await.ok();
        let prompt = answer["usage"]["prompt_tokens"].as_u64();
        assert_eq!(prompt, Some(numbers(&step["prompt"]).len() as u64));
        let listed = answer["choices"][0]["logprobs"]["content"].as_array();
        let listed = listed.expect("a list").iter();
        let (ids, twins): (Vec<_>, Vec<_>) = listed
            .map(|of| (of["id"].clone(), of["logprob"].clone()))
            .unzip();
        assert_eq!(json!(ids), step["output"]);
        assert_eq!(scores(&json!(twins)), scores(&step["logprobs"]), "{place}");
    }
}

/// Forces each sampled token of all steps in turn, after the same tokens: the engine gives each the
/// score that is kept. Prompts continue what is cached, as they did when the agent sent them.
async fn forced_again(engine: &Client, steps: &[Value]) {
    for (number, step) in steps.iter().enumerate() {
        let (mut context, output) = (numbers(&step["prompt"]), numbers(&step["output"]));
        let mut logprobs = Vec::new();
        for (at, token) in output.into_iter().enumerate() {
            let body = json!({"prompt": context, "n_predict": 1, "n_probs": 1, "temperature": 0,
                "logit_bias": [[token, 1e9]], "cache_prompt": number + at > 0});
            let answer = engine.post("/completion", &body).await.ok();
            let entry = &answer["completion_probabilities"][0];
            assert_eq!(entry["id"], token, "{answer}");
            logprobs.push(entry["logprob"].clone());
            context.push(token);
        }
        let kept = scores(&step["logprobs"]);
        assert_eq!(scores(&json!(logprobs)), kept, "bit by bit, step {number}");
    }
}

/// The checker proves the sample from the stored steps.
async fn is_proven(client: &Client, folder: &Path, view: &Value) {
    std::fs::write(folder.join("batch-1.json"), view.to_string()).expect("a file");
    let tokens = payload(client, 1, "").await;
    std::fs::write(folder.join("batch-1.safetensors"), tokens).expect("a file");
    assert_eq!(proven(client, folder)["samples_proven"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_agent_is_trained_on_what_its_engine_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(python), Some(engine)) = (stage::python("newest"), llama_server::python()) else {
        return;
    };
    let model = tiny_model(&engine, folder.path());
    let server = LlamaServer::start(&engine, &model, 1, 8_192).await;
    let twin = LlamaServer::start(&engine, &model, 1, 8_192).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(EngineChoice::Auto),
            ..Endpoint::at(server.url())
        }];
    })
    .await;
    let client = &fixture.client;
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(client, settings).await;
    submit(client, &["a"]).await;
    kind_is_known(client).await;
    let summary = agent(&python, client, server.url()).await;
    assert_eq!(
        summary["actions"].as_array().map(Vec::len),
        Some(STEPS),
        "{summary}"
    );
    client.delete("/api/v1/programs/agent").await.ok();
    let view = get(client, "/batches/1?wait_s=10").await.ok();
    let member = &view["groups"][0]["members"][0];
    assert_eq!(member["turns"], STEPS, "{view}");
    let found = get(client, "/members/agent/steps").await.ok();
    assert_eq!(found["sample"], member["sample"]);
    assert_eq!(
        found["sequences"].as_array().map(Vec::len),
        Some(1),
        "{}",
        found["breaks"]
    );
    let steps = found["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), STEPS);
    is_proven(client, folder.path(), &view).await;
    twins_are_equal(&twin.client, &summary, steps).await;
    forced_again(&server.client, steps).await;
    client.delete("/api/v1/programs/first").await.ok();
    fixture.finish().await;
}
