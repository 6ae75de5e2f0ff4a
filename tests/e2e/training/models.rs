//! The model of a job: which engines can be captured, and steps that another model sampled.

use std::fs;

use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::fixture::{Fixture, MODEL, chat, engine, plain_endpoint};
use treadle_tests::support::raw_engine::RawEngine;

use super::tokens::{answer, gateway, release, step, vllm};
use super::{batch, declare, get, payload, proven, put};
use crate::offload::stage::until;

#[tokio::test(flavor = "multi_thread")]
async fn what_another_model_sampled_is_context_only() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let settings = json!({"model": "own", "group_size": 1, "batch_groups": 1,
        "capture": "tokens", "rewarded": false});
    declare(client, settings).await;
    for (model, prompt, output) in [
        ("own", vec![1, 2, 3], vec![4, 5]),
        ("judge", vec![1, 2, 3, 4, 5, 6], vec![7]),
        ("own", vec![1, 2, 3, 4, 5, 6, 7, 8], vec![9]),
        ("judge", vec![10, 11], vec![12]),
    ] {
        let mut body = chat("p", "hello", 5);
        body["model"] = json!(model);
        let sent = step(client, "p", body);
        answer(engine.request().await, &vllm(&prompt, &output)).await;
        sent.await.expect("it ends").ok();
    }
    release(client, "p").await;
    batch(client, 1).await;
    let text = payload(client, 1, "?format=json").await;
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    let sequences = &text["members"][0]["sequences"];
    assert_eq!(sequences.as_array().map(Vec::len), Some(1), "{sequences}");
    assert_eq!(sequences[0]["ids"], json!([1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(sequences[0]["mask"], json!([0, 0, 0, 1, 1, 0, 0, 0, 1]));
    assert_eq!(
        sequences[0]["versions"],
        json!([[3, 5, 0, 0], [8, 9, 0, 0]])
    );
    let steps = get(client, "/members/p/steps").await.ok();
    let excluded = json!([{"step": 1, "reason": "another model produced it"},
        {"step": 3, "reason": "another model produced it"}]);
    assert_eq!(steps["excluded"], excluded);
    assert_eq!(text["members"][0]["excluded"], excluded);
    let file = payload(client, 1, "").await;
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("a payload");
    let meta = tensors.tensor("meta").expect("it is there").data();
    let meta: Value = serde_json::from_slice(meta).expect("JSON");
    assert_eq!(meta["members"][0]["excluded"], excluded);
    let folder = tempfile::tempdir().expect("a folder");
    let view = get(client, "/batches/1").await;
    fs::write(folder.path().join("batch-1.json"), &view.body).expect("it is written");
    let path = folder.path().join("batch-1.safetensors");
    fs::write(path, &file).expect("it is written");
    assert_eq!(proven(client, folder.path())["samples_proven"], 1);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_engine_can_capture_is_refused_when_it_is_declared() {
    let engine = engine(10_000).await;
    let url = engine.url().clone();
    let fixture = Fixture::around(vec![engine], |config| {
        config.engines.endpoints = vec![plain_endpoint(&url, 10_000)];
    })
    .await;
    let client = &fixture.client;
    let captured = json!({"capture": "tokens", "model": MODEL});
    let is_refused = async || put(client, "", &captured).await.status == 400;
    until("an engine that answers", is_refused).await;
    let refused = put(client, "", &captured).await;
    let message = refused.refused(400, "invalid_field");
    let named = format!("{url} is of kind openai");
    assert!(message.contains(&named), "{message}");
    assert!(message.contains("vLLM, SGLang or llama.cpp"), "{message}");
    declare(client, json!({"capture": "none", "model": MODEL})).await;
    assert_eq!(get(client, "").await.ok()["settings"]["model"], MODEL);
    // No engine is known that serves it: one may come.
    declare(client, json!({"capture": "tokens", "model": "other"})).await;
    fixture.finish().await;
}
