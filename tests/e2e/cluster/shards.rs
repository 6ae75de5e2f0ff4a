//! Several schedulers, each of some jobs.

use serde_json::{Value, json};
use treadle_config::Role;
use treadle_tests::support::client::Client;
use treadle_tests::support::cluster::{Cluster, until_scheduled};
use treadle_tests::support::fixture::{COMPLETIONS, MODEL, endpoint, engine};

use super::DAEMON;

async fn step(client: &Client, job: &str, body: &Value) {
    let headers = [("content-type", "application/json"), ("x-treadle-job", job)];
    let body = body.to_string();
    let answer = client.send(http::Method::POST, COMPLETIONS, &headers, body);
    answer.await.ok();
}

/// Requests about programs reach their shard without naming it.
async fn reports_reach_the_shard_of_their_program(client: &Client) {
    let post = async |path: &str, body: Value| {
        let answer = client.send(http::Method::POST, path, &[], body.to_string());
        answer.await
    };
    for program in (0..12).map(|n| format!("p{n}")) {
        let started = json!({
            "program_id": program, "action_id": "a", "event": "started", "tool": "sh",
        });
        post("/api/v1/actions", started).await.ok();
        let path = format!("/api/v1/events?kind=action_started&program={program}");
        let mut recorded = 0;
        for shard in ["north", "south"] {
            let headers = [("x-treadle-shard", shard)];
            let page = client.send(http::Method::GET, &path, &headers, "").await;
            recorded += page.ok()["events"].as_array().expect("a list").len();
        }
        assert_eq!(recorded, 1, "{program}");
    }
    let unknown = json!({"program_id": "p99", "action_id": "a", "event": "started", "tool": "sh"});
    let refused = post("/api/v1/actions", unknown).await;
    assert_eq!(refused.status, http::StatusCode::NOT_FOUND);
    // Programs are not listed without a token.
    for program in ["p0", "p99"] {
        let headers = [("x-forwarded-for", "203.0.113.9")];
        let body = json!({"program_id": program}).to_string();
        let anonymous = client.without_token();
        let refused = anonymous.send(http::Method::POST, "/programs/release", &headers, body);
        assert_eq!(refused.await.status, http::StatusCode::UNAUTHORIZED);
    }
    let released = post("/programs/release", json!({"program_id": "p0"})).await;
    assert_eq!(released.ok()["released"], true);
    let released = client.send(http::Method::DELETE, "/api/v1/jobs/job-1", &[], "");
    assert_eq!(released.await.ok()["released"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_has_one_shard_and_each_shard_its_scheduler() {
    let engines = [engine(100_000).await, engine(100_000).await];
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.cluster.shards = vec!["north".into(), "south".into()];
        config.engines.endpoints = engines.iter().map(|e| endpoint(e.url())).collect();
    });
    let first = cluster.start(Role::All).await;
    let second = cluster.start(Role::All).await;
    for shard in 0..2 {
        until_scheduled(&[&first, &second], shard).await;
    }
    let jobs: Vec<String> = (0..12).map(|n| format!("job-{n}")).collect();
    for (n, job) in jobs.iter().enumerate() {
        let body = json!({
            "model": MODEL, "prompt": [1, 2, 3], "max_tokens": 5, "program_id": format!("p{n}"),
        });
        // Programs of one job share a scheduler, whichever daemon accepts them.
        for daemon in [&first, &second] {
            step(&daemon.client, job, &body).await;
        }
    }
    let mut seen = 0;
    for shard in ["north", "south"] {
        let headers = [("x-treadle-shard", shard)];
        let page = second
            .client
            .send(http::Method::GET, "/programs", &headers, "")
            .await;
        let programs = page.ok();
        let programs = programs.as_object().expect("an object");
        assert!(programs.len() >= 2, "{shard} has {}", programs.len());
        for (key, program) in programs {
            assert_eq!(program["step_count"], 2, "{key} of {shard}");
        }
        seen += programs.len();
    }
    assert_eq!(seen, jobs.len());
    reports_reach_the_shard_of_their_program(&second.client).await;
    // One daemon stops; the other schedules both shards.
    first.kill();
    for shard in 0..2 {
        until_scheduled(&[&second], shard).await;
    }
    for (n, job) in jobs.iter().enumerate() {
        let body = json!({
            "model": MODEL, "prompt": [1, 2, 3, 4], "max_tokens": 5, "program_id": format!("p{n}"),
        });
        step(&second.client, job, &body).await;
    }
    second.kill();
    for engine in engines {
        engine.shutdown().await;
    }
}
