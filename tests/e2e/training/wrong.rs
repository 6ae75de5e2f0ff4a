//! What is wrong is refused and changes nothing.

use std::path::Path;
use std::process::Command;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::process::DaemonProcess;

use super::{JOB, batch, declare, get, member, on_disk, post, put, sample, submit};
use crate::clients::python;
use crate::restart::DAEMON;
use crate::tenancy::{client_of, make_tenant};

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
        post("/versions", json!({"version": 0}), 409, "version_conflict"),
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
        put("", json!({"model": ""}), 400, "invalid_field"),
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
    post(client, "/batches/1/trained", json!({})).await.ok();
    post(client, "/versions", json!({"version": 1})).await.ok();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_comes_into_being_by_its_name_unless_the_request_is_wrong() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let bad = json!({"groups": [{"group": "g", "size": 0}]});
    let bad = post(client, "/groups", bad).await;
    bad.refused(400, "invalid_field");
    let bad = post(client, "/members", json!({"program": "p\u{1f}"})).await;
    bad.refused(400, "invalid_field");
    get(client, "").await.refused(404, "job_unknown");
    submit(client, &["a"]).await;
    let made = get(client, "").await.ok();
    assert_eq!(
        (&made["queued"], &made["settings"]["group_size"]),
        (&json!(1), &json!(8))
    );
    let other = "/api/v1/jobs/other";
    let path = format!("{other}/members");
    let none = client.post(&path, &json!({"program": "q"})).await;
    assert_eq!(none.json()["waits"][0]["waits_for"], "groups");
    client.get(other).await.ok();
    // Whoever comes first, settings are those that were declared.
    for number in 0..20 {
        let path = format!("/api/v1/jobs/j{number}");
        let settings = b"{\"group_size\": 3}".to_vec();
        let groups = json!({"groups": [{"group": "g"}]});
        let to = format!("{path}/groups");
        let (declared, submitted) = tokio::join!(
            client.send(Method::PUT, &path, &[], settings),
            client.post(&to, &groups)
        );
        declared.ok();
        submitted.ok();
        assert_eq!(client.get(&path).await.ok()["settings"]["group_size"], 3);
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_with_another_digest_than_its_client_counted_is_refused() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    declare(client, json!({"group_size": 1, "batch_groups": 1})).await;
    submit(client, &["a"]).await;
    let begun = post(client, "/members", json!({"program": "p"})).await;
    begun.ok();
    let before = get(client, "").await.ok();
    let named = |digest: &str| json!({"end": "completed", "sample": sample(8), "digest": digest});
    let other = put(client, "/members/p", &named("sha256:0")).await;
    let message = other.refused(400, "sample_invalid");
    let computed = message.strip_prefix("`digest` is sha256:0, and that of `sample` is ");
    let (computed, remedy) = computed
        .and_then(|rest| rest.split_once(": "))
        .expect("both");
    assert!(remedy.contains("send both again"), "{message}");
    let bare = json!({"end": "completed", "digest": computed});
    let bare = put(client, "/members/p", &bare).await;
    bare.refused(400, "sample_invalid");
    assert_eq!(get(client, "").await.ok(), before);
    let ended = put(client, "/members/p", &named(computed)).await;
    assert_eq!(ended.ok()["sample"], computed);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_tenant_has_is_unknown_and_stays_as_it_is() {
    let fixture = Fixture::start(1, 10_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    let client = &fixture.client;
    declare(client, json!({"group_size": 1, "batch_groups": 1})).await;
    submit(client, &["a", "b"]).await;
    member(client, "p1", "a", 1.0).await;
    batch(client, 1).await;
    let begun = post(client, "/members", json!({"program": "p2", "group": "b"})).await;
    begun.ok();
    let of_others = async || {
        let groups = get(client, "/groups").await.ok();
        (get(client, "").await.ok(), groups, batch(client, 1).await)
    };
    let before = of_others().await;
    let end = json!({"end": "completed", "reward": 0.0});
    for (declared, member_code, batch_code) in [
        (false, (404, "job_unknown"), (404, "job_unknown")),
        (true, (404, "member_unknown"), (409, "batch_ahead")),
    ] {
        if declared {
            declare(&acme, json!({})).await;
        }
        let ended = put(&acme, "/members/p2", &end).await;
        ended.refused(member_code.0, member_code.1);
        let rewarded = put(&acme, "/members/p2/reward", &json!({"reward": 0.0})).await;
        rewarded.refused(member_code.0, member_code.1);
        let steps = get(&acme, "/members/p2/steps").await;
        steps.refused(member_code.0, member_code.1);
        let payload = get(&acme, "/batches/1/payload").await;
        payload.refused(batch_code.0, batch_code.1);
        let trained = post(&acme, "/batches/1/trained", json!({})).await;
        trained.refused(batch_code.0, batch_code.1);
    }
    let groups = get(&acme, "/groups?group=b").await.ok();
    assert_eq!(groups["groups"], json!([]), "its job has none");
    assert_eq!(of_others().await, before);
    fixture.finish().await;
}

/// Replaces bytes of a payload in the database of a daemon that does not run.
fn damage(python: &Path, folder: &Path, name: &str, from: &str, to: &str) {
    let script = "import sqlite3, sys\n\
        path, like, *bytes_of = sys.argv[1:]\n\
        old, new = map(bytes.fromhex, bytes_of)\n\
        db = sqlite3.connect(path)\n\
        select = 'SELECT name, body FROM training_payloads WHERE name LIKE ?'\n\
        [(name, body)] = db.execute(select, [like]).fetchall()\n\
        assert body.count(old) == 1\n\
        update = 'UPDATE training_payloads SET body = ? WHERE name = ?'\n\
        db.execute(update, [body.replace(old, new), name])\n\
        db.commit()";
    let ran = Command::new(python)
        .args(["-c", script])
        .arg(folder.join("treadle.db"))
        .args([name, from, to])
        .status();
    assert!(ran.expect("Python runs").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_damaged_in_the_database_is_named_and_not_served() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = on_disk(folder.path());
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    declare(&daemon.client, json!({"group_size": 1, "batch_groups": 1})).await;
    submit(&daemon.client, &["a"]).await;
    member(&daemon.client, "p1", "a", 1.0).await;
    let whole = batch(&daemon.client, 1).await;
    daemon.kill();
    // Token 9 of the prompt, and the letter in the content.
    let [token, other] = ["09000000", "07000000"];
    let [letter, another] = ["2261227d", "2262227d"];
    damage(&python, folder.path(), "sample/p1/%", token, other);
    damage(&python, folder.path(), "group/a/%", letter, another);
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    for (path, name) in [
        ("/batches/1/payload", "sample/p1/sha256:"),
        ("/batches/1", "group/a/sha256:"),
    ] {
        let message = get(&daemon.client, path).await.refused(500, "internal");
        assert!(message.contains(name), "{message}");
        assert!(message.contains("damaged in the store"), "{message}");
    }
    daemon.kill();
    damage(&python, folder.path(), "sample/p1/%", other, token);
    damage(&python, folder.path(), "group/a/%", another, letter);
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    assert_eq!(batch(&daemon.client, 1).await, whole);
    daemon.kill();
}
