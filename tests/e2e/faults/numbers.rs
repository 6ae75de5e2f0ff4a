//! Numbers out of the store's range, from clients and from engines: they are not stored, and later
//! requests are served and recorded.

use serde_json::json;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine};

#[tokio::test(flavor = "multi_thread")]
async fn a_capacity_that_no_engine_has_is_refused_by_name() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    for capacity in [json!(u64::MAX), json!(i64::MAX), json!(0), json!(-1)] {
        let body = json!({"url": "http://127.0.0.1:9", "capacity_tokens": capacity});
        let answer = client.post("/workers", &body).await;
        let message = answer.refused(400, "invalid_field");
        assert_eq!(
            answer.json()["error"]["param"],
            "capacity_tokens",
            "{message}"
        );
    }
    assert_eq!(client.get("/workers").await.ok()["total"], 1);
    client.post(CHAT, &chat("p", "hello", 4)).await.ok();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_no_engine_makes_do_not_stop_the_record() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    let most = u64::MAX.to_string();
    let lies = [
        CHAT_ANSWER.replace("\"prompt_tokens\":5", &format!("\"prompt_tokens\":{most}")),
        CHAT_ANSWER.replace(
            "\"completion_tokens\":1",
            &format!("\"completion_tokens\":{most}"),
        ),
        CHAT_ANSWER.replace("\"prompt_tokens\":5", "\"prompt_tokens\":-5"),
        CHAT_ANSWER.to_owned(),
    ];
    for (number, answer) in lies.iter().enumerate() {
        let client = fixture.client.clone();
        let body = chat(&format!("p-{number}"), "hello", 4);
        let asking = tokio::spawn(async move { client.post(CHAT, &body).await.ok() });
        let request = engine.request().await;
        request.answer("200 OK", "application/json", answer).await;
        asking.await.expect("an answer");
    }
    // Acknowledged steps are on record, the valid one with its engine's counts.
    let steps = fixture.client.get("/api/v1/programs/p-3/steps").await.ok();
    assert_eq!(steps["steps"][0]["prompt_tokens"], 5, "{steps}");
    for program in ["p-0", "p-1", "p-2"] {
        let path = format!("/api/v1/programs/{program}/steps");
        let steps = fixture.client.get(&path).await.ok();
        assert_eq!(steps["steps"][0]["outcome"], "stop", "{steps}");
    }
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_journal_refused_records_total"), 0);
    fixture.finish().await;
}
