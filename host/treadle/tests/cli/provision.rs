//! Engines that the command line starts after a plan: here the binary's own simulated ones.

use crate::cluster::{Cluster, Served, treadle, until};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::process::Command;

/// A port that nothing listens at, below those that the system gives to connections: none of these
/// takes it before the engine does.
fn free_port() -> u16 {
    let any = RandomState::new();
    let mut ports = (0..u16::MAX).map(|salt| 10_000 + (any.hash_one(salt) % 20_000) as u16);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).expect("a free port")
}

fn is_alive(pid: &str) -> bool {
    let asked = Command::new("kill")
        .args(["-0", pid])
        .stderr(std::process::Stdio::null())
        .status();
    asked.expect("kill is there").success()
}

#[tokio::test]
async fn a_plan_is_asked_for_and_shown() {
    let cluster = Cluster::start("memory").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("columns.json");
    let columns = json!({
        "gpus": 8, "degree": [1, 2, 4], "token_us": [20_000.0, 12_000.0, 8_000.0],
        "capacity_tokens": [100_000, 250_000, 600_000], "expected_tokens": vec![1_000; 16],
    });
    std::fs::write(&file, columns.to_string()).expect("written");
    let told = cluster
        .json(&format!("workers provision --ask {}", file.display()))
        .await;
    let gpus = told["gpus"].as_u64().expect("a number");
    assert!((1..=8).contains(&gpus), "{told}");
    let shown = cluster
        .run_printed("workers provision --plan 4x1,1x2")
        .await;
    assert!(
        shown.contains("DEGREE") && shown.lines().count() == 3,
        "{shown}"
    );
    cluster.stop().await;
}

async fn event(served: &mut Served, expected: &str) -> Value {
    let line = served.line().await;
    let event: Value = serde_json::from_str(&line).expect("a line of JSON");
    assert_eq!(event["event"], expected, "{line}");
    event
}

#[tokio::test]
async fn an_engine_is_started_registered_started_again_and_stopped() {
    let cluster = Cluster::start("memory").await;
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let line = format!(
        "workers provision --plan 2x1 --first-port {port} --kind vllm --json -- \
         {} engine-sim --instant --listen 127.0.0.1:{{port}}",
        env!("CARGO_BIN_EXE_treadle"),
    );
    let mut served = Served::beside(&cluster.daemon.url(), &line, folder.path());
    let url = format!("http://127.0.0.1:{port}");
    let registered = || async {
        let workers = cluster.json("workers").await;
        let list = workers["workers"].as_array().cloned().unwrap_or_default();
        list.iter().any(|worker| worker["url"] == url.as_str())
    };
    let first = event(&mut served, "started").await;
    assert_eq!((&first["degree"], &first["url"]), (&json!(2), &json!(url)));
    event(&mut served, "registered").await;
    assert!(registered().await);
    // It exits on its own: it is taken out, and restarted.
    let pid = first["more"]["pid"].to_string();
    assert!(
        Command::new("kill")
            .args(["-KILL", &pid])
            .status()
            .expect("kill")
            .success()
    );
    event(&mut served, "ended").await;
    let second = event(&mut served, "started").await;
    event(&mut served, "registered").await;
    assert!(registered().await);
    assert_eq!(served.stop("-TERM").await, Some(0));
    until(|| async { (!registered().await).then_some(()) }).await;
    assert!(!is_alive(&second["more"]["pid"].to_string()));
    cluster.stop().await;
}

#[tokio::test]
async fn an_engine_that_never_starts_is_given_up() {
    let line = "workers provision --plan 1x1 --restarts-max 1 -- /nonexistent/engine";
    let ended = treadle("http://127.0.0.1:1", line).await;
    assert!(!ended.status.success());
    let why = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(why.contains("was started 2 times"), "{why}");
}
