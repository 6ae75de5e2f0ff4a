//! Training runs of tenants: each sees its own, and has a share of what is kept.

use serde_json::json;
use treadle_tests::support::fixture::Fixture;

use super::{JOB, declare, get, post, submit};
use crate::tenancy::{client_of, make_tenant};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_many_contents_leaves_room_for_others() {
    let fixture = Fixture::tuned(1, 10_000, |config| config.training.bytes_max = 1 << 20).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    declare(&acme, json!({"group_size": 1})).await;
    declare(&fixture.client, json!({"group_size": 2})).await;
    let group = |key: &str| json!({"groups": [{"group": key, "content": "x".repeat(300_000)}]});
    post(&acme, "/groups", group("a")).await.ok();
    let full = post(&acme, "/groups", group("b")).await;
    let message = full.refused(429, "tenant_busy");
    assert!(message.contains("report a checkpoint"), "{message}");
    post(&fixture.client, "/groups", group("a")).await.ok();
    acme.delete(&format!("{JOB}?forget=true")).await.ok();
    let others = get(&fixture.client, "").await.ok();
    assert_eq!(others["queued"], 1, "of the same name");
    declare(&acme, json!({"group_size": 1})).await;
    post(&acme, "/groups", group("b")).await.ok();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_many_jobs_leaves_others_theirs() {
    let fixture = Fixture::start(1, 10_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    for number in 0..512 {
        let path = format!("/api/v1/jobs/j{number}");
        let body = b"{}".to_vec();
        acme.send(http::Method::PUT, &path, &[], body).await.ok();
    }
    let body = b"{}".to_vec();
    let full = acme.send(http::Method::PUT, JOB, &[], body).await;
    full.refused(429, "training_full");
    let groups = json!({"groups": [{"group": "a"}]});
    let full = post(&acme, "/groups", groups).await;
    full.refused(429, "training_full");
    declare(&fixture.client, json!({"group_size": 1})).await;
    submit(&fixture.client, &["a"]).await;
    let mine = fixture.client.get("/api/v1/jobs").await.ok();
    assert_eq!(mine["jobs"].as_array().map(Vec::len), Some(1));
    let metrics = fixture.client.metrics().await;
    assert_eq!(
        metrics.count_with("treadle_training_groups_queued", "job=\"math\""),
        1
    );
    let seen = acme.metrics().await;
    assert!(seen.count_with("treadle_training_groups_queued", "tenant=\"default\"") == 0);
    fixture.finish().await;
}
