//! An agent harness that knows nothing of treadle, at a real engine: its sample is what the engine
//! sampled, token by token and bit by bit.

use super::{batch, declare, get, submit};
use crate::sandboxes::stage;
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio::process::Command;
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::llama_server::{self, LlamaServer, tiny_model};
use treadle_tests::support::policy::root;

const STEPS: usize = 3;

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

/// Scores a step again: each sampled token is forced in turn, after the same prompt.
async fn scored_again(engine: &Client, step: &Value) -> Vec<f32> {
    let (mut context, output) = (numbers(&step["prompt"]), numbers(&step["output"]));
    let mut logprobs = Vec::new();
    for (at, token) in output.into_iter().enumerate() {
        let body = json!({"prompt": context, "n_predict": 1, "n_probs": 1, "temperature": 0,
            "logit_bias": [[token, 1e9]], "cache_prompt": at > 0});
        let answer = engine.post("/completion", &body).await.ok();
        let entry = &answer["completion_probabilities"][0];
        assert_eq!(entry["id"], token, "{answer}");
        logprobs.push(entry["logprob"].as_f64().expect("a number") as f32);
        context.push(token);
    }
    logprobs
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_agent_is_trained_on_what_its_engine_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(python), Some(engine)) = (stage::python("newest"), llama_server::python()) else {
        return;
    };
    let model = tiny_model(&engine, folder.path());
    let server = LlamaServer::start(&engine, &model, 1, 8_192).await;
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
    let summary = agent(&python, client, server.url()).await;
    assert_eq!(
        summary["actions"].as_array().map(Vec::len),
        Some(STEPS),
        "{summary}"
    );
    client.delete("/api/v1/programs/agent").await.ok();
    let (view, _) = batch(client, 1).await;
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
    // Prompts were computed with the cache of the step before, so the first one only is cold.
    let step = &steps[0];
    let kept = step["logprobs"].as_array().expect("a list").iter();
    let kept: Vec<f32> = kept.map(|p| p.as_f64().expect("a number") as f32).collect();
    assert_eq!(scored_again(&server.client, step).await, kept, "bit by bit");
    fixture.finish().await;
}
