//! Uploads, checks, binds and swaps policies while programs run; bad ones are refused or rolled
//! back.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::policy::{failing, lru_eviction};

use super::crowd::{bind, crowd, deciding_policies, everyones, hurried, stop, upload};

fn multipart(bytes: &[u8]) -> Vec<u8> {
    let head = "--edge\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nhello\r\n--edge\r\n\
        content-disposition: form-data; name=\"file\"; filename=\"p.wasm\"\r\n\
        content-type: application/wasm\r\n\r\n";
    [head.as_bytes(), bytes, b"\r\n--edge--\r\n"].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_checked_stored_once_and_listed() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let before = client.get("/api/v1/plugins").await.ok();
    let checked = upload(client, "/api/v1/plugins/check", lru_eviction())
        .await
        .ok();
    assert_eq!(
        (&checked["name"], &checked["world"]),
        (&json!("lru-eviction"), &json!("eviction"))
    );
    assert_eq!(
        client.get("/api/v1/plugins").await.ok(),
        before,
        "a check stores nothing"
    );

    let first = upload(client, "/api/v1/plugins", lru_eviction()).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.json()["new"], true);
    let headers = [("content-type", "multipart/form-data; boundary=edge")];
    let form = multipart(&lru_eviction());
    let again = client
        .send(Method::POST, "/api/v1/plugins", &headers, form)
        .await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["new"], false);
    assert_eq!(again.json()["digest"], first.json()["digest"]);
    let listed = client.get("/api/v1/plugins").await.ok();
    let names: Vec<_> = listed["plugins"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|p| p["uploaded_at_us"].is_number())
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&&json!("lru-eviction")));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_upload_is_refused_with_what_where_and_remedy() {
    let fixture = Fixture::start(1, 100_000).await;
    let half = lru_eviction()[..40_000].to_vec();
    for (bytes, code) in [
        (b"PK\x03\x04 an archive".to_vec(), "not-wasm"),
        (Vec::new(), "empty"),
        (half, "truncated"),
        (b"\0asm\x01\0\0\0".to_vec(), "no-wit"),
    ] {
        for path in ["/api/v1/plugins", "/api/v1/plugins/check"] {
            let answer = upload(&fixture.client, path, bytes.clone()).await;
            answer.refused(400, "plugin_invalid");
            let refusal = &answer.json()["error"]["refusal"];
            assert_eq!(refusal["code"], code);
            for field in ["what", "where", "remedy"] {
                assert!(
                    refusal[field].as_str().is_some_and(|text| !text.is_empty()),
                    "{refusal}"
                );
            }
        }
    }
    let body = json!({"world": "eviction", "policy": "nobody"}).to_string();
    let answer = fixture
        .client
        .send(Method::PUT, "/api/v1/bindings", &[], body)
        .await;
    answer.refused(404, "plugin_unknown");
    let body = json!({"world": "eviction"}).to_string();
    let answer = fixture
        .client
        .send(Method::PUT, "/api/v1/bindings", &[], body)
        .await;
    answer.refused(400, "missing_field");
    let body = json!({"world": "fortune", "policy": "native"}).to_string();
    let answer = fixture
        .client
        .send(Method::PUT, "/api/v1/bindings", &[], body)
        .await;
    let message = answer.refused(400, "invalid_field");
    assert!(message.contains("eviction"), "{message}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_swapped_under_a_hundred_programs() {
    let fixture = Fixture::tuned(2, 16_384, hurried).await;
    upload(&fixture.client, "/api/v1/plugins", lru_eviction())
        .await
        .ok();
    let end = std::sync::Arc::default();
    let crowd = crowd(&fixture, 100, &end);
    for swap in 0..20 {
        let policy = ["lru-eviction", "thunderagent-eviction"][swap % 2];
        let bound = bind(&fixture.client, policy).await;
        assert!(
            bound["policy"]
                .as_str()
                .is_some_and(|name| name.starts_with(policy)),
            "{bound}"
        );
        let active = fixture.client.get("/api/v1/bindings").await.ok();
        assert_eq!(everyones(&active, "eviction")["policy"], bound["policy"]);
        let restores = fixture
            .client
            .metrics()
            .await
            .count("treadle_restores_total");
        let decided = |m: &Metrics| m.count("treadle_restores_total") > restores;
        fixture.client.until("decided", decided).await;
    }
    stop(crowd, &end).await;
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 0);
    assert!(metrics.count("treadle_policy_swaps_total") >= 20);
    assert!(metrics.count("treadle_policy_answers_total") > 20);
    let policies = deciding_policies(&fixture.client, 100).await;
    for name in ["lru-eviction@", "thunderagent-eviction@"] {
        assert!(
            policies.iter().any(|policy| policy.starts_with(name)),
            "{policies:?}"
        );
    }
    fixture.finish().await;
}

/// Binds a policy that fails, lets programs work, and checks that the default answers until the
/// binding is rolled back to the one before.
async fn falls_back_and_is_rolled_back(instructions: &str) {
    let fixture = Fixture::tuned(2, 8_192, |config| {
        config.plugins.backoff_ms = 20;
        config.plugins.backoff_ms_max = 40;
        config.plugins.opens_max = 3;
        hurried(config);
    })
    .await;
    let before = fixture.client.get("/api/v1/bindings").await.ok();
    let uploaded = upload(&fixture.client, "/api/v1/plugins", failing(instructions))
        .await
        .ok();
    assert_eq!(uploaded["name"], "fixture");
    let faults = fixture
        .client
        .metrics()
        .await
        .count("treadle_policy_faults_total");
    bind(&fixture.client, "fixture").await;
    let end = std::sync::Arc::default();
    let crowd = crowd(&fixture, 30, &end);
    let rolled_back = |m: &Metrics| m.count("treadle_policy_rollbacks_total") == 1;
    let metrics = fixture.client.until("rolled back", rolled_back).await;
    assert!(metrics.count("treadle_policy_faults_total") >= faults + 3);
    assert!(metrics.count("treadle_policy_fallbacks_total") >= 3);
    let after = fixture.client.get("/api/v1/bindings").await.ok();
    let policy = |bindings: &Value| everyones(bindings, "eviction")["policy"].clone();
    assert_eq!(policy(&after), policy(&before));
    assert!(after["statistics"]["latest_fault"].is_string());
    let restores = metrics.count("treadle_restores_total");
    let goes_on = |m: &Metrics| m.count("treadle_restores_total") > restores;
    fixture.client.until("going on", goes_on).await;
    stop(crowd, &end).await;
    let policies = deciding_policies(&fixture.client, 30).await;
    assert!(
        policies.iter().any(|policy| policy.ends_with("+native")),
        "{policies:?}"
    );
    assert!(
        !policies.iter().any(|policy| policy.starts_with("fixture")),
        "{policies:?}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trapping_policy_is_rolled_back() {
    falls_back_and_is_rolled_back("(unreachable)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spinning_policy_is_rolled_back() {
    falls_back_and_is_rolled_back("(loop $forever (br $forever))").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_answers_nonsense_is_rolled_back() {
    let nonsense = "(return (call $answer (i32.const 1) (f64.const nan)))";
    falls_back_and_is_rolled_back(nonsense).await;
}
