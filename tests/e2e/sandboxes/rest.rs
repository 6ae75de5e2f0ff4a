//! Sandboxes over REST: created, used by actions, forked, removed with their programs, and
//! recovered after the daemon was killed.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{CHAT, chat, engine};
use treadle_tests::support::process::DaemonProcess;

const SANDBOXES: &str = "/api/v1/sandboxes";
const ACTIONS: &str = "/api/v1/actions";

async fn serve(folder: &Path, engine: &str, more: &[&str]) -> DaemonProcess {
    let sets = [
        format!("store.path={}", folder.join("treadle.db").display()),
        "auth.anonymous_scope=admin".to_owned(),
        "actions.enabled=true".to_owned(),
        "sandboxes.enabled=true".to_owned(),
    ];
    let sets = sets.iter().map(String::as_str).chain(more.iter().copied());
    let mut arguments = vec!["--engine", engine];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    DaemonProcess::serve(&arguments).await
}

async fn create(client: &Client, body: &Value) -> String {
    let answer = client.post(SANDBOXES, body).await.ok();
    answer["id"].as_str().expect("a name").to_owned()
}

/// Runs a shell line in a sandbox; returns the ended action.
async fn sh(client: &Client, sandbox: &str, line: &str) -> Value {
    let run = json!({"sandbox": {"id": sandbox, "command": ["sh", "-c", line]}});
    let answer = client
        .post(ACTIONS, &json!({"kind": "sh", "run": run}))
        .await
        .ok();
    let path = format!("{ACTIONS}/{}?wait_s=60", answer["action"]);
    client.get(&path).await.ok()
}

async fn state(client: &Client, sandbox: &str) -> Value {
    let path = format!("{SANDBOXES}/{sandbox}");
    client.get(&path).await.ok()["state"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_are_made_of_a_snapshot_long_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url(), &[]).await;
    let client = &daemon.client;
    let sandbox = create(client, &json!({})).await;
    sh(client, &sandbox, "echo prepared > /root/state").await;
    let path = format!("{SANDBOXES}/{sandbox}/snapshot");
    let made = client.post(&path, &json!({"name": "ready"})).await.ok();
    assert_eq!(made["sandbox"], json!(sandbox));
    let refused = client.post(&path, &json!({"name": "a/b"})).await;
    refused.refused(400, "invalid_field");
    let removed = client.delete(&format!("{SANDBOXES}/{sandbox}")).await;
    removed.ok();
    for called in ["ready", made["id"].as_str().expect("an id")] {
        let copy = create(client, &json!({"image": called})).await;
        let view = sh(client, &copy, "cat /root/state").await;
        assert_eq!(view["output"]["text"], "prepared\n", "{called}");
    }
    let left = client.delete("/api/v1/snapshots/ready").await.ok();
    assert_eq!(left["snapshots"], json!([]));
    let refused = client.post(SANDBOXES, &json!({"image": "ready"})).await;
    refused.refused(400, "invalid_field");
    let again = client.delete("/api/v1/snapshots/ready").await;
    again.refused(404, "image_unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_run_in_sandboxes_and_forks_have_their_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url(), &["sandboxes.required=true"]).await;
    let client = &daemon.client;
    let sandbox = create(
        client,
        &json!({"labels": {"task": "7"}, "env": {"WHO": "agent"}}),
    )
    .await;
    let view = sh(client, &sandbox, "echo $WHO | tee /root/who; nproc; id -u").await;
    assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 0}));
    assert_eq!(view["output"]["text"], "agent\n1\n0\n");

    let path = format!("{SANDBOXES}/{sandbox}/fork");
    let forks = client.post(&path, &json!({"count": 2})).await.ok();
    for fork in forks["sandboxes"].as_array().expect("a list") {
        let fork = fork["id"].as_str().expect("a name");
        let view = sh(client, fork, "cat /root/who; echo other > /root/who").await;
        assert_eq!(view["output"]["text"], "agent\n");
    }
    let view = sh(client, &sandbox, "cat /root/who").await;
    assert_eq!(
        view["output"]["text"], "agent\n",
        "forks write to their own"
    );
    let metrics = client.get("/metrics").await.body;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    assert!(
        metrics.contains("treadle_sandboxes_prepared_total 3\n"),
        "{metrics}"
    );

    let path = format!("{SANDBOXES}/{sandbox}/pause");
    client.post(&path, &json!({})).await.ok();
    assert_eq!(state(client, &sandbox).await, "paused");
    let view = sh(client, &sandbox, "true").await;
    assert_eq!(view["outcome"]["code"], 0, "a command resumes it");
    assert_eq!(state(client, &sandbox).await, "ready");

    let process = json!({"kind": "sh", "run": {"process": {"command": ["true"]}}});
    client
        .post(ACTIONS, &process)
        .await
        .refused(400, "invalid_field");
    let held = json!({"kind": "sh", "run": {"held": {"token": "a", "sandbox": "b", "what": "c"}}});
    client
        .post(ACTIONS, &held)
        .await
        .refused(400, "invalid_field");
    let nowhere = sh(client, "sabc", "true").await;
    assert_eq!(nowhere["outcome"]["outcome"], "infrastructure_failure");

    client.delete(&format!("{SANDBOXES}/{sandbox}")).await.ok();
    let gone = client.get(&format!("{SANDBOXES}/{sandbox}")).await;
    gone.refused(404, "sandbox_unknown");
}

/// Declares a service with a token of a job, or of an operator's.
async fn declare(client: &Client, lifecycle: Value) -> Answer {
    let service = json!({"ready_path": "/", "lifecycle": lifecycle}).to_string();
    let path = "/api/v1/services/judge";
    client.send(http::Method::PUT, path, &[], service).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_declares_no_service_with_commands_where_it_may_run_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url(), &["sandboxes.required=true"]).await;
    let operator = &daemon.client;
    let made = json!({"name": "trainer", "scope": "job"});
    let made = operator.post("/api/v1/tokens", &made).await.ok();
    let job = operator.with_token(made["secret"].as_str().expect("a secret"));
    let (command, control) = (
        json!({"process": {"command": ["true"]}}),
        json!({"control": {"url": "http://judge:1"}}),
    );
    let refused = declare(&job, command.clone()).await;
    refused.refused(403, "forbidden");
    declare(&job, control.clone()).await.ok();
    declare(operator, command).await.ok();
    // A job can't replace a service that an operator declared.
    declare(&job, control).await.refused(403, "forbidden");
    assert!(daemon.terminate(), "it ended badly");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_ends_with_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url(), &[]).await;
    let client = &daemon.client;
    let sandbox = create(client, &json!({"program_id": "p"})).await;
    client.post(CHAT, &chat("p", "hello", 4)).await.ok();
    assert_eq!(sh(client, &sandbox, "true").await["outcome"]["code"], 0);
    client
        .post("/programs/release", &json!({"program_id": "p"}))
        .await
        .ok();
    for _ in 0..100 {
        let path = format!("{SANDBOXES}/{sandbox}");
        if client.get(&path).await.status == 404 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the sandbox outlives its program");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outlive_the_daemon_and_processes_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let daemon = serve(folder.path(), &engine.url(), &[]).await;
    let client = &daemon.client;
    let sandbox = create(client, &json!({})).await;
    let mark = format!("7{:08}", std::process::id());
    let line = format!("echo kept > /root/kept; (setsid sleep {mark} &); sleep {mark}");
    let run = json!({"sandbox": {"id": sandbox, "command": ["sh", "-c", line]}});
    let answer = client
        .post(ACTIONS, &json!({"kind": "sh", "run": run}))
        .await
        .ok();
    let action = answer["action"].clone();
    let runs = |mark: &str| {
        let found = std::process::Command::new("pgrep")
            .args(["-f", &format!("sleep {mark}")])
            .output();
        !found.expect("pgrep").stdout.is_empty()
    };
    for _ in 0..200 {
        if runs(&mark) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(runs(&mark));
    daemon.kill();

    let daemon = serve(folder.path(), &engine.url(), &[]).await;
    let client = &daemon.client;
    assert!(
        !runs(&mark),
        "processes end with the daemon, or with the start of the next one"
    );
    let view = client
        .get(&format!("{ACTIONS}/{action}?wait_s=60"))
        .await
        .ok();
    assert_eq!(view["outcome"]["outcome"], "unknown");
    assert_eq!(state(client, &sandbox).await, "stopped");
    let view = sh(client, &sandbox, "cat /root/kept").await;
    assert_eq!(view["output"]["text"], "kept\n");
}
