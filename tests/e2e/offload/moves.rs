//! Moves of caches from engine to engine in a rollout, by the default placement policy.

use serde_json::{Value, json};
use treadle::config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::policy::guest;
use treadle_tests::support::stand::{COMPLETIONS, MODEL, Stand, engine};

use super::stage;
use crate::conversation::ids;
use crate::plugins::crowd::{put_binding, upload};

/// Context of a program, in tokens.
pub(crate) const TOKENS: u32 = 1_600;
/// Tokens by which it grows.
pub(crate) const MORE: u32 = 100;
pub(crate) const PROGRAMS: [&str; 2] = ["one", "two"];

/// A rollout in which programs move.
pub(crate) fn moving(config: &mut Config) {
    config.scheduler.mode = serde_json::from_value(json!("rollout")).expect("a mode");
    config.rollout.gather_ms = 10;
    config.rollout.migration_interval_ms = 20;
    config.rollout.migration_tokens_per_s = 100_000;
    config.rollout.prefill_tokens_per_s = 10_000;
}

/// What a step of one of the programs came to.
pub(crate) struct Acted {
    pub(crate) request: Value,
    pub(crate) answer: Value,
}

impl Acted {
    /// Prompt tokens that the engine had in its cache.
    pub(crate) fn cached(&self) -> u64 {
        let details = &self.answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        details.as_u64().expect("the engine tells what was cached")
    }
}

/// The first tokens of a program's context. What a model has to say of them is one thing only.
pub(crate) async fn step(client: &Client, model: &str, name: &'static str, tokens: u32) -> Acted {
    let number = if name == PROGRAMS[0] { 1 } else { 2 };
    let mut request = json!({
        "model": model, "prompt": ids(number, 0, tokens as usize), "max_tokens": 8,
        "temperature": 0, "ignore_eos": true, "return_token_ids": true,
    });
    request["program_id"] = json!(name);
    let answer = client.post(COMPLETIONS, &request).await.ok();
    if let Some(fields) = request.as_object_mut() {
        fields.remove("program_id");
    }
    Acted {
        request,
        answer,
    }
}

/// Has both programs act, and those moved that had better be elsewhere.
pub(crate) async fn both_act(stand: &Stand, model: &str) {
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
}

/// Brings a server to the one that is there.
pub(crate) async fn joins(stand: &Stand, second: &str) {
    let worker = json!({"url": second, "kind": "vllm"});
    stand.client.post("/workers", &worker).await.ok();
}

/// Two programs act at the only engine; then a second one comes, and one of them moves there. Gives
/// its next step.
pub(crate) async fn one_moves(stand: &Stand, model: &str, second: &str) -> Acted {
    let client = &stand.client;
    both_act(stand, model).await;
    joins(stand, second).await;
    let moved = async || {
        let programs = stage::caches(client).await;
        PROGRAMS
            .into_iter()
            .find(|name| programs[name]["backend"] == second)
    };
    stage::until("a program has moved", async || moved().await.is_some()).await;
    let name = moved().await.expect("one of them");
    let acted = step(client, model, name, TOKENS + MORE).await;
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_migrations_total") >= 1);
    acted
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
    let cached = one_moves(&stand, MODEL, &second).await.cached();
    assert!(cached >= u64::from(TOKENS) - 16, "{cached} of {TOKENS}");
    stand.finish().await;
}
