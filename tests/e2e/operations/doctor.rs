//! `treadle doctor` accepts a healthy installation, and reports each problem with a remedy.

use serde_json::{Value, json};
use treadle_tests::support::broker::Peer;
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::engine;
use treadle_tests::support::policy::lru_eviction;
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::services::{Schema, amqp_url, are_skipped};

use super::work;

/// Findings of a grade, as `area: check`.
fn graded<'f>(report: &'f Value, grade: &str) -> Vec<&'f Value> {
    let findings = report["findings"].as_array().expect("a list");
    findings
        .iter()
        .filter(|found| found["grade"] == grade)
        .collect()
}

fn sets(settings: &[String]) -> Vec<&str> {
    settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect()
}

#[test]
fn it_starts_a_sandbox_and_leaves_nothing_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let settings = [
        format!("store.path={path}/t.db"),
        "actions.enabled=true".to_owned(),
        "sandboxes.enabled=true".to_owned(),
    ];
    let arguments = |settings: &[String]| {
        let arguments = ["doctor", "--json", "--url", "http://127.0.0.1:9"];
        let all = arguments.into_iter().chain(sets(settings));
        serde_json::from_str::<Value>(&treadle(&all.collect::<Vec<_>>()).stdout).expect("JSON")
    };
    let trial = |report: &Value| {
        let findings = report["findings"].as_array().expect("a list");
        let found = findings.iter().find(|found| found["check"] == "trial");
        found.unwrap_or_else(|| panic!("{report:#}")).clone()
    };
    let found = trial(&arguments(&settings));
    assert_eq!(found["grade"], "ok", "{found:#}");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("it is there")
        .collect();
    assert!(
        left.iter().flatten().all(|entry| entry.path().is_file()),
        "{left:?}"
    );
    let wrong = format!("sandboxes.folder={path}/with,comma");
    let found = trial(&arguments(&[&settings[..], &[wrong]].concat()));
    assert_eq!(found["grade"], "fail", "{found:#}");
    let told = found["finding"].as_str().expect("text");
    assert!(told.contains("use a path without"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_installation_is_well() {
    if are_skipped() {
        return;
    }
    let (schema, folder) = (
        Schema::fresh("doctor"),
        tempfile::tempdir().expect("a folder"),
    );
    let engine = engine(100_000).await;
    let peer = Peer::connect(&amqp_url(), "doctor").await;
    let settings = [
        format!("store.url={}", schema.url),
        format!("store.schema={}", schema.name),
        format!("store.path={}", folder.path().join("unused.db").display()),
        format!("engines.endpoints={}", engine.url()),
        "auth.anonymous_scope=admin".to_owned(),
        format!("broker.url={}", amqp_url()),
        format!("broker.prefix={}", peer.prefix),
    ];
    let daemon = DaemonProcess::serve(&sets(&settings)).await;
    work(&daemon.client, 0).await;
    let upload = daemon
        .client
        .send(http::Method::POST, "/api/v1/plugins", &[], lru_eviction());
    upload.await.ok();
    let bind = json!({"policy": "lru-eviction"}).to_string();
    let bound = daemon
        .client
        .send(http::Method::PUT, "/api/v1/bindings", &[], bind);
    bound.await.ok();

    let url = daemon.client.base().to_owned();
    let mut arguments = vec!["doctor", "--json", "--url", &url];
    arguments.extend(sets(&settings));
    let report = treadle(&arguments).ok();
    assert_eq!(report["well"], true, "{report:#}");
    let well = graded(&report, "ok");
    let is_well = |area: &str, part: &str| {
        let found = |f: &&&Value| f["area"] == area && f.to_string().contains(part);
        assert!(well.iter().any(|f| found(&f)), "{area} {part}: {report:#}");
    };
    is_well("store", "schema");
    is_well("broker", "answers");
    is_well("engines", "treadle-sim");
    is_well("plugins", "lru-eviction");
    is_well("daemons", "serves");
    assert!(daemon.terminate());
    peer.clean_up().await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_work_is_named_and_nothing_is_changed() {
    if are_skipped() {
        return;
    }
    let (schema, folder) = (
        Schema::fresh("doctor"),
        tempfile::tempdir().expect("a folder"),
    );
    let (server, _) = schema.url.rsplit_once('/').expect("a database in the URL");
    let path = format!("store.path={}", folder.path().join("unused.db").display());
    let sick = [
        format!("store.url={server}/no_such_database"),
        path.clone(),
        "engines.endpoints=http://127.0.0.1:9".to_owned(),
        "broker.url=amqp://guest:guest@127.0.0.1:9/%2f".to_owned(),
    ];
    let mut arguments = vec!["doctor", "--json", "--url", "http://127.0.0.1:9"];
    arguments.extend(sets(&sick));
    let output = treadle(&arguments);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    output.refused();
    let failed = graded(&report, "fail");
    for area in ["store", "engines", "broker"] {
        let found = failed.iter().find(|found| found["area"] == area);
        let found = found.unwrap_or_else(|| panic!("{area} did not fail: {report:#}"));
        assert_ne!(found["remedy"], "", "{found}");
    }
    // Nothing listens there: only a warning, because the daemon may be started later.
    assert!(
        graded(&report, "warn")
            .iter()
            .any(|found| found["area"] == "daemons")
    );

    let unmade = [
        format!("store.url={}", schema.url),
        format!("store.schema={}", schema.name),
        path,
    ];
    let mut arguments = vec!["doctor", "--json", "--url", "http://127.0.0.1:9"];
    arguments.extend(sets(&unmade));
    let report = treadle(&arguments);
    assert!(report.stdout.contains("treadle store migrate") || report.stdout.contains("pending"));
    let select = format!(
        "SELECT 1 FROM pg_namespace WHERE nspname = '{}'",
        schema.name
    );
    assert!(
        schema.psql().run(&select).expect("rows").is_empty(),
        "doctor has made the schema"
    );
}
