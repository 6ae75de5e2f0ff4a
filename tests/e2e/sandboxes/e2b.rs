//! E2B's own packages, with only their URLs changed, and requests that must be refused.

use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use treadle_config::{AnonymousScope, Config};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::policy::root;
use treadle_tests::support::process::{DaemonProcess, binary};

/// The packages: language and version.
const CLIENTS: &str = include_str!("e2b_clients.txt");
/// Skips the tests with third-party packages.
const SKIP_VARIABLE: &str = "TREADLE_SKIP_CLIENT_TESTS";
/// A key in E2B's form, which treadle does not treat as a token.
pub(super) const KEY: &str = "e2b_0000000000000000000000000000000000000000";

async fn fixture(folder: &Path, tune: impl FnOnce(&mut Config)) -> Fixture {
    Fixture::tuned(0, 0, |config| {
        config.actions.enabled = true;
        config.actions.supervisor = binary().display().to_string();
        config.actions.folder = folder.join("actions").display().to_string();
        config.sandboxes.enabled = true;
        config.sandboxes.keeper = binary().display().to_string();
        config.sandboxes.folder = folder.join("sandboxes").display().to_string();
        tune(config);
    })
    .await
}

/// A daemon in a process of its own, to be killed.
async fn serve(folder: &Path) -> DaemonProcess {
    let part = |name: &str| folder.join(name).display().to_string();
    let sets = [
        "store.path=memory".to_owned(),
        "auth.anonymous_scope=admin".to_owned(),
        "actions.enabled=true".to_owned(),
        format!("actions.folder={}", part("actions")),
        "sandboxes.enabled=true".to_owned(),
        format!("sandboxes.folder={}", part("sandboxes")),
    ];
    let arguments: Vec<&str> = sets
        .iter()
        .flat_map(|set| ["--set", set.as_str()])
        .collect();
    DaemonProcess::serve(&arguments).await
}

/// A daemon that requires a token.
async fn strict(folder: &Path) -> Fixture {
    let tune = |config: &mut Config| config.auth.anonymous_scope = AnonymousScope::None;
    fixture(folder, tune).await
}

/// Folders of the packages for a language; empty if these tests are skipped.
fn packages(language: &str) -> Vec<PathBuf> {
    if std::env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty()) {
        eprintln!("SKIPPED: {SKIP_VARIABLE} is set, so no packages of E2B were tested");
        return Vec::new();
    }
    let of_language = |line: &str| {
        let version = line.strip_prefix(language)?.trim();
        let folder = root().join(format!(".treadle/e2b/{language}-{version}"));
        assert!(
            folder.join("installed").exists(),
            "{} is missing: run `scripts/e2b-clients.sh`, or set {SKIP_VARIABLE}=1",
            folder.display()
        );
        Some(folder)
    };
    CLIENTS.lines().filter_map(of_language).collect()
}

fn script(name: &str) -> PathBuf {
    root().join("tests/e2e/sandboxes").join(name)
}

/// Runs a script of a client against a daemon.
async fn run(mut command: Command, url: &str, key: &str) -> Output {
    command
        .env("E2B_API_URL", url)
        .env("E2B_SANDBOX_URL", url)
        .env("E2B_API_KEY", key);
    let output = tokio::task::spawn_blocking(move || command.output());
    output.await.expect("no panic").expect("it runs")
}

fn passed(package: &Path, output: &Output) {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let is_fine = output.status.success() && out.contains("ALL PASSED");
    assert!(is_fine, "{}\n{out}{err}", package.display());
}

/// Runs the scripts of all packages of a language.
async fn pass(language: &str, url: &str, key: &str) {
    for package in packages(language) {
        let command = if language == "py" {
            let mut command = Command::new(package.join("bin/python"));
            command.arg(script("e2b_client.py"));
            command
        } else {
            let mut command = Command::new("node");
            command
                .arg(script("e2b_client.mjs"))
                .env("E2B_PACKAGE", package.join("node_modules/e2b"));
            command
        };
        passed(&package, &run(command, url, key).await);
    }
}

/// Runs the scripts of all packages.
pub(super) async fn packages_pass(url: &str, key: &str) {
    for language in ["py", "js"] {
        pass(language, url, key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_package_of_e2b_works_with_another_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), |_| {}).await;
    pass("py", fixture.client.base(), KEY).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_package_of_e2b_works_with_a_token_as_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = strict(folder.path()).await;
    let token = fixture.client.token().expect("the owner has one");
    pass("js", fixture.client.base(), token).await;
    fixture.stop().await;
}

/// Checks that this is a refusal in E2B's form; returns its message.
fn refused(answer: &Answer, status: u16) -> String {
    let body = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &body["code"]),
        (status, &json!(status)),
        "{body}"
    );
    body["message"].as_str().expect("a message").to_owned()
}

async fn create(client: &Client, headers: &[(&str, &str)], body: &Value) -> Answer {
    client
        .send(Method::POST, "/v2/sandboxes", headers, body.to_string())
        .await
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_its_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = strict(folder.path()).await;
    let nobody = fixture.client.without_token();
    let refusal = create(&nobody, &[("x-api-key", KEY)], &json!({})).await;
    assert!(refused(&refusal, 401).contains("needs a token"));
    let made = [
        create(&fixture.client, &[], &json!({})).await.ok(),
        create(&fixture.client, &[], &json!({"templateID": "base"}))
            .await
            .ok(),
    ];
    let [own, other] = made
        .each_ref()
        .map(|made| (text(made, "sandboxID"), text(made, "envdAccessToken")));
    let file = "/files?path=/etc/passwd";
    let read = async |client: &Client, headers: &[(&str, &str)]| {
        client.send(Method::GET, file, headers, "").await
    };
    let id = ("e2b-sandbox-id", own.0);
    for headers in [
        &[id][..],
        &[id, ("x-access-token", other.1)],
        &[id, ("x-access-token", "")],
    ] {
        refused(&read(&nobody, headers).await, 401);
    }
    let host = format!("49983-{}.treadle.example", own.0);
    let token = ("x-access-token", own.1);
    for headers in [&[id, token][..], &[token], &[("host", &host), token]] {
        let answer = read(&nobody, headers).await;
        assert!(answer.body.starts_with(b"root:"), "{headers:?}: {answer:?}");
    }
    // A token of the tenant works too.
    assert!(read(&fixture.client, &[id]).await.status.is_success());
    for gone in [("x-access-token", "none"), ("e2b-sandbox-id", "none")] {
        let message = refused(&read(&nobody, &[gone]).await, 502);
        assert!(message.contains("was not found"), "{message}");
    }
    refused(&read(&nobody, &[]).await, 400);
    let page = nobody.get("/health").await.ok();
    assert_eq!(page["status"], "ok", "treadle's own");
    let port = host.replace("49983", "8080");
    let answer = nobody.send(Method::GET, "/", &[("host", &port)], "").await;
    assert!(refused(&answer, 501).contains("8080"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_names_one_sandbox_and_outlives_the_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = [("idempotency-key", "k-1")];
    let body = json!({"metadata": {"a": "b"}});
    let daemon = serve(folder.path()).await;
    let made = create(&daemon.client, &key, &body).await.ok();
    assert_eq!(create(&daemon.client, &key, &body).await.ok(), made);
    refused(&create(&daemon.client, &key, &json!({})).await, 409);
    let path = format!("/sandboxes/{}", text(&made, "sandboxID"));
    let forks = daemon
        .client
        .post(&format!("{path}/fork"), &json!({"timeout": 60}))
        .await
        .ok();
    let copy = text(&forks[0]["sandbox"], "sandboxID");
    daemon.kill();

    let daemon = serve(folder.path()).await;
    assert_eq!(create(&daemon.client, &key, &body).await.ok(), made);
    let shown = daemon.client.get(&path).await.ok();
    assert_eq!(
        (&shown["metadata"], &shown["state"]),
        (&body["metadata"], &json!("running"))
    );
    assert_eq!(daemon.client.delete(&path).await.status, 204);
    let again = create(&daemon.client, &key, &body).await.ok();
    for gone in [text(&made, "sandboxID"), copy] {
        assert_ne!(text(&again, "sandboxID"), gone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_e2b_has_and_treadle_has_not_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), |config| config.sandboxes.sandboxes_max = 1).await;
    let client = &fixture.client;
    for (body, status, name) in [
        (json!({"templateID": "node"}), 404, "node"),
        (
            json!({"network": {"allowOut": ["1.1.1.1"]}}),
            501,
            "network",
        ),
        (json!({"mcp": {"x": {}}}), 501, "mcp"),
    ] {
        let message = refused(&create(client, &[], &body).await, status);
        assert!(message.contains(name), "{message}");
    }
    let made = create(client, &[], &json!({"metadata": {"treadle_job": "math"}}))
        .await
        .ok();
    let id = text(&made, "sandboxID");
    let shown = client.get(&format!("/api/v1/sandboxes/{id}")).await.ok();
    assert_eq!(shown["job"], "math");
    let full = create(client, &[], &json!({})).await;
    refused(&full, 429);
    assert!(full.headers.contains_key("retry-after"));
    for (method, path) in [
        (Method::POST, format!("/sandboxes/{id}/logs")),
        (Method::PUT, format!("/sandboxes/{id}/network")),
        (Method::GET, "/templates".to_owned()),
        (Method::POST, "/v3/templates".to_owned()),
    ] {
        let message = refused(&client.send(method, &path, &[], "{}").await, 501);
        assert!(message.contains(&path), "{message}");
    }
    let path = format!("/sandboxes/{id}/snapshots");
    let answer = client
        .send(Method::POST, &path, &[], r#"{"memory": true}"#)
        .await;
    assert!(refused(&answer, 501).contains("`memory`"));
    let head = [("e2b-sandbox-id", id), ("content-type", "application/json")];
    for path in ["/process.Process/Update", "/filesystem.Filesystem/Chown"] {
        let answer = client.send(Method::POST, path, &head, "{}").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["code"]),
            (501, &json!("unimplemented"))
        );
    }
    fixture.stop().await;
}
