//! The worlds that clients query over REST, answered by the built-in default, by a bound policy,
//! and by the default again if the policy fails.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::policy::guest;

use super::crowd::{crowd, put_binding, stop, upload};

fn rewards() -> Value {
    json!({
        "world": "reward", "function": "score",
        "columns": {
            "answer": ["42", " The answer is 42. ", "41"], "reference": ["42", "42", "42"],
            "output_tokens": [10, 20, 30], "steps": [1, 2, 3],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rewards_come_from_the_default_until_a_policy_is_bound() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let by_default = client.post("/api/v1/ask", &rewards()).await.ok();
    assert_eq!(
        by_default["policy"]
            .as_str()
            .map(|p| p.ends_with("+native")),
        Some(true)
    );
    assert_eq!(by_default["answer"]["totals"][0], 1.0);
    assert_eq!(by_default["answer"]["totals"][2], 0.0);
    upload(client, "/api/v1/plugins", guest("exact-match-reward"))
        .await
        .ok();
    let binding = json!({"world": "reward", "policy": "exact-match-reward"});
    put_binding(client, &binding).await.ok();
    let bound = client.post("/api/v1/ask", &rewards()).await.ok();
    assert!(
        bound["policy"]
            .as_str()
            .unwrap()
            .starts_with("exact-match-reward@")
    );
    assert_eq!(bound["answer"]["totals"], json!([1.0, 0.0, 0.0]));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allocation_and_prediction_answer_in_the_shape_of_the_contract() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    for policy in ["static-allocation", "default-prediction"] {
        upload(client, "/api/v1/plugins", guest(policy)).await.ok();
        let world = policy.split('-').next_back().unwrap();
        put_binding(client, &json!({"world": world, "policy": policy}))
            .await
            .ok();
    }
    let actions = json!({
        "world": "allocation", "function": "arrange",
        "columns": {
            "pool": [0, 0, 1], "candidate": [1, 1, 0], "waited_us": [9, 8, 7],
            "option_start": [0, 2, 3, 4], "option_units": [1, 4, 2, 1],
            "option_us": [900.0, 300.0, -1.0, 50.0], "option_load_us": [0.0, 0.0, 0.0, 0.0],
            "pools": {"free_units": [3, 1], "chunked": [0, 0], "free_chunks": vec![0; 8]},
        },
    });
    let arranged = client.post("/api/v1/ask", &actions).await.ok();
    let policy = arranged["policy"].as_str().unwrap();
    assert!(policy.starts_with("static-allocation@"), "{policy}");
    assert_eq!(arranged["answer"], json!([0, 0, -1]));
    let live = json!({"group": [1], "tokens": [900], "output_tokens": [300], "steps": [2], "tool_ms": [1000]});
    let mut finished = live.clone();
    finished["remaining_tokens"] = json!([500]);
    finished["remaining_tool_ms"] = json!([2000]);
    let learn = json!({"world": "prediction", "function": "learn", "columns": finished});
    for _ in 0..20 {
        client.post("/api/v1/ask", &learn).await.ok();
    }
    // The next version takes over the learnt state.
    let config = json!({"memory": 300});
    let binding = json!({"world": "prediction", "policy": "default-prediction", "config": config});
    put_binding(client, &binding).await.ok();
    let predict = json!({"world": "prediction", "function": "predict", "columns": live});
    let predicted = client.post("/api/v1/ask", &predict).await.ok();
    let tokens = predicted["answer"]["remaining_tokens"][0].as_f64().unwrap();
    assert!((tokens - 500.0).abs() < 50.0, "{predicted}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_question_is_refused_by_name() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let mut question = rewards();
    question["columns"]["colour"] = json!([1, 2, 3]);
    let message = client
        .post("/api/v1/ask", &question)
        .await
        .refused(400, "invalid_field");
    assert!(message.contains("colour"), "{message}");
    let mut question = rewards();
    question["function"] = json!("guess");
    let message = client
        .post("/api/v1/ask", &question)
        .await
        .refused(400, "invalid_field");
    assert!(message.contains("there are score"), "{message}");
    let in_place = json!({"world": "eviction", "function": "weigh", "columns": {}});
    let message = client
        .post("/api/v1/ask", &in_place)
        .await
        .refused(400, "invalid_field");
    assert!(message.contains("scheduler"), "{message}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_predicted_while_they_act() {
    let fixture = Fixture::start(1, 1_000_000).await;
    let client = &fixture.client;
    upload(client, "/api/v1/plugins", guest("default-prediction"))
        .await
        .ok();
    let binding = json!({"world": "prediction", "policy": "default-prediction"});
    put_binding(client, &binding).await.ok();
    let end = std::sync::Arc::default();
    let crowd = crowd(&fixture, 10, &end);
    let rows = loop {
        let plugin = client.get("/api/v1/plugins/default-prediction").await.ok();
        let rows = plugin["statistics"]["rows"].as_u64();
        if rows > Some(20) {
            break rows;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    stop(crowd, &end).await;
    // Ended programs provide the outcome after each of their steps.
    treadle_tests::support::fixture::release_all(client).await;
    loop {
        let plugin = client.get("/api/v1/plugins/default-prediction").await.ok();
        assert_eq!(plugin["statistics"]["faults"], json!({}));
        if plugin["statistics"]["rows"].as_u64() > rows {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.finish().await;
}
