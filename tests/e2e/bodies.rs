//! Requests and answers are stored whole if configured.

use serde_json::{Value, json};
use treadle_config::Keep;
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_engine::RawEngine;

async fn bodies_of(client: &Client, program: &str, step: &Value) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/steps/{step}/bodies");
    let page = client.get(&path).await.ok();
    page["bodies"].as_array().expect("a list").clone()
}

async fn steps_of(client: &Client, program: &str) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/steps");
    let page = client.get(&path).await.ok();
    page["steps"].as_array().expect("a list").clone()
}

async fn kept(fixture: &Fixture, expected: usize) -> Vec<Vec<Value>> {
    let client = &fixture.client;
    let body = chat("p", "how long is a thread?", 9);
    let whole = client.post(CHAT, &body).await;
    whole.ok();
    let stream = client.stream(CHAT, &streamed(body)).await.finish().await;
    let answers = [whole.body.to_vec(), stream.bytes];
    let mut found = Vec::new();
    for (step, answer) in steps_of(client, "p").await.iter().zip(answers) {
        let began = std::time::Instant::now();
        let bodies = loop {
            let bodies = bodies_of(client, "p", &step["step"]).await;
            if bodies.len() >= expected {
                break bodies;
            }
            assert!(began.elapsed() < TIMEOUT, "{bodies:?}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        assert_eq!(bodies[0]["kind"], "answer");
        assert_eq!(bodies[0]["text"], String::from_utf8(answer).expect("text"));
        found.push(bodies);
    }
    assert_eq!(found.len(), 2);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_answers_are_kept_as_they_came() {
    let fixture = Fixture::tuned(1, 100_000, |config| config.payloads.keep = Keep::All).await;
    for bodies in kept(&fixture, 2).await {
        assert_eq!(bodies.len(), 2);
        let request: Value =
            serde_json::from_str(bodies[1]["text"].as_str().expect("text")).expect("JSON");
        assert_eq!(bodies[1]["kind"], "request");
        assert_eq!(request["messages"][0]["content"], "how long is a thread?");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_holds_them_and_long_ones_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.payloads.keep = Keep::Answers;
        config.payloads.location = place;
        config.payloads.body_bytes_max = 10_000;
    })
    .await;
    kept(&fixture, 1).await;
    assert!(
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count()
            > 0
    );
    fixture
        .client
        .post(CHAT, &chat("long", "go on", 9_000))
        .await
        .ok();
    let steps = steps_of(&fixture.client, "long").await;
    assert!(
        bodies_of(&fixture.client, "long", &steps[0]["step"])
            .await
            .is_empty()
    );
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_bodies_left_out_total"), 1);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_steps_that_failed_the_engine_s_words_are_kept() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::around(Vec::new(), |config| {
        config.payloads.keep = Keep::All;
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    let client = fixture.client.clone();
    let asked = tokio::spawn(async move { client.post(CHAT, &chat("p", "go on", 9)).await });
    let told = r#"{"error":{"message":"the sampler met NaN","code":500}}"#;
    let request = engine.request().await;
    request
        .answer("500 Internal Server Error", "application/json", told)
        .await;
    assert_eq!(asked.await.expect("it is answered").status, 500);
    let steps = steps_of(&fixture.client, "p").await;
    assert_eq!(steps[0]["outcome"], "failed");
    let cause = steps[0]["cause"].as_str().expect("a cause");
    assert!(cause.contains("the sampler met NaN"), "{cause}");
    let began = std::time::Instant::now();
    let bodies = loop {
        let bodies = bodies_of(&fixture.client, "p", &steps[0]["step"]).await;
        if bodies.len() == 2 {
            break bodies;
        }
        assert!(began.elapsed() < TIMEOUT, "{bodies:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(bodies[0]["text"], told);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_by_default() {
    let fixture = Fixture::start(1, 100_000).await;
    fixture.client.post(CHAT, &chat("p", "hello", 5)).await.ok();
    let steps = steps_of(&fixture.client, "p").await;
    assert!(
        bodies_of(&fixture.client, "p", &steps[0]["step"])
            .await
            .is_empty()
    );
    assert_eq!(json!(steps.len()), json!(1));
    fixture.finish().await;
}
