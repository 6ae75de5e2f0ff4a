//! Engines: recognition, cordon, drain and activation by the API and by the command line.

use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, BufReader};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::{Answer, Client, TIMEOUT};
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, MODEL, endpoint, engine};
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::process::binary;

fn ask(program: &str, max_tokens: u32) -> Value {
    let prompt: Vec<u32> = (0..100).collect();
    json!({"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "program_id": program})
}

async fn set_state(client: &Client, worker: &str, state: &Value) -> Answer {
    let (path, body) = (format!("/api/v1/workers/{worker}"), json!({"state": state}));
    let body = body.to_string();
    client.send(http::Method::PATCH, &path, &[], body).await
}

/// The engine of a program.
async fn engine_of(client: &Client, program: &str) -> String {
    let programs = client.get("/programs").await.ok();
    let url = programs[program]["backend"].as_str();
    url.expect("it is placed").to_owned()
}

/// The id of the engine at a URL.
async fn id_of(client: &Client, url: &str) -> String {
    let workers = client.get("/api/v1/workers").await.ok();
    let mut rows = workers["workers"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["url"] == url).expect("it is there");
    row["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_leave_a_draining_engine_and_none_comes_to_a_cordoned_one() {
    let fixture = Fixture::start(2, 100_000).await;
    let client = &fixture.client;
    client.post(COMPLETIONS, &ask("p", 5)).await.ok();
    let first = engine_of(client, "p").await;
    let id = id_of(client, &first).await;
    let cordoned = set_state(client, &id, &json!("cordoned")).await.ok();
    assert_eq!(cordoned["state"], "cordoned");
    assert_eq!(cordoned["problem"], Value::Null);
    for program in ["p", "q", "r"] {
        client.post(COMPLETIONS, &ask(program, 5)).await.ok();
    }
    assert_eq!(engine_of(client, "p").await, first, "it goes on there");
    let second = engine_of(client, "q").await;
    assert_ne!(second, first);
    assert_eq!(engine_of(client, "r").await, second);
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_worker_takes_programs"), 1);
    assert_eq!(metrics.count("treadle_worker_healthy"), 2);

    let drained = set_state(client, &id, &json!("draining")).await.ok();
    assert_eq!(drained["state"], "drained", "no step runs there");
    client.post(COMPLETIONS, &ask("p", 5)).await.ok();
    assert_eq!(engine_of(client, "p").await, second);

    // No engine accepts programs: new steps wait until an operator activates one.
    let other = id_of(client, &second).await;
    let last = set_state(client, &other, &json!("draining")).await.ok();
    let problem = last["problem"].as_str().expect("a problem");
    assert!(problem.contains("wait in the queue"), "{problem}");
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.post(COMPLETIONS, &ask("q", 5)).await });
    let waits = |m: &Metrics| m.count("treadle_queue_steps") == 1;
    client.until("waiting", waits).await;
    set_state(client, &id, &json!("active")).await.ok();
    waiting.await.expect("no panic").ok();
    assert_eq!(engine_of(client, "q").await, first);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_checked_and_audited() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let unknown = set_state(client, "7", &json!("cordoned")).await;
    unknown.refused(404, "worker_unknown");
    for state in [json!("drained"), json!(1)] {
        let refused = set_state(client, "0", &state).await;
        refused.refused(400, "invalid_field");
        assert_eq!(refused.json()["error"]["param"], "state", "{state}");
    }
    let path = "/api/v1/workers/0";
    let empty = client.send(http::Method::PATCH, path, &[], "{}").await;
    empty.refused(400, "missing_field");
    let null = set_state(client, "0", &Value::Null).await;
    null.refused(400, "missing_field");
    let made = json!({"name": "viewer", "scope": "viewer"});
    let made = client.post("/api/v1/tokens", &made).await.ok();
    let viewer = client.with_token(made["secret"].as_str().expect("a secret"));
    let refused = set_state(&viewer, "0", &json!("cordoned")).await;
    refused.refused(403, "forbidden");

    set_state(client, "0", &json!("cordoned")).await.ok();
    let log = client.get("/api/v1/audit").await.ok();
    let log = log.to_string();
    assert!(log.contains("worker.state_set"), "{log}");
    set_state(client, "0", &json!("active")).await.ok();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_the_step_that_runs() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = fixture.client.clone();
    let url = client.base().to_owned();
    let token = client.token().expect("the owner's").to_owned();
    let run = |arguments: &[&str]| {
        let daemon = ["--url", &url, "--token", &token];
        treadle(&[&["workers"], arguments, &daemon].concat())
    };
    let running = tokio::spawn(async move { client.post(COMPLETIONS, &ask("p", 3_000)).await });
    let runs = |m: &Metrics| m.count("treadle_steps_running") == 1;
    fixture.client.until("running", runs).await;

    let cordoned = run(&["cordon", "0", "--json"]).ok();
    assert_eq!(cordoned["state"], "cordoned");
    let draining = run(&["drain", "0"]);
    assert!(
        draining.stdout.contains("is draining, with 1 programs"),
        "{draining:?}"
    );
    assert!(run(&["list"]).stdout.contains("draining"));
    let drained = run(&["drain", "0", "--wait"]);
    assert!(drained.stdout.contains("is drained"), "{drained:?}");
    let answer = running.await.expect("no panic").ok();
    assert_eq!(
        answer["usage"]["completion_tokens"], 3_000,
        "it was not cut"
    );
    let active = run(&["activate", "0"]);
    assert!(active.stdout.contains("is active"), "{active:?}");
    assert!(run(&["cordon", "9"]).refused().contains("worker_unknown"));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_waits_says_what_keeps_programs_and_gives_up() {
    let fixture = Fixture::start(2, 100_000).await;
    let client = fixture.client.clone();
    client.post(COMPLETIONS, &ask("p", 5)).await.ok();
    let first = engine_of(&client, "p").await;
    let id = id_of(&client, &first).await;
    let other = if id == "0" { "1" } else { "0" };
    set_state(&client, other, &json!("cordoned")).await.ok();
    let running = {
        let client = client.clone();
        tokio::spawn(async move { client.post(COMPLETIONS, &ask("p", 3_000)).await })
    };
    let runs = |m: &Metrics| m.count("treadle_steps_running") == 1;
    client.until("running", runs).await;

    let (url, token) = (client.base(), client.token().expect("the owner's"));
    let drain = ["workers", "drain", &id, "--wait", "--url", url];
    let drain = [&drain[..], &["--token", token]].concat();
    let gave_up = treadle(&[&drain[..], &["--timeout-s", "0"]].concat());
    assert!(gave_up.stderr.contains("no engine accepts"), "{gave_up:?}");
    let message = gave_up.refused();
    for words in [
        "still has 1 programs (the oldest: p) and 1 running steps after 0 s",
        "goes on draining; no engine accepts programs",
        "`treadle workers activate`",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let mut waiting = tokio::process::Command::new(binary())
        .args(&drain)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it runs");
    let told = waiting.stderr.take().expect("it is piped");
    let mut told = BufReader::new(told).lines();
    let mut line = async || told.next_line().await.expect("text").unwrap_or_default();
    assert!(line().await.contains("no engine accepts programs"));
    set_state(&client, other, &json!("active")).await.ok();
    assert_eq!(line().await, "another engine takes programs again");
    running.await.expect("no panic").ok();
    assert!(waiting.wait().await.expect("it ends").success());
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_of_an_engine_is_shown() {
    let engine = engine(100_000).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(EngineChoice::Auto),
            ..endpoint(engine.url())
        }];
    })
    .await;
    let began = Instant::now();
    let engine = loop {
        let workers = fixture.client.get("/api/v1/workers").await.ok();
        let engine = workers["workers"][0].clone();
        if engine["capabilities"]["offload"].is_boolean() {
            break engine;
        }
        assert!(began.elapsed() < TIMEOUT, "it was not queried: {engine}");
        tokio::task::yield_now().await;
    };
    // A simulated engine passes for SGLang, and names its version there.
    assert_eq!(engine["engine"], "sglang");
    assert_eq!(engine["version"], env!("CARGO_PKG_VERSION"));
    let able = &engine["capabilities"];
    assert_eq!(able["continues"], true);
    assert_eq!(able["offload"], able["migrate"]);
    // It is not disaggregated, and does not report whether it has priorities.
    assert_eq!(
        (&engine["role"], &able["priorities"]),
        (&Value::Null, &Value::Null)
    );
    fixture.finish().await;
}
