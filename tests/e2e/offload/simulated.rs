//! Simulated engines: offloads under pressure, and moves in rollouts.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use treadle_engine_sim::{EngineSim, EngineSimOptions};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, MODEL, SPEED, engine};

use super::stage;

/// Context of a program, in tokens.
const TOKENS: u32 = 1_600;

#[tokio::test(flavor = "multi_thread")]
async fn simulated_engines_give_caches_away_and_take_them_back() {
    // Room for one and a half programs at each engine.
    let fixture = Fixture::tuned(2, u64::from(TOKENS) * 17 / 10, |config| {
        config.scheduler.time_scale = SPEED;
        config.scheduler.starvation_s_max = 1;
        config.scheduler.quantum_share = 0.0;
        config.kv.host_tokens_max = 100_000;
    })
    .await;
    let client = &fixture.client;
    let step = async |name: &str, number: u32, tokens: u32| {
        let prompt: Vec<u32> = (0..tokens).map(|at| number * 10_000 + at).collect();
        let body = json!({
            "model": MODEL, "prompt": prompt, "max_tokens": 4, "program_id": name,
        });
        let answer = client.post(COMPLETIONS, &body).await.ok();
        let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        cached.as_u64().expect("tokens")
    };
    step("a", 1, TOKENS - 160).await;
    step("b", 2, TOKENS).await;
    step("c", 3, TOKENS).await;
    let gone = async || {
        let programs = stage::caches(client).await;
        ["a", "b"]
            .into_iter()
            .find(|name| programs[name]["cache"]["at"] == "host")
    };
    stage::until("a cache is in host memory", async || gone().await.is_some()).await;
    let name = gone().await.expect("one of them");
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_held_tokens") >= 1_000);
    assert!(metrics.count("treadle_kv_held_bytes") > 100_000_000);
    assert!(metrics.value("treadle_kv_transfer_seconds_total") > 0.0);
    let status = client.get("/health").await.ok();
    assert!(
        status["kv"]["held_programs"].as_u64() >= Some(1),
        "{status}"
    );
    // The restored cache is the copy, not one that lingers at an engine.
    fixture.until_engines_idle().await;
    for engine in &fixture.engines {
        let engine = Client::new(engine.url());
        engine.post("/reset_prefix_cache", &json!({})).await;
    }
    stage::release(client, "c").await;
    let (number, tokens) = if name == "a" {
        (1, TOKENS - 160)
    } else {
        (2, TOKENS)
    };
    let cached = step(name, number, tokens + 100).await;
    assert!(
        cached >= u64::from(tokens / 16 * 16) - 16,
        "{cached} of {tokens}"
    );
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_offloads_total") >= 1);
    assert!(metrics.count("treadle_kv_loads_total") >= 1);
    assert_eq!(metrics.count("treadle_kv_transfers_failed_total"), 0);
    fixture.finish().await;
}

/// Context that host memory is configured to hold.
const HOST_TOKENS: u64 = 100_000;

/// The values of `kv.host_tokens_max` that the scheduler was configured with so far.
async fn host_tokens_told(client: &Client) -> Vec<u64> {
    let page = client.get("/api/v1/events?kind=configured").await.ok();
    let events = page["events"].as_array().expect("a list").iter();
    let told = |event: &Value| event["event"]["config"]["kv"]["host_tokens_max"].as_u64();
    events.filter_map(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn host_memory_is_planned_with_while_an_engine_can_offload() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    // It answers at once and keeps nothing.
    let options = EngineSimOptions {
        instant: true,
        model: MODEL.to_owned(),
        ..EngineSimOptions::default()
    };
    let unable = EngineSim::serve(listener, options).expect("good options");
    let fixture = Fixture::around(vec![unable], |config| {
        config.kv.host_tokens_max = HOST_TOKENS;
    })
    .await;
    let client = &fixture.client;
    let told = async |what: &[u64]| host_tokens_told(client).await == what;
    stage::until("none can", async || told(&[HOST_TOKENS, 0]).await).await;
    let able = engine(10_000).await;
    let body = json!({"url": able.url(), "kind": "vllm"});
    client.post("/api/v1/workers", &body).await.ok();
    let again = [HOST_TOKENS, 0, HOST_TOKENS];
    stage::until("one can", async || told(&again).await).await;
    fixture.finish().await;
}
