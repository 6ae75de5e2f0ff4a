//! Programs that overload the engines, so that policies have decisions to make.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, MODEL};

pub(crate) async fn upload(client: &Client, path: &str, bytes: Vec<u8>) -> Answer {
    let headers = [("content-type", "application/wasm")];
    client.send(Method::POST, path, &headers, bytes).await
}

pub(super) async fn bind(client: &Client, policy: &str) -> Value {
    put_binding(client, &json!({"world": "eviction", "policy": policy}))
        .await
        .ok()
}

/// Changes a binding.
pub(crate) async fn put_binding(client: &Client, binding: &Value) -> Answer {
    client
        .send(Method::PUT, "/api/v1/bindings", &[], binding.to_string())
        .await
}

/// The binding of a world that holds for everyone.
pub(super) fn everyones<'b>(bindings: &'b Value, world: &str) -> &'b Value {
    let all = bindings["bindings"].as_array().expect("a list");
    let is_it = |b: &&Value| b["world"] == world && b["job"] == "*";
    all.iter().find(is_it).expect("each world has one")
}

/// Turns that last a tenth of a second, so that all programs get theirs.
pub(super) fn hurried(config: &mut treadle_config::Config) {
    config.scheduler.time_scale = 10.0;
    config.scheduler.starvation_s_max = 1;
    config.scheduler.quantum_share = 0.0;
}

/// Time in tools between two steps.
const PAUSE: Duration = Duration::from_millis(5);

/// Programs that crowd the engines until stopped; each gives its steps.
pub(super) fn crowd(
    fixture: &Fixture,
    programs: u32,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<u64>> {
    paced_crowd(fixture, programs, PAUSE, stop)
}

/// As [`crowd`], with this much time in tools between two steps.
pub(super) fn paced_crowd(
    fixture: &Fixture,
    programs: u32,
    pause: Duration,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<u64>> {
    let one = |program: u32| {
        let (client, stop) = (fixture.client.clone(), stop.clone());
        tokio::spawn(async move {
            let mut steps = 0;
            while !stop.load(Ordering::Relaxed) || steps == 0 {
                let tokens: Vec<u32> = (0..600 + steps as u32 % 20 * 20)
                    .map(|t| t + (program << 16))
                    .collect();
                let body = json!({
                    "model": MODEL, "prompt": tokens, "max_tokens": 20,
                    "program_id": format!("p{program}"),
                });
                client.post(COMPLETIONS, &body).await.ok();
                steps += 1;
                tokio::time::sleep(pause).await;
            }
            steps
        })
    };
    (0..programs).map(one).collect()
}

pub(super) async fn stop(crowd: Vec<tokio::task::JoinHandle<u64>>, stop: &AtomicBool) {
    stop.store(true, Ordering::Relaxed);
    for program in crowd {
        assert!(program.await.expect("no request fails") > 0);
    }
}

/// The versions that decided about each program.
pub(super) async fn deciders(client: &Client, programs: u32) -> Vec<BTreeSet<String>> {
    let mut all = Vec::new();
    for program in 0..programs {
        let path = format!("/api/v1/programs/p{program}/decisions");
        let page = client.get(&path).await.ok();
        let decisions = page["decisions"].as_array().expect("a list");
        let names = decisions
            .iter()
            .filter_map(|d| Some(d["policy"].as_str()?.to_owned()));
        all.push(names.collect());
    }
    all
}

/// All versions that decided about any of the programs.
pub(super) async fn deciding_policies(client: &Client, programs: u32) -> BTreeSet<String> {
    deciders(client, programs)
        .await
        .into_iter()
        .flatten()
        .collect()
}
