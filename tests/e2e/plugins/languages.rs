//! Policies in Python and TypeScript decide real rollouts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::policy::guest;

use super::crowd::{crowd, deciding_policies, hurried, put_binding, stop, upload};

/// Time limit for compiling an interpreter with an unoptimised compiler, while other tests run.
const COMPILING: Duration = Duration::from_mins(4);

async fn decides_a_rollout(policy: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::tuned(2, 8_192, |config| {
        hurried(config);
        // With a cache folder for compiled code, the second time is quick.
        config.store.path = folder
            .path()
            .join("store.db")
            .to_string_lossy()
            .into_owned();
        // Interpreters are slow, and the machine may be busy.
        config.plugins.hot_deadline_ms = 200;
    })
    .await;
    let client = &fixture.client.with_timeout(COMPILING);
    let uploaded = upload(client, "/api/v1/plugins", guest(policy)).await.ok();
    assert_eq!(uploaded["name"], policy);
    assert_eq!(uploaded["world"], "priority");
    let binding = json!({"world": "priority", "policy": policy});
    put_binding(client, &binding).await.ok();
    let end = Arc::default();
    let crowd = crowd(&fixture, 30, &end);
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 40;
    client.until("restoring", decided).await;
    stop(crowd, &end).await;
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 0);
    let policies = deciding_policies(client, 30).await;
    assert!(
        policies
            .iter()
            .any(|name| name.starts_with(&format!("{policy}@"))),
        "{policies:?}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_policy_decides_a_rollout() {
    decides_a_rollout("longest-waiting-priority").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_policy_decides_a_rollout() {
    decides_a_rollout("shortest-remaining-priority").await;
}
