//! mini-swe-agent, whose commands run in a sandbox, with a scripted model and with a real engine.

use super::stage::{open, passes, python, sandbox, with_sandboxes};
use serde_json::Value;
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::llama_server::{self, LlamaServer, tiny_model};

/// Commands that ran in sandboxes for clients of SWE-ReX.
async fn commands(client: &Client) -> usize {
    let actions = client.get("/api/v1/actions").await.ok();
    let all: &Vec<Value> = actions["actions"].as_array().expect("a list");
    let own = |action: &&Value| action["kind"] == "swerex" && action["status"] == "ended";
    all.iter().filter(own).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_repairs_a_function_in_a_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(python) = python("newest") else {
        return;
    };
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let env = [
        (
            "SWEREX_URL",
            format!("{}{}", client.base(), sandbox(client).await),
        ),
        ("MODEL_BASE", "scripted".to_owned()),
    ];
    passes(&python, "mini_client.py", &env).await;
    // Four commands of the agent's, those for its prompts, one to check.
    assert!(commands(client).await >= 6);
    fixture.stop().await;
}

/// The model has random weights: it never writes a command, and the agent gives up.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_thinks_at_a_real_engine_and_acts_in_a_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(python), Some(engine)) = (python("newest"), llama_server::python()) else {
        return;
    };
    let model = tiny_model(&engine, folder.path());
    let server = LlamaServer::start(&engine, &model, 1, 16_384).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        with_sandboxes(config, folder.path());
        config.engines.endpoints = vec![Endpoint {
            kind: Some(EngineChoice::Auto),
            ..Endpoint::at(server.url())
        }];
    })
    .await;
    let client = &fixture.client;
    let env = [
        (
            "SWEREX_URL",
            format!("{}{}", client.base(), sandbox(client).await),
        ),
        ("MODEL_BASE", format!("{}/v1", client.base())),
        ("MODEL_NAME", "tiny".to_owned()),
        ("STEP_LIMIT", "3".to_owned()),
        ("TEXT", "1".to_owned()),
    ];
    passes(&python, "mini_client.py", &env).await;
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_steps_finished_total") > 0);
    let events = client.get("/api/v1/events?kind=step_finished").await.ok();
    assert!(!events["events"].as_array().expect("a list").is_empty());
    assert!(commands(client).await >= 2);
    fixture.stop().await;
}
