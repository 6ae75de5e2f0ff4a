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

/// From nothing to a bound policy, as in the guide. `tools` is where a project looks for its tools,
/// and where `scripts/setup.sh test` has installed them.
async fn from_new_to_bound(language: &str, tools: Option<(&str, &str)>) {
    let cluster = Cluster::start("memory").await;
    let url = cluster.daemon.url();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    let at = path.display();
    let name = format!("my-{language}-priority");
    let line = format!("plugin new {name} --lang {language} --world priority --path {at}");
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
    let refused =
        format!("plugin bind {name} --world priority --config-json {{\"age_weight\":-1}}");
    let (code, text) = failure(&url, &refused).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("age_weight is -1; give 0 to"), "{text}");
    let bind = format!("plugin bind {name} --world priority --config-json {{\"age_weight\":2}}");
    let bound = with_tools(&url, &bind).await;
    assert!(bound.starts_with(&format!("{name}@0.1.0")), "{bound}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rust_policy_goes_from_new_to_bound() {
    from_new_to_bound("rust", None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_policy_goes_from_new_to_bound() {
    from_new_to_bound("python", Some((".venv", ".treadle/venv"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_policy_goes_from_new_to_bound() {
    let tools = ("node_modules", "sdk/typescript/node_modules");
    from_new_to_bound("typescript", Some(tools)).await;
}
