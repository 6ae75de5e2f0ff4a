//! Engines that the command line starts according to a plan: here the binary's own simulated ones.

use crate::cluster::{Cluster, Served, step, treadle, until};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

/// A free port below those that the system assigns to connections, so that none of these takes it
/// before the engine does.
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
    // It exits on its own, so it is deregistered and restarted.
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
async fn a_new_plan_follows_each_rollout() {
    let cluster = Cluster::start("memory").await;
    // All of one degree, whatever is measured.
    let bind = "plugin bind static-allocation --world allocation";
    cluster.run_printed(bind).await;
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let line = format!(
        "workers provision --plan 2x1,1x1 --replan --job default --first-port {port} --kind vllm \
         --json -- {} engine-sim --time-scale 20 --listen 127.0.0.1:{{port}}",
        env!("CARGO_BIN_EXE_treadle"),
    );
    let mut served = Served::beside(&cluster.daemon.url(), &line, folder.path());
    let measured = |degrees: Vec<u64>| {
        let cluster = &cluster;
        async move {
            let workers = cluster.json("workers").await;
            let list = workers["workers"].as_array().cloned().unwrap_or_default();
            let known = list.iter().filter(|worker| worker["token_us"].is_u64());
            let mut found: Vec<u64> = known.filter_map(|worker| worker["gpus"].as_u64()).collect();
            found.sort_unstable();
            (found == degrees).then_some(())
        }
    };
    until(|| measured(vec![1, 2])).await;
    // A rollout of one program.
    step(&cluster.daemon.url(), "p").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.run_printed("programs release p").await;
    until(|| measured(vec![1, 1, 1])).await;
    let advised = cluster
        .json("workers provision --job default --gpus 2")
        .await;
    assert_eq!(advised["plan"], json!([{"degree": 1, "workers": 2}]));
    let mut events = Vec::new();
    while events.len() < 9 {
        let event: Value = serde_json::from_str(&served.line().await).expect("JSON");
        events.push((event["event"].to_string(), event["degree"].as_u64()));
    }
    let stopped = ("\"stopped\"".to_owned(), Some(2));
    let place = events.iter().position(|event| *event == stopped);
    assert!(place.is_some_and(|place| place >= 4), "{events:?}");
    let of_stopped = events.iter().filter(|event| event.0.contains("stopped"));
    assert_eq!(of_stopped.count(), 1, "the other one stays: {events:?}");
    assert_eq!(served.stop("-TERM").await, Some(0));
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
