//! Programs that crowd the engines, so that policies have something to decide.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::stand::{COMPLETIONS, MODEL, Stand};

async fn upload(client: &Client, path: &str, bytes: Vec<u8>) -> Answer {
    let headers = [("content-type", "application/wasm")];
    client.send(Method::POST, path, &headers, bytes).await
}

async fn bind(client: &Client, policy: &str) -> Value {
    let body = json!({"world": "eviction", "policy": policy}).to_string();
    client
        .send(Method::PUT, "/v1/bindings", &[], body)
        .await
        .ok()
}

/// Turns that last a tenth of a second, so that all programs get theirs.
fn hurried(config: &mut treadle::config::Config) {
    config.scheduler.time_scale = 10.0;
    config.scheduler.deferral_s_max = 1;
    config.scheduler.quantum_s = 0;
}

/// Programs that crowd the engines until told to stop; each gives its steps.
fn crowd(
    stand: &Stand,
    programs: u32,
    stop: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Vec<tokio::task::JoinHandle<u64>> {
    let one = |program: u32| {
        let (client, stop) = (stand.client.clone(), stop.clone());
        tokio::spawn(async move {
            let mut steps = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || steps == 0 {
                let tokens: Vec<u32> = (0..600 + steps as u32 % 20 * 20)
                    .map(|t| t + (program << 16))
                    .collect();
                let body = json!({
                    "model": MODEL, "prompt": tokens, "max_tokens": 20,
                    "program_id": format!("p{program}"),
                });
                client.post(COMPLETIONS, &body).await.ok();
                steps += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            steps
        })
    };
    (0..programs).map(one).collect()
}

async fn stop(crowd: Vec<tokio::task::JoinHandle<u64>>, stop: &std::sync::atomic::AtomicBool) {
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for program in crowd {
        assert!(program.await.expect("no request fails") > 0);
    }
}

async fn deciding_policies(client: &Client, programs: u32) -> BTreeSet<String> {
    let mut policies = BTreeSet::new();
    for program in 0..programs {
        let path = format!("/v1/programs/p{program}/decisions");
        let page = client.get(&path).await.ok();
        let decisions = page["decisions"].as_array().expect("a list");
        let names = decisions
            .iter()
            .filter_map(|d| Some(d["policy"].as_str()?.to_owned()));
        policies.extend(names);
    }
    policies
}

