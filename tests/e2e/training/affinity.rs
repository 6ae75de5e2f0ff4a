//! Members of each domain go to engines of the class of hardware that their job declares for it, and
//! the job shows what they need.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{Fixture, engine};
use treadle_tests::support::policy::guest;

use super::{declare, get, post, step};
use crate::plugins::crowd::{put_binding, upload};

const DOMAINS: [&str; 2] = ["math", "code"];

async fn workers(client: &Client) -> Vec<Value> {
    let page = client.get("/api/v1/workers").await.ok();
    page["workers"].as_array().expect("a list").clone()
}

async fn classify(client: &Client, worker: &Value, class: &Value) -> Answer {
    let id = worker["id"].as_str().expect("an id");
    let body = json!({"class": class}).to_string();
    let path = format!("/api/v1/workers/{id}");
    client
        .send(Method::PATCH, &path, &[], body.into_bytes())
        .await
}

/// Four members of each domain take two steps; returns how many requests each engine answered.
async fn run(fixture: &Fixture, prefix: &str) -> Vec<u64> {
    let client = &fixture.client;
    let mut before = Vec::new();
    for engine in &fixture.engines {
        before.push(engine.snapshot().await.counters.finished_requests);
    }
    for number in 0..4 {
        for domain in DOMAINS {
            let key = format!("{prefix}-{domain}-{number}");
            let groups = json!({"groups": [{"group": key, "size": 1, "domain": domain}]});
            post(client, "/groups", groups).await.ok();
            step(client, &key, &key).await.ok();
            step(client, &key, &key).await.ok();
            let release = json!({"program_id": key});
            client.post("/programs/release", &release).await.ok();
        }
    }
    let mut answered = Vec::new();
    for (engine, before) in fixture.engines.iter().zip(before) {
        answered.push(engine.snapshot().await.counters.finished_requests - before);
    }
    answered
}

fn settings(affinity: &Value) -> Value {
    json!({"batch_groups": 1_000, "rewarded": false, "affinity": affinity})
}

#[tokio::test(flavor = "multi_thread")]
async fn members_go_to_the_class_of_their_domain() {
    let engines = vec![engine(100_000).await, engine(100_000).await];
    let fixture = Fixture::around(engines, |config| {
        config.engines.endpoints[0].class = Some("h20".to_owned());
    })
    .await;
    let client = &fixture.client;
    let known = workers(client).await;
    assert_eq!(
        (&known[0]["class"], &known[1]["class"]),
        (&json!("h20"), &Value::Null)
    );
    let named = classify(client, &known[1], &json!("h800")).await.ok();
    assert_eq!(named["class"], "h800");
    assert_eq!(named["state"], "active");

    let affinity = json!({"math": "h20", "default": "h800"});
    declare(client, settings(&affinity)).await;
    assert_eq!(run(&fixture, "a").await, [8, 8]);
    let job = get(client, "").await.ok();
    assert_eq!(job["settings"]["affinity"], affinity);
    for (domain, class) in DOMAINS.iter().zip(["h20", "h800"]) {
        let own = &job["profile"]["domains"][domain];
        assert_eq!(
            (&own["class"], &own["members"]),
            (&json!(class), &json!(4)),
            "{job}"
        );
        assert_eq!(
            (&own["turns"], &own["output_tokens"]),
            (&json!(2.0), &json!(6.0))
        );
    }

    // By a policy, which sees classes as numbers.
    upload(client, "/api/v1/plugins", guest("default-placement"))
        .await
        .ok();
    let binding = json!({"world": "placement", "policy": "default-placement", "job": "math",
        "config": {}});
    put_binding(client, &binding).await.ok();
    assert_eq!(run(&fixture, "policy").await, [8, 8]);

    // All of them on one engine.
    declare(client, settings(&json!({"default": "h800"}))).await;
    assert_eq!(run(&fixture, "b").await, [0, 16]);

    // A class that no engine has is no reason to wait.
    classify(client, &known[1], &json!("")).await.ok();
    assert_eq!(workers(client).await[1]["class"], Value::Null);
    let answered = run(&fixture, "c").await;
    assert_eq!(answered.iter().sum::<u64>(), 16);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_class_and_no_affinity_is_refused() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    let known = workers(client).await;
    let long = "h".repeat(65);
    for class in [json!(long), json!("a\u{7}"), json!(3)] {
        let refused = classify(client, &known[0], &class).await;
        assert_eq!(refused.status, 400, "{class}");
    }
    let id = known[0]["id"].as_str().expect("an id");
    let path = format!("/api/v1/workers/{id}");
    let nothing = client.send(Method::PATCH, &path, &[], b"{}".to_vec()).await;
    assert_eq!(nothing.status, 400);
    for affinity in [
        json!("fast"),
        json!({"math": ""}),
        json!({"math": long}),
        json!(["h20"]),
    ] {
        let body = settings(&affinity).to_string();
        let job = "/api/v1/jobs/math";
        let refused = client.send(Method::PUT, job, &[], body.into_bytes()).await;
        assert_eq!(refused.status, 400, "{affinity}");
    }
    fixture.finish().await;
}
