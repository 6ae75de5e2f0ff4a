//! Kills the daemon and starts it again on the same file: acknowledged work is still there.

use std::path::Path;

use serde_json::{Value, json};
use treadle_config::Config;
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{
    COMPLETIONS, MODEL, config, endpoint, engine, release_all, settled,
};
use treadle_tests::support::policy::lru_eviction;
use treadle_tests::support::process::{DaemonProcess, run_if_asked};

/// The test that is the daemon when a test below starts it.
pub(crate) const DAEMON: &str = "restart::daemon_of_the_other_tests";

#[test]
fn daemon_of_the_other_tests() {
    run_if_asked();
}

/// A daemon with its state in a folder and one engine.
fn on_disk(folder: &Path, engine: &str) -> Config {
    let mut config = config();
    config.store.path = folder.join("treadle.db").to_string_lossy().into_owned();
    config.store.snapshot_events = 100;
    config.engines.endpoints = vec![endpoint(engine)];
    config
}

async fn step(client: &Client, program: &str, tokens: u32) -> Value {
    let prompt: Vec<u32> = (0..tokens).collect();
    let body = json!({
        "model": MODEL, "prompt": prompt, "max_tokens": 5, "program_id": program,
    });
    client.post(COMPLETIONS, &body).await.ok()
}

async fn steps_of(client: &Client, program: &str) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/steps");
    let page = client.get(&path).await.ok();
    page["steps"].as_array().expect("a list").clone()
}

/// Waits until the journal has this number of steps of a program.
async fn until_journaled(client: &Client, program: &str, steps: usize) {
    let began = std::time::Instant::now();
    while steps_of(client, program).await.len() < steps {
        assert!(began.elapsed() < TIMEOUT, "{program} has not {steps} steps");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The state of live programs that must survive.
async fn lasting(client: &Client) -> Value {
    let mut programs = client.get("/programs").await.ok();
    for program in programs.as_object_mut().expect("an object").values_mut() {
        let fields = program.as_object_mut().expect("an object");
        fields.retain(|field, _| {
            [
                "backend",
                "context_len",
                "step_count",
                "prompt_tokens_total",
                "job",
                "pauses",
            ]
            .contains(&field.as_str())
        });
    }
    programs
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_steps_and_bindings_survive_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let config = on_disk(folder.path(), &engine.url());
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    for round in 0..10 {
        for program in 0..6 {
            step(&daemon.client, &format!("p{program}"), 100 + 20 * round).await;
        }
    }
    let wasm = lru_eviction();
    let uploaded = daemon
        .client
        .send(http::Method::POST, "/api/v1/plugins", &[], wasm)
        .await;
    uploaded.ok();
    let body = json!({"policy": "lru-eviction"}).to_string();
    let bound = daemon
        .client
        .send(http::Method::PUT, "/api/v1/bindings", &[], body)
        .await
        .ok();
    for program in 0..6 {
        until_journaled(&daemon.client, &format!("p{program}"), 10).await;
    }
    let (programs, steps) = (
        lasting(&daemon.client).await,
        steps_of(&daemon.client, "p3").await,
    );
    daemon.kill();

    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let client = &daemon.client;
    assert_eq!(lasting(client).await, programs);
    assert_eq!(steps_of(client, "p3").await, steps);
    assert_eq!(steps.len(), 10);
    let active = client.get("/api/v1/bindings").await.ok();
    let bindings = active["bindings"].as_array().expect("a list");
    let eviction = bindings.iter().find(|b| b["world"] == "eviction");
    assert_eq!(
        eviction.expect("each world has one")["policy"],
        bound["policy"]
    );
    // Programs keep their worker, token count and cache.
    let answer = step(client, "p3", 300).await;
    assert!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() >= Some(272));
    let after = client.get("/programs").await.ok();
    assert_eq!(after["p3"]["step_count"], 11);
    until_journaled(client, "p3", 11).await;
    let numbers: Vec<_> = steps_of(client, "p3")
        .await
        .iter()
        .map(|s| s["step"].as_u64())
        .collect();
    assert!(
        numbers.is_sorted_by(|a, b| a < b),
        "step numbers are given twice: {numbers:?}"
    );
    settled(client).await;
    release_all(client).await;
    daemon.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_out_of_service_stays_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let config = on_disk(folder.path(), &engine.url());
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let body = json!({"state": "draining"}).to_string();
    let path = "/api/v1/workers/0";
    let set = daemon.client.send(http::Method::PATCH, path, &[], body);
    assert_eq!(set.await.ok()["state"], "drained");
    daemon.kill();

    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let workers = daemon.client.get("/api/v1/workers").await.ok();
    assert_eq!(workers["workers"][0]["state"], "drained");
    daemon.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_ran_at_the_kill_is_over_and_its_program_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let config = on_disk(folder.path(), &engine.url());
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    step(&daemon.client, "p", 100).await;
    let client = daemon.client.clone();
    let asking = tokio::spawn(async move {
        let prompt: Vec<u32> = (0..200).collect();
        let body = json!({
            "model": MODEL, "prompt": prompt, "max_tokens": 50_000, "program_id": "p",
        });
        let headers = [("content-type", "application/json")];
        client
            .open(http::Method::POST, COMPLETIONS, &headers, body.to_string())
            .await
    });
    let running = daemon
        .client
        .until("running", |m| m.count("treadle_steps_running") == 1);
    running.await;
    // The step's arrival is on disk once a later event has been acknowledged.
    let release = json!({"program_id": "nobody"});
    daemon.client.post("/programs/release", &release).await.ok();
    daemon.kill();
    assert!(
        asking.await.expect("no panic").is_err(),
        "the client must see the break"
    );

    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    settled(&daemon.client).await;
    step(&daemon.client, "p", 210).await;
    let programs = daemon.client.get("/programs").await.ok();
    assert_eq!(programs["p"]["step_count"], 2);
    release_all(&daemon.client).await;
    daemon.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_release_is_never_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let config = on_disk(folder.path(), &engine.url());
    for round in 0..3 {
        let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
        let (gone, kept) = (format!("gone-{round}"), format!("kept-{round}"));
        step(&daemon.client, &gone, 50).await;
        step(&daemon.client, &kept, 50).await;
        let release = json!({"program_id": gone});
        let released = daemon.client.post("/programs/release", &release).await.ok();
        assert_eq!(released["released"], true);
        daemon.kill();
    }
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let programs = daemon.client.get("/programs").await.ok();
    let keys: Vec<_> = programs.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["kept-0", "kept-1", "kept-2"]);
    let row = daemon.client.get("/api/v1/programs/gone-1").await.ok();
    assert_eq!(row["ended"], "released");
    release_all(&daemon.client).await;
    daemon.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_of_the_log_is_survived() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let mut config = on_disk(folder.path(), &engine.url());
    // No snapshot: the state is only in the log.
    config.store.snapshot_events = 1_000_000;
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    for program in 0..20 {
        step(&daemon.client, &format!("p{program}"), 50).await;
        until_journaled(&daemon.client, &format!("p{program}"), 1).await;
    }
    daemon.kill();
    let wal = folder.path().join("treadle.db-wal");
    let bytes = std::fs::read(&wal).expect("the log of a killed daemon");
    assert!(bytes.len() > 8_192);
    std::fs::write(&wal, &bytes[..bytes.len() - 1_000]).expect("it is cut");

    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let programs = lasting(&daemon.client).await;
    let known = programs.as_object().expect("an object").len();
    assert!((15..=20).contains(&known), "{known} programs are known");
    for program in 0..20 {
        step(&daemon.client, &format!("p{program}"), 60).await;
    }
    settled(&daemon.client).await;
    release_all(&daemon.client).await;
    daemon.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_serves_stops_in_order_and_survives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let store = format!("store.path={}", folder.path().join("treadle.db").display());
    let url = engine.url();
    let arguments = ["--engine", url.as_str(), "--set", store.as_str()];
    let daemon = DaemonProcess::serve(&arguments).await;
    step(&daemon.client, "p", 50).await;
    assert!(daemon.terminate(), "it ended badly");

    let daemon = DaemonProcess::serve(&arguments).await;
    step(&daemon.client, "p", 60).await;
    step(&daemon.client, "gone", 60).await;
    let release = json!({"program_id": "gone"});
    daemon.client.post("/programs/release", &release).await.ok();
    daemon.kill();

    let daemon = DaemonProcess::serve(&arguments).await;
    let programs = lasting(&daemon.client).await;
    assert_eq!(programs["p"]["step_count"], 2, "{programs}");
    assert!(programs.get("gone").is_none());
    step(&daemon.client, "p", 70).await;
    settled(&daemon.client).await;
    release_all(&daemon.client).await;
    assert!(daemon.terminate());
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_no_longer_allowed_is_not_connected_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let mut config = on_disk(folder.path(), &engine.url());
    config.engines.endpoints.clear();
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let worker = json!({"url": engine.url(), "kind": "vllm"});
    daemon.client.post("/workers", &worker).await.ok();
    step(&daemon.client, "p", 10).await;
    until_journaled(&daemon.client, "p", 1).await;
    daemon.kill();
    for (allowed, is_healthy) in [("10.0.0.0/8", false), ("127.0.0.0/8", true)] {
        config.engines.allowed = vec![allowed.to_owned()];
        let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
        let workers = daemon.client.get("/workers").await.ok();
        assert_eq!(workers["workers"][0]["url"], json!(engine.url()));
        assert_eq!(workers["workers"][0]["is_healthy"], is_healthy, "{allowed}");
        daemon.kill();
    }
    engine.shutdown().await;
}
