//! Updates of weights that treadle drives, also with a server that is killed in the middle of one.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, endpoint};
use treadle_tests::support::vllm_server::{Relay, VllmServer};

use super::copies::fresh;
use super::{TIMEOUT, client_of, gateway, model_of, pair, undisturbed};
use crate::conversation::answer_ids;
use crate::training::real::{Engine, Kind};
use crate::training::real_weights::{Run, change_in_mid_stream};

/// Ids of the engines in the order of their addresses.
const VICTIM: u64 = 0;
const OTHER: u64 = 1;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers at TREADLE_TEST_VLLM_URL"]
async fn vllm_answers_with_the_weights_on_record_when_they_change() {
    let (mut fixture, _, model) = gateway().await;
    fixture.client = fixture.client.with_timeout(TIMEOUT);
    let engines = pair().map(|url| Engine {
        client: client_of(&url),
        model: model.clone(),
        kind: Kind::Vllm,
    });
    change_in_mid_stream(&fixture.client, &engines).await;
    fixture.finish().await;
}

/// Runs a step of a new program, whose answer must be that of `like`. Returns the URL of its engine.
async fn step(client: &Client, program: &str, like: &str) -> Value {
    let mut request = json!({
        "model": model_of(like).await, "prompt": fresh(100), "max_tokens": 50, "temperature": 0,
        "ignore_eos": true, "return_token_ids": true,
    });
    let calm = undisturbed(like, &request).await;
    request["program_id"] = json!(program);
    let answer = client.post(COMPLETIONS, &request).await.ok();
    assert_eq!(answer_ids(&answer["choices"][0]), calm, "{program}");
    let path = format!("/api/v1/programs/{program}/steps");
    let page = client.get(&path).await.ok();
    page["steps"][0]["worker"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL, and another one to kill"]
async fn vllm_that_is_killed_in_an_update_is_loaded_before_it_serves_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(victim) = VllmServer::start(folder.path()).await else {
        return;
    };
    let [second, _] = pair();
    let mut relay = Relay::before(&victim).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![endpoint(relay.url()), endpoint(&second)];
    })
    .await;
    let client = &fixture.client.with_timeout(TIMEOUT);
    let Some(run) = Run::begin(client).await else {
        return;
    };
    run.publish(1).await;
    relay.held().await.let_go();
    run.ended(1, 2).await;

    run.publish(2).await;
    let loaded = relay.held().await;
    victim.kill();
    loaded.let_go();
    run.ended(2, 1).await;
    let lost = run.holding(VICTIM).await;
    assert_eq!(lost["fenced"], true, "{lost}");
    assert!(lost["cause"].as_str().is_some_and(|why| !why.is_empty()));
    assert_eq!(run.holding(OTHER).await["fenced"], false);
    assert_eq!(step(client, "meanwhile", &second).await, second);

    // The next process at this address has the weights that it started with.
    let next = VllmServer::start(folder.path()).await.expect("another one");
    relay.turn_to(&next);
    let loaded = relay.held().await;
    let back = run.holding(VICTIM).await;
    assert_eq!(
        (&back["fenced"], &back["call"]),
        (&json!(true), &json!("apply"))
    );
    assert_eq!(step(client, "before", &second).await, second);
    loaded.let_go();
    run.serving(2).await;
    let cordoned = json!({"state": "cordoned"}).to_string();
    let path = format!("/api/v1/workers/{OTHER}");
    client.send(Method::PATCH, &path, &[], cordoned).await.ok();
    assert_eq!(step(client, "after", &second).await, relay.url());
    fixture.finish().await;
}
