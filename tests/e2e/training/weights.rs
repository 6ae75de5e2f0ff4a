//! Versions of weights that the daemon loads into (simulated) engines: what fails is fenced, the
//! rest serves, and all come back.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_engine_sim::LoadFault;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{Fixture, MODEL, chat};

use super::{batch, declare, get, member, post, submit};

async fn publish(client: &Client, version: u64) -> Value {
    let body = json!({"version": version, "folder": format!("/weights/{version}")});
    post(client, "/weights", body).await.ok()
}

/// The weights once no update is under way.
pub(super) async fn ended(client: &Client) -> Value {
    let view = get(client, "/weights?wait_s=30").await.ok();
    assert_eq!(view["update"], Value::Null, "{view}");
    view
}

/// The weights once all engines serve a version.
pub(super) async fn serving(client: &Client, version: u64) -> Value {
    for _ in 0..600 {
        let view = get(client, "/weights").await.ok();
        let workers = view["workers"].as_array().expect("a list");
        let serves =
            |worker: &Value| worker["fenced"] == false && worker["held"]["version"] == version;
        if workers.iter().all(serves) {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", get(client, "/weights").await.ok());
}

/// A run whose batch `number` was trained.
pub(super) async fn train(client: &Client, number: u64) {
    let key = format!("g{number}");
    submit(client, &[&key]).await;
    member(client, &format!("p{number}"), &key, 1.0).await;
    batch(client, number).await;
    let path = format!("/batches/{number}/trained");
    post(client, &path, json!({})).await.ok();
}

/// Simulated engines, declared as one software or the other: they have the control paths of both.
async fn run(engines: usize, kind: EngineChoice) -> Fixture {
    let fixture = Fixture::tuned(engines, 10_000, |config| {
        for endpoint in &mut config.engines.endpoints {
            endpoint.kind = Some(kind);
        }
    })
    .await;
    let settings = json!({"group_size": 1, "batch_groups": 1, "rewarded": false, "lag_max": 3});
    declare(&fixture.client, settings).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_serves_once_engines_have_proven_it() {
    let fixture = run(3, EngineChoice::Vllm).await;
    let client = &fixture.client;
    get(client, "/weights")
        .await
        .refused(404, "weights_unknown");
    let ahead = json!({"version": 1, "folder": "/weights/1"});
    post(client, "/weights", ahead)
        .await
        .refused(409, "version_conflict");
    train(client, 1).await;
    for folder in ["weights/1", "/weights/../secret", ""] {
        let wrong = json!({"version": 1, "folder": folder});
        post(client, "/weights", wrong)
            .await
            .refused(400, "invalid_field");
    }
    publish(client, 1).await;
    let view = ended(client).await;
    assert_eq!(
        (&view["last"]["held"], &view["last"]["behind"]),
        (&json!(3), &json!([]))
    );
    assert_eq!(view["serving"]["name"], "0.1");
    assert_eq!(get(client, "").await.ok()["version"], 1);
    publish(client, 1).await;
    assert_eq!(
        ended(client).await["last"],
        view["last"],
        "the same again changes nothing"
    );
    let told = post(client, "/versions", json!({"version": 1})).await;
    told.refused(409, "version_conflict");
    let older = json!({"version": 0, "folder": "/weights/0"});
    post(client, "/weights", older)
        .await
        .refused(409, "version_conflict");
    // What engines answer names the version that is on record.
    let body = json!({"text": "hello", "sampling_params": {"max_new_tokens": 4}});
    let answer = client.post("/generate", &body).await.ok();
    assert_eq!(answer["meta_info"]["weight_version"], "0.1");
    client.delete("/api/v1/jobs/math/weights").await.ok();
    get(client, "/weights")
        .await
        .refused(404, "weights_unknown");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vllm_that_fails_is_fenced_and_comes_back() {
    // Its name is that of a version only once that has loaded.
    fail_in_turn(EngineChoice::Vllm, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_sglang_that_fails_is_fenced_and_comes_back() {
    // The others have its checksum, so its lost answer does not matter.
    fail_in_turn(EngineChoice::Sglang, 3).await;
}

/// The first of three engines fails in each way. `held_if_lost` engines serve a version at once if only
/// the answer of one was lost.
async fn fail_in_turn(kind: EngineChoice, held_if_lost: u64) {
    let fixture = run(3, kind).await;
    let client = &fixture.client;
    let faults = [
        LoadFault::Refuse,
        LoadFault::Tear,
        LoadFault::Lose,
        LoadFault::Lie,
    ];
    for (number, fault) in (1..).zip(faults) {
        train(client, number).await;
        fixture.engines[0].set_load_fault(fault);
        publish(client, number).await;
        let view = ended(client).await;
        let held = if fault == LoadFault::Lose {
            held_if_lost
        } else {
            2
        };
        assert_eq!(view["last"]["held"], held, "{fault:?}: {view}");
        assert_eq!(view["serving"]["version"], number);
        if held == 2 {
            let behind = &view["last"]["behind"][0];
            assert!(
                behind["cause"]
                    .as_str()
                    .is_some_and(|cause| !cause.is_empty()),
                "{view}"
            );
        }
        // Steps go on at the others meanwhile.
        for _ in 0..3 {
            client
                .post("/v1/chat/completions", &chat("steady", "go on", 4))
                .await
                .ok();
        }
        serving(client, number).await;
        assert!(
            !fixture.engines[0].is_torn(),
            "{fault:?}: it loaded all of it again"
        );
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_weights_somebody_else_changed_is_fenced_at_its_next_answer() {
    let fixture = run(1, EngineChoice::Sglang).await;
    let client = &fixture.client;
    train(client, 1).await;
    publish(client, 1).await;
    ended(client).await;
    let engine = Client::new(fixture.engines[0].url());
    let rogue = json!({"model_path": "/elsewhere", "weight_version": "rogue"});
    engine.post("/update_weights_from_disk", &rogue).await.ok();
    let body = json!({"text": "hello", "sampling_params": {"max_new_tokens": 4}});
    let named = client.post("/generate", &body).await.ok();
    assert_eq!(named["meta_info"]["weight_version"], "rogue");
    let view = serving(client, 1).await;
    assert_eq!(view["serving"]["name"], "0.1");
    let again = client.post("/generate", &body).await.ok();
    assert_eq!(again["meta_info"]["weight_version"], "0.1");
    fixture.finish().await;
}

/// Requests that arrive while the only engine is updated wait and are answered.
#[tokio::test(flavor = "multi_thread")]
async fn steps_wait_for_an_update_and_go_on() {
    let fixture = run(1, EngineChoice::Sglang).await;
    let client = &fixture.client;
    train(client, 1).await;
    let mut steps = tokio::task::JoinSet::new();
    for number in 0..20 {
        let client = client.clone();
        steps.spawn(async move {
            for turn in 0..5 {
                let text = format!("turn {turn} of {number}");
                let body = chat(&format!("busy-{number}"), &text, 32);
                let answer = client.post("/v1/chat/completions", &body).await.ok();
                assert_eq!(answer["model"], MODEL);
            }
        });
    }
    publish(client, 1).await;
    let view = ended(client).await;
    assert_eq!(view["last"]["held"], 1, "{view}");
    while let Some(step) = steps.join_next().await {
        step.expect("it is answered");
    }
    fixture.finish().await;
}
