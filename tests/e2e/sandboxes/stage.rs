//! A daemon with sandboxes, and the clients of SWE-ReX and SandboxFusion for it.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use treadle_config::{AnonymousScope, Config};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::policy::root;
use treadle_tests::support::process::binary;

/// Skips the tests with third-party packages.
const SKIP_VARIABLE: &str = "TREADLE_SKIP_CLIENT_TESTS";

/// Enables sandboxes with a folder below `folder`.
pub(super) fn with_sandboxes(config: &mut Config, folder: &Path) {
    config.actions.enabled = true;
    config.actions.supervisor = binary().display().to_string();
    config.actions.folder = folder.join("actions").display().to_string();
    config.sandboxes.enabled = true;
    config.sandboxes.keeper = binary().display().to_string();
    config.sandboxes.folder = folder.join("sandboxes").display().to_string();
}

/// A daemon that requires no token from local callers.
pub(super) async fn open(folder: &Path) -> Fixture {
    Fixture::tuned(0, 0, |config| with_sandboxes(config, folder)).await
}

/// A daemon that requires a token.
pub(super) async fn strict(folder: &Path) -> Fixture {
    let tune = |config: &mut Config| {
        with_sandboxes(config, folder);
        config.auth.anonymous_scope = AnonymousScope::None;
    };
    Fixture::tuned(0, 0, tune).await
}

/// A new sandbox's path for clients of SWE-ReX.
pub(super) async fn sandbox(client: &Client) -> String {
    let made = client.post("/api/v1/sandboxes", &json!({})).await.ok();
    format!("/swerex/{}", made["id"].as_str().expect("a name"))
}

/// The Python of one line of the list of packages; `None` if these tests are skipped.
pub(crate) fn python(packages: &str) -> Option<PathBuf> {
    if std::env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty()) {
        eprintln!("SKIPPED: {SKIP_VARIABLE} is set, so no packages of SWE-ReX were tested");
        return None;
    }
    let folder = folder(packages);
    assert!(
        folder.join("installed").exists(),
        "{} is missing: run `scripts/swerex-clients.sh`, or set {SKIP_VARIABLE}=1",
        folder.display()
    );
    Some(folder.join("bin/python"))
}

pub(super) fn folder(packages: &str) -> PathBuf {
    root().join(".treadle/swerex").join(packages)
}

/// Runs a client's script, which must end well, and say so.
pub(super) async fn passes(python: &Path, script: &str, env: &[(&str, String)]) -> String {
    let mut command = Command::new(python);
    command
        .arg(root().join("tests/e2e/sandboxes").join(script))
        .env_remove("SWEREX_TOKEN")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(env.iter().cloned());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("no panic").expect("Python runs");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let is_fine = output.status.success() && out.contains("PASSED");
    assert!(is_fine, "{script}\n{out}{err}");
    out.into_owned()
}

/// Checks that an answer is an exception of SWE-ReX; returns its message.
pub(super) fn raises(answer: &Answer, class: &str) -> String {
    assert_eq!(answer.status, 511, "{:?}", answer.body);
    let body: Value = answer.json();
    let exception = &body["swerexception"];
    assert_eq!(exception["class_path"], class, "{body}");
    assert_eq!(exception["traceback"], "");
    exception["message"].as_str().expect("text").to_owned()
}
