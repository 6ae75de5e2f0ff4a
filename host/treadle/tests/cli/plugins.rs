//! The steps of a policy's author before uploading it to a daemon.

use crate::cluster::{Cluster, binary, failure, guest, repository, stdout, treadle};
use serde_json::{Value, json};

const NOBODY: &str = "http://127.0.0.1:1";

fn weigh(tokens: u64, expect: &Value) -> String {
    let call = json!({
        "world": "eviction", "function": "weigh", "now_ms": 5,
        "columns": {"tokens": [tokens], "phase_ms": [0]}, "expect": expect,
    });
    format!("{call}\n")
}

#[tokio::test]
async fn a_new_project_prints_the_next_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    let line = format!(
        "plugin new my-policy --lang python --world reward --path {}",
        path.display()
    );
    let said = stdout(&treadle(NOBODY, &line).await, &line);
    assert!(said.contains("treadle plugin build"), "{said}");
    assert!(path.join("policy.py").is_file());
    let (code, text) = failure(NOBODY, &line).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("--path"), "{text}");
    let (code, text) = failure(NOBODY, &format!("plugin check {}", path.display())).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("treadle plugin build"), "{text}");
}

#[tokio::test]
async fn recorded_inputs_are_answered_and_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let inputs = folder.path().join("inputs.jsonl");
    let line = format!("plugin test {} --inputs {}", guest(), inputs.display());
    std::fs::write(&inputs, weigh(100, &json!([1]))).expect("written");
    let said = stdout(&treadle(NOBODY, &line).await, &line);
    assert!(said.contains("1 calls, all as expected"), "{said}");

    std::fs::write(
        &inputs,
        weigh(100, &json!([0.5])) + &weigh(100, &json!([1])),
    )
    .expect("written");
    let (code, text) = failure(NOBODY, &line).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("1 of 2 calls"), "{text}");

    let odd = json!({"world": "reward", "function": "score", "columns": {}});
    std::fs::write(&inputs, odd.to_string()).expect("written");
    let (code, text) = failure(NOBODY, &line).await;
    assert_eq!(code, Some(2));
    assert!(
        text.contains("line 1 of the inputs: it is of the world reward"),
        "{text}"
    );
}

/// Runs a command that needs build tools.
async fn with_tools(url: &str, line: &str) -> String {
    let mut command = binary(url, line);
    for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    // The dependencies of policies were downloaded when the guests were built.
    command.env("CARGO_NET_OFFLINE", "true");
    command.env("CARGO_TARGET_DIR", repository().join("target/guest-build"));
    let output = command.output().await.expect("it starts");
    stdout(&output, line)
}

/// Where a project in Python looks for its tools, and where `scripts/setup.sh test` installs them.
const PYTHON: Option<(&str, &str)> = Some((".venv", ".treadle/venv"));
/// The same for TypeScript.
const TYPESCRIPT: Option<(&str, &str)> = Some(("node_modules", "sdk/typescript/node_modules"));

/// From nothing to a bound policy, as in the guide. `key` is one of the template's configuration.
async fn from_new_to_bound(language: &str, tools: Option<(&str, &str)>, world: &str, key: &str) {
    let cluster = Cluster::start("memory").await;
    let url = cluster.daemon.url();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    let at = path.display();
    let name = format!("my-{language}-{world}");
    let line = format!("plugin new {name} --lang {language} --world {world} --path {at}");
    with_tools(&url, &line).await;
    if let Some((place, installed)) = tools {
        let installed = repository().join(installed);
        assert!(installed.is_dir(), "run scripts/setup.sh test first");
        std::os::unix::fs::symlink(installed, path.join(place)).expect("a link");
    } else {
        let lock = repository().join("Cargo.lock");
        std::fs::copy(lock, path.join("Cargo.lock")).expect("a copy");
    }
    with_tools(&url, &format!("plugin build {at}")).await;
    let tested = with_tools(&url, &format!("plugin test {at}")).await;
    assert!(tested.contains("all as expected"), "{tested}");
    with_tools(&url, &format!("plugin push {at}")).await;
    let bind = |value: i32| {
        format!("plugin bind {name} --world {world} --config-json {{\"{key}\":{value}}}")
    };
    let (code, text) = failure(&url, &bind(-1)).await;
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("{key} is -1; give 0 to")), "{text}");
    let bound = with_tools(&url, &bind(2)).await;
    assert!(bound.starts_with(&format!("{name}@0.1.0")), "{bound}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rust_policy_goes_from_new_to_bound() {
    from_new_to_bound("rust", None, "priority", "age_weight").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_policy_goes_from_new_to_bound() {
    from_new_to_bound("python", PYTHON, "priority", "age_weight").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_policy_goes_from_new_to_bound() {
    from_new_to_bound("typescript", TYPESCRIPT, "priority", "age_weight").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_policy_of_actions_goes_from_new_to_bound() {
    from_new_to_bound("typescript", TYPESCRIPT, "allocation", "reserve_units").await;
}
