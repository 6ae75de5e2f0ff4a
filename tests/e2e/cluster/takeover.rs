//! The scheduler dies, or only stalls: another takes over, unnoticed by clients of other daemons.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::{Config, Role};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::cluster::{Cluster, until_scheduled};
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::{COMPLETIONS, MODEL, endpoint, engine, release_all, settled};
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::services::{self, Schema};

use super::DAEMON;

fn ask(program: &str, prompt_tokens: u32, max_tokens: u32) -> Value {
    let prompt: Vec<u32> = (0..prompt_tokens).collect();
    json!({"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "program_id": program})
}

fn streaming(program: &str, max_tokens: u32) -> Value {
    let mut body = ask(program, 100, max_tokens);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    body
}

async fn release(client: &Client, program: &str) {
    let released = json!({"program_id": program});
    let began = std::time::Instant::now();
    loop {
        let answer = client.post("/programs/release", &released).await;
        // Nobody schedules during a takeover; that is told, and to try again.
        if answer.status != 503 {
            answer.ok();
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{answer:?}");
        answer.refused(503, "overloaded");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A program on record.
async fn stored(client: &Client, program: &str) -> Value {
    let path = format!("/api/v1/programs/{program}");
    client.get(&path).await.ok()
}

async fn kept(client: &Client, program: &str) -> (u64, u64) {
    let row = stored(client, program).await;
    let steps = client
        .get(&format!("/api/v1/programs/{program}/steps"))
        .await;
    let steps = steps.ok()["steps"].as_array().expect("a list").len() as u64;
    (row["steps"].as_u64().expect("a count"), steps)
}

/// Whether all steps have come: one that arrives while nobody schedules is refused.
fn all_came(metrics: &Metrics) -> bool {
    let arrived = metrics.count("treadle_steps_arrived_total");
    arrived >= 17 && metrics.count("treadle_steps_running") >= 6
}

/// Kills the scheduler while streams and waiting steps of the other daemon are under way.
async fn streams_outlive(tune: impl FnOnce(&mut Config)) {
    let engine = engine(20_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
        tune(config);
    });
    let first = cluster.start(Role::All).await;
    until_scheduled(&[&first], 0).await;
    let second = cluster.start(Role::All).await;
    let client = second.client.clone();
    for program in 0..8 {
        let done = client
            .post(COMPLETIONS, &ask(&format!("p{program}"), 100, 5))
            .await;
        done.ok();
    }
    // Long enough to be under way at the kill, and after it.
    let streams = (0..6).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let body = streaming(&format!("p{n}"), 4_000);
            client.stream(COMPLETIONS, &body).await.finish().await
        })
    });
    let streams: Vec<_> = streams.collect();
    // These find no room until others have ended.
    let waiting = (0..3).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let program = format!("large{n}");
            client
                .post(COMPLETIONS, &ask(&program, 12_000, 5))
                .await
                .ok();
            release(&client, &program).await;
        })
    });
    let waiting: Vec<_> = waiting.collect();
    client.until("under way", all_came).await;
    first.kill();
    until_scheduled(&[&second], 0).await;
    for stream in streams {
        let ended = stream.await.expect("no panic");
        assert!(
            !ended.broken && ended.is_done(),
            "a stream broke at the takeover"
        );
        assert_eq!(ended.usage().expect("usage")["completion_tokens"], 4_000);
    }
    for program in (0..8).map(|n| format!("p{n}")) {
        assert_eq!(stored(&client, &program).await["phase"], "acting");
        release(&client, &program).await;
    }
    for answer in waiting {
        answer.await.expect("no panic");
    }
    for program in 0..6 {
        assert_eq!(
            kept(&client, &format!("p{program}")).await,
            (2, 2),
            "p{program}"
        );
    }
    assert_eq!(kept(&client, "large0").await, (1, 1));
    settled(&client).await;
    release_all(&client).await;
    assert_eq!(engine.snapshot().await.running, 0);
    second.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_their_scheduler_on_a_file() {
    streams_outlive(|_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_their_scheduler_on_postgres() {
    if services::are_skipped() {
        return;
    }
    let schema = Schema::fresh("takeover");
    streams_outlive(|config| {
        config.store.url = services::postgres_url().into();
        config.store.schema = schema.name.clone();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_froze_is_fenced_when_it_wakes() {
    if services::are_skipped() {
        return;
    }
    let schema = Schema::fresh("frozen");
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
        config.store.url = services::postgres_url().into();
        config.store.schema = schema.name.clone();
    });
    let first = cluster.start(Role::All).await;
    until_scheduled(&[&first], 0).await;
    let second = cluster.start(Role::All).await;
    let client = second.client.clone();
    client.post(COMPLETIONS, &ask("p", 100, 5)).await.ok();
    first.freeze();
    until_scheduled(&[&second], 0).await;
    client.post(COMPLETIONS, &ask("p", 120, 5)).await.ok();
    first.thaw();
    // It detects that it is superseded, and serves through the other one.
    let began = std::time::Instant::now();
    loop {
        let answer = first.client.post(COMPLETIONS, &ask("p", 140, 5)).await;
        if answer.status.is_success() && until_scheduled(&[&second, &first], 0).await == 0 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{answer:?}");
    }
    let (counted, listed) = kept(&client, "p").await;
    assert!(counted >= 3 && counted == listed, "{counted} {listed}");
    settled(&client).await;
    release_all(&client).await;
    first.kill();
    second.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_step_died_with_the_scheduler_is_on_record_as_acting() {
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
        config.cluster.gateway_timeout_s = 3;
    });
    let first = cluster.start(Role::All).await;
    until_scheduled(&[&first], 0).await;
    let second = cluster.start(Role::All).await;
    let client = second.client.clone();
    let body = streaming("p", 50_000);
    let stream = first.client.stream(COMPLETIONS, &body).await;
    client
        .until("running", |m| m.count("treadle_steps_running") == 1)
        .await;
    assert_eq!(stored(&client, "p").await["phase"], "reasoning");
    first.kill();
    assert!(stream.finish().await.broken);
    until_scheduled(&[&second], 0).await;
    settled(&client).await;
    assert_eq!(stored(&client, "p").await["phase"], "acting");
    let steps = client.get("/api/v1/programs/p/steps").await.ok();
    assert_eq!(steps["steps"][0]["outcome"], "interrupted", "{steps}");
    let token = std::fs::read_to_string(cluster.token_file()).expect("a token");
    let daemon = ["--url", client.base(), "--token", token.trim()];
    let shown = treadle(&[&["programs", "p", "--json"], &daemon[..]].concat());
    assert_eq!(shown.ok()["phase"], "acting");
    release_all(&client).await;
    second.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_daemon_takes_over_from_the_one_before() {
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
    });
    let first = cluster.start(Role::All).await;
    until_scheduled(&[&first], 0).await;
    let second = cluster.start(Role::All).await;
    let client = second.client.clone();
    client.post(COMPLETIONS, &ask("p", 100, 5)).await.ok();
    let stream = client.stream(COMPLETIONS, &streaming("p", 3_000)).await;
    first.kill();
    let ended = stream.finish().await;
    assert!(ended.is_done() && !ended.broken);
    let third: DaemonProcess = cluster.start(Role::All).await;
    until_scheduled(&[&second], 0).await;
    second.kill();
    until_scheduled(&[&third], 0).await;
    assert_eq!(kept(&third.client, "p").await, (2, 2));
    settled(&third.client).await;
    release_all(&third.client).await;
    third.kill();
    engine.shutdown().await;
}
