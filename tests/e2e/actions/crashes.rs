//! Kills the daemon while actions wait and run: none is lost, and only idempotent ones run twice.

use super::{ACTIONS, ended, shell, show, submit, until_status, with};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::engine;
use treadle_tests::support::process::DaemonProcess;

async fn serve(folder: &Path, engine: &str) -> DaemonProcess {
    let store = folder.join("treadle.db");
    let sets = [
        format!("store.path={}", store.display()),
        "auth.anonymous_scope=admin".to_owned(),
        "actions.enabled=true".to_owned(),
        "actions.cores=2".to_owned(),
        format!("actions.workdir={}", folder.display()),
    ];
    let mut arguments = vec!["--engine", engine];
    for set in &sets {
        arguments.extend(["--set", set]);
    }
    DaemonProcess::serve(&arguments).await
}

async fn outcome(client: &Client, action: u64) -> String {
    let view = ended(client, action).await;
    let outcome = view["outcome"]["outcome"].as_str();
    outcome.expect("it is typed").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_is_unknown_what_waited_runs_and_what_may_runs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url()).await;
    let client = &daemon.client;
    let mark = |name: &str| format!("echo x >> {name}; sleep 30");
    let once = submit(client, &shell(&mark("once"))).await;
    let idempotent = with(
        shell("echo x >> again; test $(wc -l < again) -gt 1 || sleep 30"),
        &json!({"idempotent": true}),
    );
    let again = submit(client, &idempotent).await;
    for action in [once, again] {
        until_status(client, action, "running").await;
    }
    let waiting = submit(client, &shell("echo x >> waited")).await;
    assert_eq!(show(client, waiting).await["status"], "waiting");
    for name in ["once", "again"] {
        let path = folder.path().join(name);
        while std::fs::read(&path).map_or(true, |written| written.is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    daemon.kill();

    let daemon = serve(folder.path(), &engine.url()).await;
    let client = &daemon.client;
    assert_eq!(outcome(client, once).await, "unknown");
    assert_eq!(outcome(client, again).await, "exited");
    assert_eq!(outcome(client, waiting).await, "exited");
    assert_eq!(show(client, again).await["attempts"], 2);
    let lines = |name: &str| std::fs::read_to_string(folder.path().join(name));
    assert_eq!(lines("once").expect("it ran"), "x\n");
    assert_eq!(lines("again").expect("it ran"), "x\nx\n");
    assert_eq!(lines("waited").expect("it ran"), "x\n");
    let list = client.get(ACTIONS).await.ok();
    assert_eq!(list["actions"].as_array().expect("a list").len(), 3);
    assert!(daemon.terminate(), "it ended badly");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_stopped_leaves_to_the_next_what_may_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url()).await;
    let client = &daemon.client;
    let once = submit(client, &shell("sleep 30")).await;
    let script = "test -e began || { touch began; sleep 30; }";
    let idempotent = with(shell(script), &json!({"idempotent": true}));
    let again = submit(client, &idempotent).await;
    for action in [once, again] {
        until_status(client, action, "running").await;
    }
    let began = folder.path().join("began");
    while !began.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(daemon.terminate(), "it ended badly");

    let daemon = serve(folder.path(), &engine.url()).await;
    let client = &daemon.client;
    assert_eq!(outcome(client, once).await, "infrastructure_failure");
    assert_eq!(outcome(client, again).await, "exited");
    assert_eq!(show(client, again).await["attempts"], 2);
    assert!(daemon.terminate(), "it ended badly");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_acknowledged_is_lost_over_many_kills() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let daemon = serve(folder.path(), &engine.url()).await;
        for number in 0..12 {
            let script = format!("echo x >> run-{round}-{number}");
            let action = submit(&daemon.client, &shell(&script)).await;
            acknowledged.push((action, format!("run-{round}-{number}")));
        }
        daemon.kill();
    }
    let daemon = serve(folder.path(), &engine.url()).await;
    for (action, file) in acknowledged {
        let outcome = outcome(&daemon.client, action).await;
        let lines = std::fs::read_to_string(folder.path().join(&file)).unwrap_or_default();
        match outcome.as_str() {
            "exited" => assert_eq!(lines, "x\n", "{file}"),
            "unknown" => assert!(lines.len() <= 2, "{file} ran twice"),
            other => panic!("{file}: {other}"),
        }
    }
    assert!(daemon.terminate(), "it ended badly");
}
