//! Without a binding, treadle's own policy answers retention queries.

use std::sync::Arc;
use std::time::Duration;

use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::metrics::Metrics;

use super::crowd::{bind, deciding_policies, everyones, hurried, paced_crowd, stop};

#[tokio::test(flavor = "multi_thread")]
async fn caches_are_retained_by_foresight_unless_another_policy_is_bound() {
    let fixture = Fixture::tuned(2, 8_192, |config| {
        hurried(config);
        config.kv.retention = true;
        config.kv.host_tokens_max = 1_000_000;
        config.kv.prefill_tokens_per_s = 1_000;
    })
    .await;
    let bindings = fixture.client.get("/api/v1/bindings").await.ok();
    let bound = everyones(&bindings, "eviction")["policy"].clone();
    assert!(
        bound
            .as_str()
            .expect("a name")
            .starts_with("foresight-eviction@")
    );

    let end = Arc::default();
    let crowd = paced_crowd(&fixture, 40, Duration::from_millis(200), &end);
    let offloaded = |m: &Metrics| m.count("treadle_kv_offloads_total") > 20;
    fixture.client.until("offloading", offloaded).await;
    stop(crowd, &end).await;
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 0);
    assert_eq!(metrics.count("treadle_policy_faults_total"), 0);
    let policies = deciding_policies(&fixture.client, 40).await;
    assert!(
        policies.contains(bound.as_str().expect("a name")),
        "{policies:?}"
    );

    let native = bind(&fixture.client, "native").await;
    let native = native["policy"].as_str().expect("a name");
    assert!(native.ends_with("+native"), "{native}");
    fixture.finish().await;
}
