//! An address with ranks is one engine to its trainer: it is called once, and all its ranks are
//! fenced.

use super::generations::{BUCKET, PROOF, Trainer};
use super::*;
use treadle_tests::support::raw_engine::RawEngine;

/// SGLang with parallel attention, on two GPUs.
const TWO_RANKS: &str =
    r#"{"max_total_num_tokens":1000,"tp_size":2,"dp_size":2,"enable_dp_attention":true}"#;

/// Waits until both ranks are in a state.
async fn both_are(client: &Client, state: &str) {
    let mut states = Vec::new();
    for _ in 0..600 {
        let listed = client.get("/workers").await.ok();
        let workers = listed["workers"].as_array().expect("a list").iter();
        states = workers.map(|worker| worker["state"].clone()).collect();
        if states == [state, state] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{states:?} instead of {state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_with_ranks_is_called_once_and_fenced_as_a_whole() {
    let engine = RawEngine::start().await;
    engine.set_info(TWO_RANKS);
    let mut trainer = Trainer::at(engine, true).await;
    let client = trainer.fixture.client.clone();
    both_are(&client, "active").await;
    let join = "/init_weights_update_group";
    let group = json!({"master_address": "trainer", "rank_offset": 1, "world_size": 3});
    let (answer, asked) = trainer.call(join, group).await;
    answer.ok();
    assert_eq!(asked, [join], "its ranks are two, and join by one call");
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    both_are(&client, "fenced").await;
    let [checker, flush, resume] = PROOF;
    trainer
        .asks(BUCKET, &["/begin_weight_update", BUCKET])
        .await;
    let all = ["/end_weight_update", checker, flush, resume];
    trainer.asks("/continue_generation", &all).await;
    both_are(&client, "active").await;
    let view = get(&client, "/weights").await.ok();
    assert_eq!(view["workers"].as_array().map(Vec::len), Some(1), "{view}");

    // Only its first rank stands for it.
    let second = "/api/v1/jobs/math/workers/1/engine/pause_generation";
    let refused = client.post(second, &json!({})).await;
    let refusal = refused.refused(404, "worker_unknown");
    assert!(refusal.contains("not the first rank"), "{refusal}");
    assert!(trainer.engine.is_idle());

    // A torn engine has no rank that is whole.
    trainer
        .asks("/pause_generation", &["/pause_generation"])
        .await;
    trainer
        .asks(BUCKET, &["/begin_weight_update", BUCKET])
        .await;
    trainer.fails = true;
    let (answer, asked) = trainer.call("/continue_generation", json!({})).await;
    let refusal = answer.refused(409, "weights_conflict");
    assert!(refusal.contains("may be a mixture"), "{refusal}");
    assert_eq!(asked, ["/end_weight_update"]);
    both_are(&client, "fenced").await;
    trainer.fixture.finish().await;
}
