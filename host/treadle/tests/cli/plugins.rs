//! What an author of a policy does before there is a daemon to push it to.

use crate::cluster::{failure, guest, stdout, treadle};
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
