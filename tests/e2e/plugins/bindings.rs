//! Roles of policies: active for all or for one job, canary, shadow, rolled back; and swapped under
//! load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, MODEL};
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::policy::guest;

use super::crowd::{
    bind, crowd, deciders, deciding_policies, everyones, hurried, paced_crowd, put_binding, stop,
    upload,
};

/// Programs that work while a policy is swapped this many times.
const PROGRAMS: u32 = 200;
const SWAPS: usize = 200;

/// A fixture with a crowd that has to wait, and these policies stored.
async fn fixture_with(policies: &[&str]) -> Fixture {
    let fixture = Fixture::tuned(2, 8_192, hurried).await;
    for policy in policies {
        let answer = upload(&fixture.client, "/api/v1/plugins", guest(policy)).await;
        assert!(answer.status.is_success(), "{policy}: {}", answer.json());
    }
    fixture
}

fn role(world: &str, policy: &str, role: &str) -> Value {
    json!({"world": world, "policy": policy, "role": role})
}

async fn binding(client: &Client, world: &str) -> Value {
    let bindings = client.get("/api/v1/bindings").await.ok();
    everyones(&bindings, world).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_priority_policy_orders_the_queue_and_is_named_as_why() {
    let fixture = fixture_with(&["fcfs-priority"]).await;
    let before = binding(&fixture.client, "priority").await;
    assert!(before["policy"].as_str().unwrap().ends_with("+native"));
    put_binding(
        &fixture.client,
        &role("priority", "fcfs-priority", "active"),
    )
    .await
    .ok();
    let end = Arc::default();
    let crowd = crowd(&fixture, 40, &end);
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 50;
    fixture.client.until("restoring", decided).await;
    stop(crowd, &end).await;
    let policies = deciding_policies(&fixture.client, 40).await;
    assert!(
        policies
            .iter()
            .any(|name| name.starts_with("fcfs-priority@0")),
        "{policies:?}"
    );
    let plugin = fixture
        .client
        .get("/api/v1/plugins/fcfs-priority")
        .await
        .ok();
    assert!(
        plugin["statistics"]["calls"].as_u64().unwrap() > 0,
        "{plugin}"
    );
    let statistics = &plugin["statistics"];
    assert_eq!(statistics["faults"], json!({}));
    let [p50, p99, slowest] =
        ["p50_us", "p99_us", "slowest_us"].map(|field| statistics[field].as_u64().unwrap());
    assert!(p50 <= p99 && p99 <= slowest, "{statistics}");
    let deadline = statistics["deadline_ms"].as_u64();
    assert!(deadline > Some(0), "{statistics}");
    let text = fixture.client.get("/metrics").await;
    let text = String::from_utf8(text.body.to_vec()).unwrap();
    assert!(text.contains("treadle_policy_version_calls_total{world=\"priority\",policy=\"fcfs"));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_policy_chooses_workers_and_is_named_beside_the_decision() {
    let fixture = fixture_with(&["least-load-placement"]).await;
    put_binding(
        &fixture.client,
        &role("placement", "least-load-placement", "active"),
    )
    .await
    .ok();
    let end = Arc::default();
    let crowd = crowd(&fixture, 20, &end);
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 20;
    fixture.client.until("restoring", decided).await;
    stop(crowd, &end).await;
    let mut placed = 0;
    for program in 0..20 {
        let path = format!("/api/v1/programs/p{program}/decisions");
        let page = fixture.client.get(&path).await.ok();
        for decision in page["decisions"].as_array().expect("a list") {
            let by = decision["why"]["placed_by"].as_str().unwrap_or_default();
            placed += u32::from(by.starts_with("least-load-placement@"));
        }
    }
    assert!(placed > 0, "no decision names the placement policy");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_decides_for_its_share_and_no_program_has_two_versions() {
    let fixture = fixture_with(&["fcfs-priority", "default-priority"]).await;
    let client = &fixture.client;
    put_binding(client, &role("priority", "fcfs-priority", "active"))
        .await
        .ok();
    let mut canary = role("priority", "default-priority", "canary");
    let answer = put_binding(client, &canary).await;
    let message = answer.refused(400, "invalid_field");
    assert!(message.contains("share"), "{message}");
    canary["share"] = json!(0.5);
    canary["config"] = json!({"unknown_s": 2.0});
    put_binding(client, &canary).await.ok();
    let on_record = &binding(client, "priority").await["on_record"];
    assert_eq!(on_record["canary"]["config"], canary["config"]);
    assert_eq!(on_record["active"]["config"], json!({}));
    let end = Arc::default();
    let crowd = crowd(&fixture, 60, &end);
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 150;
    client.until("restoring", decided).await;
    stop(crowd, &end).await;
    let view = binding(client, "priority").await;
    assert_eq!(view["canary"]["share"], 0.5);
    let trial = &view["canary"]["trial"];
    assert!(trial["canary"]["count"].as_u64().unwrap() > 0, "{view}");
    let (mut of_canary, mut of_active) = (0, 0);
    for policies in deciders(client, 60).await {
        let of = |name: &str| policies.iter().any(|policy| policy.starts_with(name));
        // Pauses are decided by the eviction policy; the order of the queue by one of the two.
        let (active, canary) = (of("fcfs-priority@"), of("default-priority@0"));
        assert!(!(active && canary), "two versions decided: {policies:?}");
        of_active += u32::from(active);
        of_canary += u32::from(canary);
    }
    assert!(
        of_canary >= 10 && of_active >= 10,
        "{of_canary} and {of_active}"
    );

    let rolled_back = client
        .post("/api/v1/bindings/rollback", &json!({"world": "priority"}))
        .await
        .ok();
    assert!(rolled_back["policy"].as_str().unwrap().starts_with("fcfs"));
    assert_eq!(binding(client, "priority").await["canary"], Value::Null);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_asked_and_compared_and_decides_nothing() {
    let fixture = fixture_with(&["lru-eviction"]).await;
    let client = &fixture.client;
    put_binding(client, &role("eviction", "lru-eviction", "shadow"))
        .await
        .ok();
    let end = Arc::default();
    let crowd = crowd(&fixture, 30, &end);
    let view = loop {
        let view = binding(client, "eviction").await;
        if view["shadow"]["answered"].as_u64() > Some(20) {
            break view;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    stop(crowd, &end).await;
    let shadow = &view["shadow"];
    assert!(
        shadow["policy"]
            .as_str()
            .unwrap()
            .starts_with("lru-eviction@")
    );
    assert_eq!(shadow["faults"], 0);
    let agreement = shadow["agreement"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&agreement), "{agreement}");
    assert!(!shadow["recent"].as_array().unwrap().is_empty());
    let policies = deciding_policies(client, 30).await;
    assert!(
        !policies.iter().any(|name| name.starts_with("lru")),
        "{policies:?}"
    );
    let path = "/api/v1/bindings?world=eviction&role=shadow";
    client.delete(path).await.ok();
    client.delete(path).await.refused(409, "binding_conflict");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_bound_in_its_world_and_the_default_follows_it() {
    let fixture = fixture_with(&["fcfs-priority", "lru-eviction"]).await;
    let client = &fixture.client;
    let default = binding(client, "eviction").await["policy"].clone();
    for (policy, world) in [("fcfs-priority", "priority"), ("lru-eviction", "eviction")] {
        let bound = put_binding(client, &json!({"policy": policy})).await.ok();
        assert_eq!(bound["world"], world);
        let elsewhere = put_binding(client, &role("reward", policy, "active")).await;
        let message = elsewhere.refused(400, "plugin_invalid");
        assert!(message.contains(&format!("--world {world}")), "{message}");
    }
    let ended = client.delete("/api/v1/bindings?world=eviction").await.ok();
    assert!(
        ended["before"]
            .as_str()
            .unwrap()
            .starts_with("lru-eviction@")
    );
    assert_eq!(ended["active"], default);
    assert_eq!(binding(client, "eviction").await["policy"], default);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_have_policies_of_their_own() {
    let fixture = fixture_with(&["fcfs-priority", "lru-eviction"]).await;
    let client = &fixture.client;
    let mut own = role("priority", "fcfs-priority", "active");
    own["job"] = json!("run-7");
    put_binding(client, &own).await.ok();
    let end = Arc::new(AtomicBool::new(false));
    let crowd = crowd(&fixture, 20, &end);
    let mut others = Vec::new();
    for program in 0..20 {
        let (client, end) = (client.clone(), end.clone());
        others.push(tokio::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                let tokens: Vec<u32> = (0..700).map(|t| t + ((program + 100) << 16)).collect();
                let body = json!({
                    "model": MODEL, "prompt": tokens, "max_tokens": 20,
                    "program_id": format!("q{program}"),
                });
                let headers = [("x-treadle-job", "run-7")];
                let sent = client.send(Method::POST, COMPLETIONS, &headers, body.to_string());
                sent.await.ok();
            }
        }));
    }
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 150;
    client.until("restoring", decided).await;
    stop(crowd, &end).await;
    for other in others {
        other.await.expect("no request fails");
    }
    let of_others = deciding_policies(client, 20).await;
    assert!(
        !of_others.iter().any(|name| name.starts_with("fcfs")),
        "{of_others:?}"
    );
    let mut of_job = 0;
    for program in 0..20 {
        let path = format!("/api/v1/programs/q{program}/decisions");
        let page = client.get(&path).await.ok();
        let decisions = page["decisions"].as_array().expect("a list").clone();
        let own = decisions.iter().filter_map(|d| d["policy"].as_str());
        of_job += own
            .filter(|name| name.starts_with("fcfs-priority@"))
            .count();
    }
    assert!(of_job > 0, "the job's own policy decided nothing");
    // A policy of the wrong world, and a rollback without a previous policy.
    let answer = put_binding(client, &role("priority", "lru-eviction", "active")).await;
    answer.refused(400, "plugin_invalid");
    let answer = client
        .post("/api/v1/bindings/rollback", &json!({"world": "reward"}))
        .await;
    answer.refused(409, "binding_conflict");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_in_the_audit_log() {
    let fixture = fixture_with(&["lru-eviction"]).await;
    bind(&fixture.client, "lru-eviction").await;
    let log = fixture
        .client
        .get("/api/v1/audit?action=binding.changed")
        .await
        .ok();
    let change = &log["changes"][0];
    assert_eq!(change["target"], "eviction/*/active");
    assert!(
        change["before"]["policy"]
            .as_str()
            .unwrap()
            .starts_with("foresight")
    );
    assert!(
        change["after"]["policy"]
            .as_str()
            .unwrap()
            .starts_with("lru-eviction@")
    );
    fixture.finish().await;
}

/// Many programs keep their requests going while the policy is swapped again and again.
#[tokio::test(flavor = "multi_thread")]
async fn swaps_under_load_lose_nothing() {
    let fixture = Fixture::tuned(2, 32_768, hurried).await;
    upload(&fixture.client, "/api/v1/plugins", guest("lru-eviction"))
        .await
        .ok();
    let end = Arc::default();
    // With time in tools, so that the machine has time for the swaps.
    let crowd = paced_crowd(&fixture, PROGRAMS, Duration::from_secs(1), &end);
    let decided = |m: &Metrics| m.count("treadle_restores_total") > 0;
    fixture.client.until("restoring", decided).await;
    for swap in 0..SWAPS {
        let policy = ["lru-eviction", "thunderagent-eviction"][swap % 2];
        bind(&fixture.client, policy).await;
    }
    // A crowd whose requests fail panics here.
    stop(crowd, &end).await;
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 0);
    assert!(metrics.count("treadle_policy_swaps_total") >= SWAPS as u64);
    let statistics = fixture.client.get("/api/v1/bindings").await.ok()["statistics"].clone();
    println!(
        "{SWAPS} swaps under {PROGRAMS} programs: the slowest held decisions up for {} us",
        statistics["slowest_swap_us"]
    );
    // Every answer in the journal names one version.
    let events = fixture
        .client
        .get("/api/v1/events?kind=policy_answered&limit=1000")
        .await
        .ok();
    for event in events["events"].as_array().expect("a list") {
        assert_eq!(event["event"]["attribution"], Value::Null, "{event}");
    }
    fixture.finish().await;
}
