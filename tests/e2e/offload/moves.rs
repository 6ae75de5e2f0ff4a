//! Moves of caches from engine to engine in a rollout, by the default placement policy.

use serde_json::{Value, json};
use treadle::config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::policy::guest;
use treadle_tests::support::stand::{COMPLETIONS, MODEL, Stand, engine};

use super::stage;
use crate::plugins::crowd::{put_binding, upload};

/// Context of a program, in tokens.
const TOKENS: u32 = 1_600;
const PROGRAMS: [&str; 2] = ["one", "two"];

/// A rollout in which programs move.
pub(crate) fn moving(config: &mut Config) {
    config.scheduler.mode = serde_json::from_value(json!("rollout")).expect("a mode");
    config.rollout.gather_ms = 10;
    config.rollout.migration_interval_ms = 20;
    config.rollout.migration_tokens_per_s = 100_000;
    config.rollout.prefill_tokens_per_s = 10_000;
}

async fn step(client: &Client, model: &str, name: &str, tokens: u32) -> Value {
    let first = if name == PROGRAMS[0] { 500 } else { 5_000 };
    let prompt: Vec<u32> = (first..first + tokens).collect();
    let body = json!({
        "model": model, "prompt": prompt, "max_tokens": 4, "program_id": name, "temperature": 0,
    });
    let answer = client.post(COMPLETIONS, &body).await.ok();
    answer["usage"].clone()
}

/// Two programs act at the only engine; then a second one comes, and one of them moves there. Gives
/// the tokens that its next step found there.
pub(crate) async fn one_moves(stand: &Stand, model: &str, second: &str) -> u64 {
    let client = &stand.client;
    upload(client, "/v1/plugins", guest("default-placement"))
        .await
        .ok();
    let config = json!({"migrate_slack": 0.0, "moves_max": 1});
    let binding = json!({"world": "placement", "policy": "default-placement", "config": config});
    put_binding(client, &binding).await.ok();
    for name in PROGRAMS {
        step(client, model, name, TOKENS).await;
    }
    let worker = json!({"url": second, "kind": "vllm"});
    client.post("/workers", &worker).await.ok();
    let moved = async || {
        let programs = stage::caches(client).await;
        PROGRAMS
            .into_iter()
            .find(|name| programs[name]["backend"] == second)
    };
    stage::until("a program has moved", async || moved().await.is_some()).await;
    let name = moved().await.expect("one of them");
    let usage = step(client, model, name, TOKENS + 100).await;
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_migrations_total") >= 1);
    let details = &usage["prompt_tokens_details"]["cached_tokens"];
    details.as_u64().expect("the engine tells what was cached")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_moves_between_simulated_engines() {
    let engines = vec![engine(100_000).await, engine(100_000).await];
    let second = engines[1].url();
    let stand = Stand::around(engines, |config| {
        moving(config);
        config.engines.endpoints.truncate(1);
    })
    .await;
    let cached = one_moves(&stand, MODEL, &second).await;
    assert!(cached >= u64::from(TOKENS) - 16, "{cached} of {TOKENS}");
    stand.finish().await;
}
