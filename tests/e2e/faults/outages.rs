//! Engines that die, and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{
    CHAT, Fixture, SPEED, chat, engine_at, plain_endpoint, streamed,
};
use treadle_tests::support::metrics::Metrics;
use treadle_tests::support::raw_engine::RawEngine;

/// Minimum number of steps of a program.
const STEPS_MIN: u64 = 3;

/// Runs steps of a program until stopped; returns when each failed one was sent.
async fn work(client: Client, program: String, end: Arc<AtomicBool>) -> Vec<Instant> {
    let (mut fine, mut failed) = (0, Vec::new());
    while !end.load(Ordering::Relaxed) || fine < STEPS_MIN {
        let sent = Instant::now();
        let body = chat(&program, "a task", 40);
        let good = if fine % 2 == 0 {
            client.post(CHAT, &body).await.status.is_success()
        } else {
            let headers = [("content-type", "application/json")];
            let body = streamed(body).to_string();
            let opened = client.open(http::Method::POST, CHAT, &headers, body).await;
            let whole = match opened {
                Ok(answer) => http_body_util::BodyExt::collect(answer.into_body())
                    .await
                    .ok(),
                Err(_) => None,
            };
            whole.is_some_and(|whole| whole.to_bytes().ends_with(b"data: [DONE]\n\n"))
        };
        if good {
            fine += 1;
        } else {
            failed.push(sent);
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_a_killed_engine_go_on_at_another() {
    let mut fixture = Fixture::start(2, 200_000).await;
    let end = Arc::new(AtomicBool::new(false));
    let programs: Vec<_> = (0..30)
        .map(|p| tokio::spawn(work(fixture.client.clone(), format!("p{p}"), end.clone())))
        .collect();
    // Work before the engine is gone, and after it.
    let done = |m: &Metrics| m.count("treadle_steps_finished_total");
    let before = fixture.client.until("at work", |m| done(m) >= 100).await;
    let dead = fixture.engines.remove(0);
    let dead_url = dead.url();
    dead.shutdown().await;
    // From here on nothing listens there.
    let killed = Instant::now();
    let more = done(&before) + 200;
    fixture
        .client
        .until("at work again", |m| done(m) >= more)
        .await;
    end.store(true, Ordering::Relaxed);
    for program in programs {
        let failed = program.await.expect("no panic");
        let late = failed.iter().filter(|sent| **sent > killed).count();
        assert_eq!(
            late, 0,
            "steps failed that were sent after the engine was gone"
        );
    }
    let programs = fixture.client.get("/programs").await.ok();
    for (program, state) in programs.as_object().expect("an object") {
        assert_ne!(state["backend"], dead_url, "{program}");
    }
    let metrics = fixture.client.metrics().await;
    assert!(metrics.count("treadle_moves_total") > 0);
    assert_eq!(metrics.count("treadle_worker_healthy"), 1);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_engines_requests_wait_and_then_fail_with_the_cause() {
    let mut fixture = Fixture::tuned(2, 100_000, |c| c.scheduler.queue_wait_s_max = 1).await;
    fixture.client.post(CHAT, &chat("p", "x", 5)).await.ok();
    for engine in std::mem::take(&mut fixture.engines) {
        engine.shutdown().await;
    }
    fixture
        .client
        .until("alone", |m| m.count("treadle_worker_healthy") == 0)
        .await;
    let health = fixture.client.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "no_healthy_worker");
    assert_eq!(health.json()["healthy_backends"], 0);
    let began = Instant::now();
    let answer = fixture.client.post(CHAT, &chat("p", "x", 5)).await;
    let message = answer.refused(503, "no_healthy_worker");
    assert!(message.contains("POST /workers"), "{message}");
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(950), "{waited:?}");
    fixture
        .client
        .get("/v1/models")
        .await
        .refused(503, "no_healthy_worker");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_are_served_once_an_engine_is_back() {
    let mut fixture = Fixture::start(1, 100_000).await;
    fixture.client.post(CHAT, &chat("p", "x", 5)).await.ok();
    let engine = fixture.engines.remove(0);
    let address = engine.addr().to_string();
    engine.shutdown().await;
    let client = fixture.client.clone();
    let asking: Vec<_> = (0..5)
        .map(|p| {
            let client = client.clone();
            let body = chat(if p == 0 { "p" } else { "q" }, "x", 5);
            tokio::spawn(async move { client.post(CHAT, &body).await })
        })
        .collect();
    let all_wait = |m: &treadle_tests::support::metrics::Metrics| {
        m.count("treadle_worker_healthy") == 0 && m.count("treadle_queue_steps") == 5
    };
    fixture.client.until("waiting", all_wait).await;
    fixture
        .engines
        .push(engine_at(&address, 100_000, SPEED).await);
    for asked in asking {
        asked.await.expect("no panic").ok();
    }
    assert_eq!(fixture.client.get("/health").await.ok()["status"], "ok");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_engine_lets_its_programs_go_on_elsewhere() {
    let mut fixture = Fixture::start(1, 100_000).await;
    fixture.client.post(CHAT, &chat("p", "x", 5)).await.ok();
    let other = engine_at("127.0.0.1:0", 100_000, SPEED).await;
    let registration = json!({"url": other.url(), "kind": "vllm"});
    fixture.client.post("/workers", &registration).await.ok();
    let first = fixture.engines.remove(0);
    let removed = fixture.client.delete("/workers/0").await;
    assert_eq!(removed.ok()["worker_urls"], json!([other.url()]));
    fixture.client.post(CHAT, &chat("p", "x", 5)).await.ok();
    let programs = fixture.client.get("/programs").await.ok();
    assert_eq!(programs["p"]["backend"], other.url());
    assert_eq!(programs["p"]["step_count"], 2);
    first.shutdown().await;
    fixture.engines.push(other);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_gets_no_work_while_it_reports_itself_unhealthy() {
    let mut raw = RawEngine::start().await;
    raw.set_well(false);
    let url = raw.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    assert_eq!(fixture.client.get("/health").await.status, 503);
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 5)).await });
    let waits = |m: &Metrics| m.count("treadle_queue_steps") == 1;
    fixture.client.until("waiting", waits).await;
    raw.set_well(true);
    raw.request().await.answer_chat().await;
    asking.await.expect("no panic").ok();
    // It dies inside, but its port still answers.
    raw.set_well(false);
    let lost = |m: &Metrics| m.count("treadle_worker_healthy") == 0;
    fixture.client.until("lost", lost).await;
    fixture.finish().await;
}
