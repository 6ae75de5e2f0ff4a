//! Hostile policies, bound while programs work: the gateway goes on serving.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::hostile::{ARMED_ALWAYS, Outcome, POLICIES, build};
use treadle_tests::support::policy::root;

use super::crowd::{crowd, everyones, hurried, put_binding, stop, upload};

/// Maximum growth of the daemon's memory over the test.
const GROWTH_BYTES_MAX: u64 = 512 << 20;

fn resident_bytes() -> u64 {
    treadle_server::metrics::resident_bytes().expect("the system tells")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_serves_through_the_whole_corpus() {
    let fixture = Fixture::tuned(2, 8_192, |config| {
        hurried(config);
        // Each endless loop delays all others for this long.
        config.plugins.hot_deadline_ms = 10;
        config.plugins.backoff_ms = 10;
        config.plugins.backoff_ms_max = 20;
        // A compilation that takes minutes runs in a child, and is cut off.
        config.plugins.compiler = root()
            .join("target/debug/treadle")
            .to_string_lossy()
            .into_owned();
        config.plugins.compile_cpu_s_max = 4;
    })
    .await;
    let client = &fixture.client;
    let end = Arc::default();
    let crowd = crowd(&fixture, 30, &end);
    let before = resident_bytes();
    let (mut refused, mut bound) = (0, 0);
    // A limit of seconds of processor time may take minutes on a busy machine.
    let uploads = client.with_timeout(Duration::from_mins(3));
    for policy in POLICIES {
        let answer = upload(&uploads, "/api/v1/plugins", build(policy.name)).await;
        if let Outcome::Refused(_) = policy.comes_of_it {
            answer.refused(400, "plugin_invalid");
            let refusal = &answer.json()["error"]["refusal"];
            assert!(refusal["remedy"].is_string(), "{}: {refusal}", policy.name);
            refused += 1;
            continue;
        }
        assert!(
            answer.status.is_success(),
            "{}: {}",
            policy.name,
            answer.json()
        );
        let armed: serde_json::Value = serde_json::from_str(ARMED_ALWAYS).expect("JSON");
        let digest = answer.json()["digest"].clone();
        let binding = json!({"world": policy.world, "policy": digest, "config": armed});
        put_binding(client, &binding).await.ok();
        let steps = client.metrics().await.count("treadle_steps_finished_total");
        let went_on = |m: &treadle_tests::support::metrics::Metrics| {
            m.count("treadle_steps_finished_total") > steps + 10
        };
        client.until("going on", went_on).await;
        client.get("/health").await.ok();
        bound += 1;
    }
    assert!(
        refused >= 5 && bound >= 10,
        "{refused} refused, {bound} bound"
    );
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "grew by {grown} bytes");
    put_binding(client, &json!({"world": "priority", "policy": "native"}))
        .await
        .ok();
    stop(crowd, &end).await;
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 0);
    assert!(metrics.count("treadle_policy_faults_total") > 0);
    let bindings = client.get("/api/v1/bindings").await.ok();
    let active = everyones(&bindings, "priority")["policy"].as_str().unwrap();
    assert!(active.ends_with("+native"), "{active}");
    fixture.finish().await;
}
