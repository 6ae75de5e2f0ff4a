//! SandboxFusion's own package and verl's, with only the URL changed.

use super::stage::{folder as packages, open, passes, python};
use serde_json::{Value, json};
use std::time::Duration;
use treadle_tests::support::client::Client;

async fn sandboxes(client: &Client) -> usize {
    let all = client.get("/api/v1/sandboxes").await.ok();
    all["sandboxes"].as_array().expect("a list").len()
}

async fn until_some(client: &Client) {
    for _ in 0..6_000 {
        if sandboxes(client).await > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no sandbox was made");
}

async fn until_none(client: &Client) {
    for _ in 0..2_000 {
        if sandboxes(client).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("sandboxes of requests stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_packages_of_sandbox_fusion_and_verl_work_with_another_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let Some(python) = python("newest") else {
        return;
    };
    let env = [
        ("FUSION_URL", fixture.client.base().to_owned()),
        ("PYTHONPATH", packages("verl").display().to_string()),
    ];
    passes(&python, "fusion_client.py", &env).await;
    until_none(&fixture.client).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_language_that_is_not_there_is_no_wrong_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let run = async |body: Value, query: &str| {
        let answer = client.post(&format!("/run_code{query}"), &body).await.ok();
        assert_eq!(answer["compile_result"], Value::Null);
        assert_eq!(answer["run_result"], Value::Null);
        assert_eq!(answer["status"], "SandboxError", "{answer}");
        answer["message"].as_str().expect("text").to_owned()
    };
    let racket = run(json!({"code": "", "language": "racket"}), "").await;
    assert!(
        racket.contains("the image `system` has no `racket`"),
        "{racket}"
    );
    let lean = run(json!({"code": "", "language": "lean"}), "").await;
    assert_eq!(lean, "treadle does not run `lean`");
    let python = json!({"code": "", "language": "python"});
    let image = run(python, "?image=none&job=math").await;
    assert!(image.contains("no image or snapshot none"), "{image}");
    let files = json!({"code": "", "language": "python", "files": {"a": "?"}});
    assert!(run(files, "").await.contains("a is not Base64"));
    until_none(client).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_its_bounds_and_its_sandbox_goes_with_its_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let bounded = json!({
        "code": "x = bytearray(300_000_000)", "language": "python", "memory_limit_MB": 200,
    });
    let headers = [
        ("content-type", "application/json"),
        ("x-treadle-job", "math"),
    ];
    let method = http::Method::POST;
    let answer = client
        .send(method, "/run_code", &headers, bounded.to_string())
        .await
        .ok();
    assert_eq!(answer["status"], "Failed");
    let error = answer["run_result"]["stderr"].as_str().expect("text");
    assert!(error.contains("MemoryError"), "{answer}");
    let actions = client.get("/api/v1/actions").await.ok();
    let action = &actions["actions"][0];
    assert_eq!(
        (&action["kind"], &action["job"]),
        (&json!("fusion"), &json!("math"))
    );

    let endless = json!({"code": "while True: pass", "language": "python", "run_timeout": 60});
    let asking = client.clone();
    let asked = tokio::spawn(async move { asking.post("/run_code", &endless).await });
    until_some(client).await;
    asked.abort();
    until_none(client).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_is_withdrawn_is_no_wrong_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).await;
    let client = &fixture.client;
    let endless = json!({"code": "while True: pass", "language": "python", "run_timeout": 60});
    let withdraw = async {
        for _ in 0..2_000 {
            let actions = client.get("/api/v1/actions").await.ok();
            let action = &actions["actions"][0];
            if action["status"] == "running" {
                let path = format!("/api/v1/actions/{}", action["action"]);
                return client.delete(&path).await.ok();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it does not run");
    };
    let (answer, _) = tokio::join!(client.post("/run_code", &endless), withdraw);
    let answer = answer.ok();
    assert_eq!(answer["status"], "SandboxError", "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .expect("text")
            .contains("was cancelled")
    );
    until_none(client).await;
    fixture.stop().await;
}
