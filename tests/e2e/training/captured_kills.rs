//! Agents, a trainer and their daemon, which is killed at random: every batch that the trainer got
//! has samples of the very tokens that engines sampled.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, MODEL, endpoint, engine};
use treadle_tests::support::process::DaemonProcess;

use super::{JOB, on_disk, proven};
use crate::restart::DAEMON;

const AGENTS: u32 = 8;
const BATCHES: u64 = 8;
const TURNS: usize = 3;
const KILLS: u32 = 6;

/// Sends a request until it is answered: daemons die meanwhile.
pub(super) async fn insist(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Value {
    loop {
        let sent = client
            .open(method.clone(), path, headers, body.to_string())
            .await;
        if let Ok(response) = sent {
            let status = response.status();
            let whole = response.into_body().collect().await;
            let whole = whole.ok().map(http_body_util::Collected::to_bytes);
            let read = whole.and_then(|body| serde_json::from_slice(&body).ok());
            match read {
                Some(read) if !status.is_server_error() => return read,
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An agent: it talks in turns, ends its program, and begins another one.
async fn agent(client: Client, number: u32, over: Arc<AtomicBool>, ended: Arc<AtomicU32>) {
    for run in 0.. {
        let program = format!("agent-{number}-{run}");
        // Two agents sample the same prompt.
        let group = format!("g{}-{run}", number / 2);
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", &*group),
            ("x-program-id", &*program),
        ];
        let mut messages = vec![json!({"role": "user", "content": format!("task {group}")})];
        for _ in 0..TURNS {
            if over.load(Relaxed) {
                return;
            }
            let body = json!({"model": MODEL, "messages": messages, "max_tokens": 12});
            let answer = insist(&client, Method::POST, CHAT, &headers, &body).await;
            // A program that was cut ends here.
            let Some(message) = answer["choices"][0].get("message") else {
                break;
            };
            messages.push(message.clone());
            messages.push(json!({"role": "user", "content": "go on"}));
        }
        let path = format!("/api/v1/programs/{program}");
        insist(&client, Method::DELETE, &path, &[], &Value::Null).await;
        ended.fetch_add(1, Relaxed);
    }
}

/// Trains on batches and stores each as it came.
async fn trainer(client: Client, folder: &Path, over: Arc<AtomicBool>) {
    for number in 1..=BATCHES {
        let path = format!("{JOB}/batches/{number}?wait_s=2");
        let view = loop {
            let view = insist(&client, Method::GET, &path, &[], &Value::Null).await;
            if view["ready"] == true {
                break view;
            }
        };
        let payload = format!("{JOB}/batches/{number}/payload");
        let payload = loop {
            let sent = client.open(Method::GET, &payload, &[], "").await;
            if let Ok(response) = sent
                && response.status().is_success()
                && let Ok(body) = response.into_body().collect().await
            {
                break body.to_bytes();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        std::fs::write(
            folder.join(format!("batch-{number}.json")),
            view.to_string(),
        )
        .expect("a file");
        std::fs::write(folder.join(format!("batch-{number}.safetensors")), &payload)
            .expect("a file");
        for (path, body) in [
            (format!("{JOB}/batches/{number}/trained"), json!({})),
            (format!("{JOB}/versions"), json!({"version": number})),
        ] {
            insist(&client, Method::POST, &path, &[], &body).await;
        }
    }
    over.store(true, Relaxed);
}

#[tokio::test(flavor = "multi_thread")]
async fn captured_samples_survive_kills_of_the_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let engines = [engine(100_000).await, engine(100_000).await];
    let mut config = on_disk(folder.path());
    config.engines.endpoints = engines.iter().map(|e| endpoint(e.url())).collect();
    let mut daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let client = daemon.client.clone();
    let port = client
        .base()
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    config.server.listen.set_port(port.expect("a port"));
    let settings = json!({"group_size": 2, "batch_groups": 2, "capture": "tokens",
        "rewarded": false, "failures_max": 100});
    insist(&client, Method::PUT, JOB, &[], &settings).await;
    let batches = folder.path().join("batches");
    std::fs::create_dir(&batches).expect("a folder");
    let (over, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let agents: Vec<_> = (0..AGENTS)
        .map(|number| tokio::spawn(agent(client.clone(), number, over.clone(), ended.clone())))
        .collect();
    let trained = tokio::spawn({
        let (client, over) = (client.clone(), over.clone());
        let batches = batches.clone();
        async move { trainer(client, &batches, over).await }
    });
    for kill in 0..KILLS {
        // Other points of the run each time, the same in each run of the test.
        let pause = 200 + u64::from(kill) * 7_919 % 500;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        daemon.kill();
        daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    }
    let trained = tokio::time::timeout(Duration::from_mins(2), trained).await;
    trained.expect("it trains in time").expect("no panic");
    for agent in agents {
        agent.abort();
    }
    let report = proven(&client, &batches);
    assert_eq!(report["batches"], BATCHES, "{report}");
    assert_eq!(report["samples_checked"], BATCHES * 4, "{report}");
    assert_eq!(report["samples_proven"], BATCHES * 4, "{report}");
    assert!(ended.load(Relaxed) > 0);
    drop(daemon);
}
