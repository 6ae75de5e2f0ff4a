//! Moves of caches from engine to engine, by the default placement policy.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use treadle_config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, MODEL, engine};
use treadle_tests::support::policy::guest;

use super::stage;
use crate::conversation::ids;
use crate::plugins::crowd::{put_binding, upload};

/// Context of a program, in tokens.
pub(crate) const TOKENS: u32 = 1_600;
/// Tokens by which it grows.
pub(crate) const MORE: u32 = 100;
pub(crate) const PROGRAMS: [&str; 2] = ["one", "two"];

/// Settings with which programs move.
pub(crate) fn moving(config: &mut Config) {
    config.rollout.migration_interval_ms = 20;
    config.kv.migration_tokens_per_s = 100_000;
}

/// The result of a step of one of the programs.
pub(crate) struct Acted {
    pub(crate) request: Value,
    pub(crate) answer: Value,
}

impl Acted {
    /// Prompt tokens that the engine had in its cache.
    pub(crate) fn cached(&self) -> u64 {
        let details = &self.answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        details
            .as_u64()
            .expect("the engine reports what was cached")
    }
}

/// Unused program numbers: real engines outlive tests and keep the caches of earlier ones.
pub(crate) fn strangers(count: u32) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::process::id() % 4_000 * 100 + NEXT.fetch_add(count, Ordering::Relaxed)
}

/// Two programs.
pub(crate) struct Both {
    /// The number of the first.
    first: u32,
}

impl Both {
    pub(crate) fn new() -> Self {
        let first = strangers(2);
        Self { first }
    }

    /// Runs a step of one of them with this much context.
    pub(crate) async fn step(
        &self,
        client: &Client,
        model: &str,
        name: &str,
        tokens: u32,
    ) -> Acted {
        let number = self.first + u32::from(name != PROGRAMS[0]);
        let request = json!({
            "model": model, "prompt": ids(number, 0, tokens as usize), "max_tokens": 8,
            "temperature": 0, "ignore_eos": true, "return_token_ids": true,
        });
        let mut named = request.clone();
        named["program_id"] = json!(name);
        let answer = client.post(COMPLETIONS, &named).await.ok();
        Acted { request, answer }
    }
}

/// Binds a placement policy that moves programs, and runs a step of two programs.
pub(crate) async fn both_act(fixture: &Fixture, model: &str) -> Both {
    let client = &fixture.client;
    upload(client, "/api/v1/plugins", guest("default-placement"))
        .await
        .ok();
    let config = json!({"migrate_slack": 0.0, "moves_max": 1});
    let binding = json!({"world": "placement", "policy": "default-placement", "config": config});
    put_binding(client, &binding).await.ok();
    let both = Both::new();
    for name in PROGRAMS {
        both.step(client, model, name, TOKENS).await;
    }
    both
}

/// Adds a second server.
pub(crate) async fn joins(fixture: &Fixture, second: &str) {
    let worker = json!({"url": second, "kind": "vllm"});
    fixture.client.post("/workers", &worker).await.ok();
}

/// Two programs act at the only engine; then a second one comes, and one of them moves there.
/// Returns its next step.
pub(crate) async fn one_moves(fixture: &Fixture, model: &str, second: &str) -> Acted {
    let client = &fixture.client;
    let both = both_act(fixture, model).await;
    joins(fixture, second).await;
    let moved = async || {
        let programs = stage::caches(client).await;
        PROGRAMS
            .into_iter()
            .find(|name| programs[name]["backend"] == second)
    };
    stage::until("a program has moved", async || moved().await.is_some()).await;
    let name = moved().await.expect("one of them");
    let acted = both.step(client, model, name, TOKENS + MORE).await;
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_migrations_total") >= 1);
    acted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_moves_between_simulated_engines() {
    let engines = vec![engine(100_000).await, engine(100_000).await];
    let second = engines[1].url();
    let fixture = Fixture::around(engines, |config| {
        moving(config);
        config.engines.endpoints.truncate(1);
    })
    .await;
    let cached = one_moves(&fixture, MODEL, &second).await.cached();
    assert!(cached >= u64::from(TOKENS) - 16, "{cached} of {TOKENS}");
    fixture.finish().await;
}
