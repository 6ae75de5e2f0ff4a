//! The gateway in front of two real SGLang servers with the same model, whose URLs are in
//! `TREADLE_TEST_SGLANG_URL` with a comma between. `make test-sglang` starts them and runs these.

mod answers;
mod leaving;
mod pauses;
mod preemption;
mod programs;
mod recognition;
mod weights;

use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

use crate::offload::moves::strangers;
use crate::offload::stage;
use crate::training::real::{Engine, Kind, is_captured};

const GENERATE: &str = "/generate";
/// Timeout for slow engines, such as those on a CPU.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Tokens of a stream that takes far longer than the test waits.
const ENDLESS: u32 = 16_000;

/// The servers.
fn pair() -> [String; 2] {
    let urls = std::env::var("TREADLE_TEST_SGLANG_URL");
    let urls = urls.expect("set TREADLE_TEST_SGLANG_URL to the URLs of two SGLang servers");
    let urls = urls.split(',').map(|url| url.trim_end_matches('/'));
    let urls: Vec<_> = urls.map(str::to_owned).collect();
    let [first, second] = &urls[..] else {
        panic!("name two servers in TREADLE_TEST_SGLANG_URL, with a comma between");
    };
    [first.clone(), second.clone()]
}

/// A client of a server itself.
fn client_of(url: &str) -> Client {
    Client::new(url).with_timeout(TIMEOUT)
}

/// A daemon that is configured only with the servers' URLs, once it uses both.
async fn gateway() -> Fixture {
    gateway_tuned(|_| ()).await
}

async fn gateway_tuned(tune: impl FnOnce(&mut Config)) -> Fixture {
    let endpoint = |url: String| Endpoint {
        url,
        kind: Some(EngineChoice::Auto),
        capacity_tokens: None,
        class: None,
        role: None,
        profile: None,
    };
    let mut fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = pair().map(endpoint).into();
        tune(config);
    })
    .await;
    fixture.client = fixture.client.with_timeout(TIMEOUT);
    let client = &fixture.client;
    let both = async || {
        let workers = workers(client).await;
        workers.len() == 2 && workers.iter().all(|worker| worker["is_healthy"] == true)
    };
    stage::until("both servers are used", both).await;
    fixture
}

async fn workers(client: &Client) -> Vec<Value> {
    let page = client.get("/api/v1/workers").await.ok();
    page["workers"].as_array().expect("a list").clone()
}

/// The sum of a metric over all servers.
async fn sum(metric: &str) -> u64 {
    let mut sum = 0;
    for url in pair() {
        sum += count(&url, metric).await;
    }
    sum
}

/// A server's metric; 0 if it has counted nothing yet.
async fn count(url: &str, metric: &str) -> u64 {
    let metrics = client_of(url).metrics().await;
    // Gauges of current requests have a row for each priority and one for all.
    let is_of_all = metric.ends_with("_reqs") && metrics.label(metric, "priority").is_some();
    let label = if is_of_all {
        "priority=\"\""
    } else {
        "model_name"
    };
    metrics.count_with(metric, label)
}

async fn until_running(requests: u64) {
    let as_many = async || sum("sglang:num_running_reqs").await == requests;
    stage::until("as many requests run as should", as_many).await;
}

/// Tokens that no other test uses.
fn fresh(count: usize) -> Vec<u32> {
    crate::conversation::ids(strangers(1), 0, count)
}

/// A request of slime.
fn generation(ids: &[u32], tokens: u32) -> Value {
    json!({
        "input_ids": ids, "return_logprob": true,
        "sampling_params": {
            "max_new_tokens": tokens, "temperature": 0, "ignore_eos": true, "skip_special_tokens": false,
        },
    })
}

/// The tokens of an answer.
fn output(answer: &Value) -> Vec<u32> {
    let ids = answer["output_ids"].as_array().expect("its tokens");
    let ids = ids.iter().filter_map(Value::as_u64);
    ids.map(|id| id as u32).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_tokens_are_captured() {
    let fixture = gateway().await;
    let [first, _] = pair();
    let models = client_of(&first).get("/v1/models").await.ok();
    let engine = Engine {
        client: client_of(&first),
        model: models["data"][0]["id"].as_str().expect("a name").to_owned(),
        kind: Kind::Sglang,
    };
    is_captured(&fixture.client, &engine).await;
    fixture.finish().await;
}
