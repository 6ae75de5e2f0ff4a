//! `treadle doctor` with a running daemon, and without one.

use std::path::Path;

use serde_json::Value;

use crate::cluster::{Served, TIMEOUT, binary, engine};

/// Runs it in a folder; returns whether it succeeded, and its output.
async fn doctor(url: &str, flags: &str, folder: &Path) -> (bool, String) {
    let mut command = binary(url, &format!("doctor {flags}"));
    let ended = tokio::time::timeout(TIMEOUT, command.current_dir(folder).output()).await;
    let output = ended.expect("it ends").expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.success(), text)
}

async fn report(url: &str, folder: &Path) -> (bool, Value) {
    let (is_content, text) = doctor(url, "--json", folder).await;
    (is_content, serde_json::from_str(&text).expect("JSON"))
}

/// Findings about the daemon, or about the configuration.
fn about<'r>(report: &'r Value, what: &str) -> Vec<&'r Value> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().filter(|f| f["about"] == what).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_up_it_looks_at_the_daemon_that_runs() {
    let (folder, empty) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, empty) = (folder.expect("a folder"), empty.expect("a folder"));
    let mut up = Served::start("up --listen 127.0.0.1:0 --instant", folder.path());
    let line = up.line().await;
    let url = line.strip_prefix("treadle listens on ").expect("its line");
    for place in [folder.path(), empty.path()] {
        let (is_content, found) = report(url, place).await;
        assert!(is_content, "{found:#}");
        assert_eq!(found["daemon"]["url"], url);
        assert_eq!(found["failures"], 0, "{found:#}");
        assert_eq!(found["warnings"], 0, "{found:#}");
        assert_eq!(found["configuration"]["run_by"], "nobody");
        let engines = about(&found, "daemon").into_iter();
        let engines = engines.filter(|f| f["area"] == "engines" && f["grade"] == "ok");
        assert_eq!(engines.count(), 2, "{found:#}");

        let (_, text) = doctor(url, "", place).await;
        assert!(
            text.starts_with(&format!("The daemon at {url}, ")),
            "{text}"
        );
        assert!(text.contains("which no daemon runs"), "{text}");
        assert!(!text.contains("FAIL") && !text.contains("WARN"), "{text}");
    }
    // A finding that would fail is only a note as long as no daemon runs the configuration.
    let flags = "--set engines.endpoints=http://127.0.0.1:9";
    let (is_content, text) = doctor(url, flags, empty.path()).await;
    assert!(is_content, "{text}");
    assert!(text.contains("note  engines: http://127.0.0.1:9"), "{text}");
    assert_eq!(up.stop("-INT").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_serve_what_the_configuration_names_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine().await;
    let line = format!("serve --listen 127.0.0.1:0 --engine {}", engine.url());
    let mut served = Served::start(&line, folder.path());
    let line = served.line().await;
    let rest = line.strip_prefix("treadle listens on ").expect("its line");
    let (url, _) = rest.split_once(", engines: ").expect("its engines");
    let (is_content, found) = report(url, folder.path()).await;
    assert!(is_content, "{found:#}");
    assert_eq!(found["configuration"]["run_by"], "this_daemon");
    let mut engines = about(&found, "configuration").into_iter();
    // The daemon gets its engine by a flag, so the configuration has none.
    assert!(engines.all(|f| f["area"] != "engines"), "{found:#}");

    engine.shutdown().await;
    let flags = "--set engines.endpoints=http://127.0.0.1:9";
    let (is_content, text) = doctor(url, flags, folder.path()).await;
    assert!(!is_content, "{text}");
    assert!(text.contains("which this daemon runs"), "{text}");
    assert!(text.contains("FAIL  engines: http://127.0.0.1:9"), "{text}");
    assert_eq!(served.stop("-TERM").await, Some(0));
}

#[tokio::test]
async fn before_the_first_start_nothing_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let (is_content, found) = report("http://127.0.0.1:1", folder.path()).await;
    assert!(is_content, "{found:#}");
    assert_eq!(found["daemon"]["version"], Value::Null);
    assert_eq!(found["configuration"]["counts"], true);
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "it changes nothing");
}
