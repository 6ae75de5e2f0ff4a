//! How requests are assigned to programs, with and without a name.

use serde_json::{Value, json};
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, MODEL, streamed};

fn inferred(messages: &Value) -> Value {
    json!({"model": MODEL, "messages": messages, "max_tokens": 6})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_url_names_the_program() {
    let fixture = Fixture::start(1, 100_000).await;
    let body = inferred(&json!([{"role": "user", "content": "x"}]));
    let path = format!("/sessions/rollout%207{CHAT}");
    let answer = fixture.client.post(&path, &body).await;
    answer.ok();
    assert_eq!(answer.headers["x-treadle-program"], "rollout 7");
    fixture
        .client
        .stream(&path, &streamed(body))
        .await
        .finish()
        .await;
    let programs = fixture.client.get("/programs").await.ok();
    assert_eq!(programs["rollout 7"]["step_count"], 2);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_goes_on_is_the_same_program_without_any_id() {
    let fixture = Fixture::start(2, 100_000).await;
    let system = json!({"role": "system", "content": "You solve tasks."});
    let mut histories: Vec<Vec<Value>> = (0..5)
        .map(|task| {
            vec![
                system.clone(),
                json!({"role": "user", "content": format!("task {task}")}),
            ]
        })
        .collect();
    for step in 0..4 {
        for history in &mut histories {
            let body = inferred(&json!(history));
            let text = if step % 2 == 0 {
                let answer = fixture.client.post(CHAT, &body).await.ok();
                answer["choices"][0]["message"]["content"].clone()
            } else {
                let ended = fixture
                    .client
                    .stream(CHAT, &streamed(body))
                    .await
                    .finish()
                    .await;
                let events = ended.objects();
                let pieces = events
                    .iter()
                    .filter_map(|e| e["choices"][0]["delta"]["content"].as_str());
                json!(pieces.collect::<String>())
            };
            history.push(json!({"role": "assistant", "content": text}));
            history.push(json!({"role": "user", "content": format!("result {step}")}));
        }
    }
    let programs = fixture.client.get("/programs").await.ok();
    let programs = programs.as_object().expect("an object");
    assert_eq!(programs.len(), 5, "{programs:?}");
    assert!(programs.values().all(|program| program["step_count"] == 4));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_request_without_a_name_holds_no_memory() {
    let fixture = Fixture::start(1, 100_000).await;
    for request in 0..10 {
        let question = format!("question {request}: {}", "words ".repeat(200));
        let body = inferred(&json!([{"role": "user", "content": question}]));
        fixture.client.post(CHAT, &body).await.ok();
        let batch = json!({"model": MODEL, "prompt": [question], "max_tokens": 4});
        fixture.client.post(COMPLETIONS, &batch).await.ok();
    }
    let metrics = fixture.client.metrics().await;
    // Each of them had 300 tokens.
    let used = metrics.count("treadle_worker_used_tokens");
    assert!(
        used < 100,
        "{used} tokens are held for requests that are over"
    );
    fixture.finish().await;
}
