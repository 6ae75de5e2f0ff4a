//! What is wrong is refused and changes nothing.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::fixture::Fixture;

use super::{JOB, batch, declare, get, member, post, put, submit};

/// A request that is wrong: method, path, body, status and code.
type Wrong = (Method, &'static str, Value, u16, &'static str);

fn wrong_reports_of_trainers() -> Vec<Wrong> {
    let post = |path, body, status, code| (Method::POST, path, body, status, code);
    let get = |path, status, code| (Method::GET, path, Value::Null, status, code);
    vec![
        post(
            "/batches/1/trained",
            json!({"lineage": 1}),
            409,
            "version_conflict",
        ),
        post(
            "/checkpoints",
            json!({"batch": 1, "lineage": 1}),
            409,
            "version_conflict",
        ),
        get("x/batches/1", 404, "job_unknown"),
        get("/batches/3", 409, "batch_ahead"),
        get("/batches/1?rank=2&of=2", 400, "invalid_field"),
        get("/batches/one", 400, "invalid_field"),
        post("/batches/2/trained", json!({}), 409, "batch_ahead"),
        post("/versions", json!({"version": 2}), 409, "version_conflict"),
        post(
            "/versions",
            json!({"version": 0, "lineage": 1}),
            409,
            "version_conflict",
        ),
        post("/versions", json!({"version": -1}), 400, "invalid_field"),
        post("/checkpoints", json!({"batch": 2}), 409, "batch_ahead"),
        post("/resume", json!({"batch": 5}), 409, "batch_ahead"),
        post(
            "/groups",
            json!({"groups": [{"group": "g", "size": 0}]}),
            400,
            "invalid_field",
        ),
        post(
            "/groups",
            json!({"groups": [{"group": ""}]}),
            400,
            "invalid_field",
        ),
        post("/groups", json!({}), 400, "missing_field"),
        post(
            "/members",
            json!({"program": "p1\u{1f}"}),
            400,
            "invalid_field",
        ),
        post(
            "/members",
            json!({"program": "p2", "group": "c"}),
            409,
            "member_conflict",
        ),
    ]
}

fn wrong_reports_of_members() -> Vec<Wrong> {
    let put = |path, body, status, code| (Method::PUT, path, body, status, code);
    vec![
        put(
            "/members/nobody",
            json!({"end": "completed"}),
            404,
            "member_unknown",
        ),
        put(
            "/members/p1",
            json!({"end": "truncated"}),
            409,
            "member_conflict",
        ),
        put(
            "/members/p1/reward",
            json!({"reward": 0.0}),
            409,
            "member_conflict",
        ),
        put("/members/p2/reward", json!({}), 400, "invalid_field"),
        put("/members/p2", json!({"end": "won"}), 400, "invalid_field"),
        put("/members/p2", json!({"end": "cut"}), 400, "invalid_field"),
        put(
            "/members/p2",
            json!({"end": "aborted", "reward": 0.0}),
            400,
            "invalid_field",
        ),
        put(
            "/members/p2",
            json!({"end": "completed", "reward": "NaN"}),
            400,
            "invalid_field",
        ),
        put("", json!({"group_size": "x"}), 400, "invalid_field"),
        put("", json!({"groups": 1}), 400, "invalid_field"),
        put("", json!({"group_size": 0}), 400, "invalid_field"),
        put("", json!({"reward": {"run": {}}}), 409, "actions_disabled"),
    ]
}

fn wrong_reports() -> Vec<Wrong> {
    [wrong_reports_of_trainers(), wrong_reports_of_members()].concat()
}

/// Samples that are wrong.
fn wrong_samples() -> [(Value, u16, &'static str); 3] {
    let step = |output: Value| json!({"prompt": [1], "output": output, "logprobs": [-0.5]});
    let mut ahead = step(json!([2]));
    ahead["version"] = json!(9);
    [
        (step(json!([10])), 400, "sample_invalid"),
        (step(json!([2, 3])), 400, "sample_invalid"),
        (ahead, 409, "version_conflict"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_and_changes_nothing() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(client, json!({"group_size": 1, "batch_groups": 1})).await;
    submit(client, &["a", "b"]).await;
    member(client, "p1", "a", 1.0).await;
    batch(client, 1).await;
    let other = json!({"program": "p2"});
    post(client, "/members", other).await.ok();
    let before = get(client, "").await.ok();
    for (method, path, body, status, code) in wrong_reports() {
        let path = format!("{JOB}{path}");
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        client
            .send(method, &path, &[], body)
            .await
            .refused(status, code);
    }
    for (step, status, code) in wrong_samples() {
        let end = json!({"end": "completed", "sample": {"steps": [step], "vocabulary": 10}});
        put(client, "/members/p2", &end).await.refused(status, code);
    }
    assert_eq!(get(client, "").await.ok(), before);
    fixture.finish().await;
}
