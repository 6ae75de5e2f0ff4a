//! Steps and decisions: open steps, predictions and outcomes, weight versions, and pages over all
//! programs.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine};

use crate::offload::stage::until;
use crate::tenancy::{client_of, make_tenant};

const STEPS_OF_P: &str = "/api/v1/programs/p/steps";
const LISTED: &str = "/api/v1/steps";
const DECISIONS: &str = "/api/v1/decisions";

/// A daemon in front of an engine that the test answers for.
async fn stage() -> (Fixture, RawEngine) {
    let engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    (fixture, engine)
}

/// Runs a step of a program of the job `run`, whose answer names a version of the weights, and
/// checks its view while it runs.
async fn step(client: &Client, engine: &mut RawEngine, program: &str, version: &str) -> Value {
    let (asking, body) = (client.clone(), chat(program, "x", 4).to_string());
    let asking = tokio::spawn(async move {
        let headers = [
            ("content-type", "application/json"),
            ("x-treadle-job", "run"),
        ];
        asking.send(Method::POST, CHAT, &headers, body).await.ok()
    });
    let request = engine.request().await;
    let path = format!("/api/v1/programs/{program}/steps");
    let open = client.get(&path).await.ok();
    let open = open["steps"].as_array().and_then(|steps| steps.last());
    let open = open.expect("the step is there").clone();
    let mut answer: Value = serde_json::from_str(CHAT_ANSWER).expect("JSON");
    answer["metadata"] = json!({ "weight_version": version });
    let answer = answer.to_string();
    request.answer("200 OK", "application/json", &answer).await;
    asking.await.expect("an answer");
    open
}

fn of_all<'v>(page: &'v Value, list: &str, field: &str) -> Vec<&'v Value> {
    let rows = page[list].as_array().expect("a list").iter();
    rows.map(|row| &row[field]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_listed_while_it_runs_and_knows_its_weights_and_what_followed() {
    let (fixture, mut engine) = stage().await;
    let client = &fixture.client;
    let url = engine.url().to_owned();
    let open = step(client, &mut engine, "p", "v1").await;
    assert_eq!(open["outcome"], Value::Null, "{open}");
    assert_eq!(open["worker"], url, "{open}");
    assert_eq!(open["finished_at_us"], Value::Null, "{open}");
    assert_eq!(
        (&open["program_id"], &open["job"]),
        (&json!("p"), &json!("run"))
    );
    step(client, &mut engine, "p", "v2").await;
    step(client, &mut engine, "p", "v2").await;

    let page = client.get(STEPS_OF_P).await.ok();
    assert_eq!(page["steps"][0]["step"], open["step"]);
    assert_eq!(of_all(&page, "steps", "outcome"), ["stop"; 3]);
    assert_eq!(of_all(&page, "steps", "weight_version"), ["v1", "v2", "v2"]);
    assert_eq!(of_all(&page, "steps", "followed_tokens"), [2, 1, 0]);
    assert_eq!(page["steps"][0]["predicted_tokens"], Value::Null);
    let rest = client
        .get(&format!("{STEPS_OF_P}?after={}", open["step"]))
        .await
        .ok();
    assert_eq!(rest["steps"].as_array().map(Vec::len), Some(2));
    let program = client.get("/api/v1/programs/p").await.ok();
    assert_eq!(program["output_tokens"], 3);
    fixture.finish().await;
}

/// Names of programs of all rows, page by page.
async fn paged(client: &Client, path: &str, list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("{path}&limit=1{after}")).await.ok();
        let names = of_all(&page, list, "program_id");
        found.extend(
            names
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned)),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_decisions_of_all_programs_are_listed_to_their_tenant() {
    let (fixture, mut engine) = stage().await;
    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let client = fixture.client.without_token();
    for program in ["p", "q", "r"] {
        step(&client, &mut engine, program, "v1").await;
    }
    step(&acme, &mut engine, "p", "v7").await;

    assert_eq!(
        paged(&client, "/api/v1/steps?job=run", "steps").await,
        ["r", "q", "p"]
    );
    let oldest = "/api/v1/steps?sort=finished_at_us&outcome=stop";
    assert_eq!(paged(&client, oldest, "steps").await, ["p", "q", "r"]);
    assert_eq!(
        paged(&client, "/api/v1/steps?sort=-took_us", "steps")
            .await
            .len(),
        3
    );
    for none in [
        "outcome=failed",
        "worker=http://x",
        "min_wait_ms=60000",
        "until_ms=1",
        "job=other",
    ] {
        let page = client.get(&format!("{LISTED}?{none}")).await.ok();
        assert_eq!(page["steps"], json!([]), "{none}");
    }
    assert_eq!(paged(&acme, "/api/v1/steps?job=run", "steps").await, ["p"]);

    let placed = "/api/v1/decisions?kind=place&job=run";
    until("all are placed", async || {
        paged(&client, placed, "decisions").await.len() == 3
    })
    .await;
    assert_eq!(paged(&client, placed, "decisions").await, ["r", "q", "p"]);
    let one = client.get(&format!("{placed}&limit=1")).await.ok();
    let policy = one["decisions"][0]["policy"].as_str().expect("a name");
    let policy = policy.replace('+', "%2B");
    let of_policy = client.get(&format!("{placed}&policy={policy}")).await.ok();
    assert_eq!(of_policy["decisions"].as_array().map(Vec::len), Some(3));
    let of_other = client
        .get(&format!("{placed}&policy=theirs%401.0.0%2Bffff"))
        .await
        .ok();
    assert_eq!(of_other["decisions"], json!([]));
    assert_eq!(paged(&acme, placed, "decisions").await, ["p"]);

    for bad in ["sort=cause", "after=9", "min_wait_ms=long", "job=%00"] {
        client
            .get(&format!("{LISTED}?{bad}"))
            .await
            .refused(400, "invalid_field");
    }
    for bad in ["sort=kind", "after=x", "since_ms=now"] {
        client
            .get(&format!("{DECISIONS}?{bad}"))
            .await
            .refused(400, "invalid_field");
    }
    fixture.finish_all(&[&acme]).await;
}
