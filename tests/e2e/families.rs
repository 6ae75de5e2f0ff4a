//! Programs that start others, declared by headers and bodies.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, MODEL, chat, engine, engine_at};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A request that names its program only by these headers.
async fn send(client: &Client, headers: &[(&str, &str)], text: &str) {
    let mut body = chat("", text, 4);
    body.as_object_mut()
        .expect("an object")
        .remove("program_id");
    let headers: Vec<_> = [JSON].into_iter().chain(headers.iter().copied()).collect();
    let answer = client.send(Method::POST, CHAT, &headers, body.to_string());
    answer.await.ok();
}

async fn live(client: &Client) -> Value {
    client.get("/programs").await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subagents_of_a_coding_agent_are_its_family() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let session = ("x-claude-code-session-id", "s");
    send(client, &[session], "the task").await;
    for agent in ["one", "two"] {
        send(client, &[session, ("x-claude-code-agent-id", agent)], agent).await;
    }
    let nested = [
        session,
        ("x-claude-code-agent-id", "deep"),
        ("x-claude-code-parent-agent-id", "one"),
    ];
    send(client, &nested, "deep").await;
    let programs = live(client).await;
    assert_eq!(programs["s"]["waits_for"], 2);
    assert_eq!(programs["s/one"]["parent"], "s");
    assert_eq!(programs["s/one"]["waits_for"], 1);
    assert_eq!(programs["s/deep"]["parent"], "s/one");
    let children = client
        .get("/api/v1/programs?parent=s&sort=created_at_us")
        .await;
    let children = children.ok();
    let names = children["programs"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|program| &program["program_id"]).collect();
    assert_eq!(names, ["s/one", "s/two"]);
    send(client, &[session], "what they found").await;
    assert_eq!(live(client).await["s"]["waits_for"], 0, "it goes on");
    fixture.finish().await;
}

/// Runs one step of a program with this parent; returns the resulting history.
async fn step(
    client: &Client,
    program: &str,
    parent: Option<&str>,
    messages: &[Value],
) -> Vec<Value> {
    let mut body = json!({
        "model": MODEL, "program_id": program, "max_tokens": 8, "messages": messages,
    });
    if let Some(parent) = parent {
        body["parent_program_id"] = parent.into();
    }
    let answer = client.post(CHAT, &body).await.ok();
    let said = answer["choices"][0]["message"].clone();
    messages.iter().cloned().chain([said]).collect()
}

fn said(role: &str, word: &str, times: usize) -> Value {
    json!({"role": role, "content": format!("{word} ").repeat(times)})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_agents_is_one_family_with_its_history_charged_once() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let task = [said("system", "rule", 50), said("user", "task", 100)];
    let mut history = step(client, "lead", None, &task).await;
    history.push(said("user", "what the tool found", 1_000));
    let mut history = step(client, "lead", None, &history).await;
    for child in ["one", "two"] {
        let own = [said("user", child, 100)];
        step(client, child, Some("lead"), &own).await;
    }
    history.push(said("user", "try it another way", 10));
    step(client, "fork", Some("lead"), &history).await;
    let programs = live(client).await;
    assert_eq!(programs["lead"]["waits_for"], 3);
    let context = |name: &str| programs[name]["context_len"].as_u64().expect("a number");
    for program in ["lead", "one", "two", "fork"] {
        assert_eq!(programs[program]["status"], "acting", "{programs}");
    }
    assert!(context("lead") > 1_000, "{programs}");
    let used = client.get("/workers").await.ok()["workers"][0]["used_tokens"].clone();
    let most = context("fork") + context("one") + context("two") + context("lead") / 10;
    assert!(
        used.as_u64().is_some_and(|used| used <= most),
        "{used} of {most}: {programs}"
    );
    for program in ["one", "two", "fork"] {
        let release = json!({"program_id": program});
        client.post("/programs/release", &release).await.ok();
    }
    step(client, "lead", None, &history).await;
    let lead = client.get("/api/v1/programs/lead").await.ok();
    let lived = lead["updated_at_us"]
        .as_u64()
        .zip(lead["created_at_us"].as_u64());
    let lived = lived
        .map(|(updated, created)| updated - created)
        .expect("it is on record");
    let blocked = lead["blocked_us"].as_u64().expect("it is known");
    assert!(blocked > 0 && blocked < lived, "{blocked} of {lived} us");
    let children = client
        .get("/api/v1/programs?parent=lead&sort=created_at_us")
        .await
        .ok();
    let children = children["programs"].as_array().expect("a list").clone();
    let of = |field: &str| {
        children
            .iter()
            .map(|child| child[field].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("program_id"), ["one", "two", "fork"]);
    assert_eq!(of("blocked_us"), [0, 0, 0]);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_request_ends_its_program() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let session = ("x-dynamo-session-id", "d");
    send(client, &[session, ("x-fairness-id", "run-1")], "first").await;
    assert_eq!(live(client).await["d"]["job"], "run-1");
    let last = [
        session,
        ("x-fairness-id", "run-1"),
        ("x-dynamo-session-final", "true"),
    ];
    send(client, &last, "last").await;
    assert_eq!(live(client).await, json!({}));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_engine_is_given_prompts_to_measure_it() {
    let engine = engine_at("127.0.0.1:0", 100_000, 1.0).await;
    let metrics = Client::new(engine.url());
    let computed = async || {
        let page = metrics.metrics().await;
        page.count("treadle_engine_sim_prefilled_tokens_total")
    };
    assert_eq!(computed().await, 0);
    let fixture = Fixture::around(vec![engine], |config| config.engines.measure = true).await;
    assert!(computed().await > 0, "what they showed is a matter of time");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_with_a_profile_is_as_fast_as_that_says_and_is_given_no_prompt() {
    let (configured, added) = (
        engine_at("127.0.0.1:0", 100_000, 1.0).await,
        engine_at("127.0.0.1:0", 100_000, 1.0).await,
    );
    let (url, metrics) = (added.url(), Client::new(added.url()));
    let fixture = Fixture::around(vec![configured], |config| {
        config.engines.measure = true;
        config.engines.endpoints[0].profile = Some("qwen3-32b-h100".into());
    })
    .await;
    let speeds = async |url: &str| {
        let all = fixture.client.get("/workers").await.ok();
        let rows = all["workers"].as_array().expect("a list").clone();
        let row = rows.into_iter().find(|row| row["url"] == url);
        let row = row.expect("it is registered");
        let of = |field: &str| row[field].as_u64().unwrap_or(0);
        (of("prefill_tokens_per_s"), of("token_us"), of("step_us"))
    };
    let known = speeds(&fixture.engines[0].url()).await;
    assert!((25_000..27_000).contains(&known.1), "{known:?}");
    assert!(known.0 > 1_000 && known.2 > 100, "{known:?}");
    let body = json!({"url": url, "profile": "glm-4.6-8xh100"});
    fixture.client.post("/api/v1/workers", &body).await.ok();
    let other = speeds(&url).await;
    assert!(other.0 > 0 && other.1 > 0 && other != known, "{other:?}");
    let page = metrics.metrics().await;
    assert_eq!(page.count("treadle_engine_sim_prefilled_tokens_total"), 0);
    let wrong = json!({"url": url, "profile": {"version": 9}});
    let refused = fixture.client.post("/api/v1/workers", &wrong).await;
    refused.refused(400, "invalid_field");
    fixture.finish().await;
    added.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_considers_engines_that_are_gone() {
    let (first, second) = (engine(100_000).await, engine(100_000).await);
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let columns = json!({"gpus": 4, "expected_tokens": [1_000, 2_000, 4_000]});
    let question = json!({
        "world": "allocation", "function": "parallelism", "columns": columns,
    });
    let refused = client.post("/api/v1/ask", &question).await;
    refused.refused(400, "invalid_field");
    for (engine, gpus, profile) in [
        (&first, 1, "qwen3-32b-h100"),
        (&second, 4, "glm-4.6-8xh100"),
    ] {
        let body = json!({"url": engine.url(), "gpus": gpus, "profile": profile});
        client.post("/api/v1/workers", &body).await.ok();
    }
    let known = async || {
        let answer = client.post("/api/v1/ask", &question).await.ok();
        answer["filled"]["columns"].clone()
    };
    let at_work = known().await;
    assert_eq!(at_work["degree"], json!([1, 4]));
    let path = format!("/workers/{}", first.url().replace('/', "%2F"));
    client.delete(&path).await.ok();
    assert_eq!(known().await, at_work, "they are as they were");
    fixture.finish().await;
    first.shutdown().await;
    second.shutdown().await;
}
