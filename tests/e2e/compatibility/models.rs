//! Several models behind one daemon, and requests about models and prompts.

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use treadle_config::EngineChoice;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, SPEED, chat, plain_endpoint};
use treadle_tests::support::raw_engine::RawEngine;

const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

async fn engine_of(model: &str) -> EngineSimHandle {
    engine_with(model, &[]).await
}

async fn engine_with(model: &str, adapters: &[&str]) -> EngineSimHandle {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let options = EngineSimOptions {
        kv_tokens: Some(100_000),
        time_scale: SPEED,
        model: model.to_owned(),
        adapters: adapters.iter().map(|&name| name.to_owned()).collect(),
        ..EngineSimOptions::default()
    };
    EngineSim::serve(listener, options).expect("good options")
}

fn asked_of(model: Option<&str>, program: &str) -> Value {
    let mut body = chat(program, "x", 2);
    body.as_object_mut().expect("an object").remove("model");
    if let Some(model) = model {
        body["model"] = model.into();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_go_to_engines_that_serve_their_model() {
    let engines = vec![engine_of("alpha").await, engine_of("org/beta").await];
    let fixture = Fixture::around(engines, |_| ()).await;
    let client = &fixture.client;
    // A simulated engine refuses any other model.
    for (program, model) in [
        ("p", Some("alpha")),
        ("q", Some("org/beta")),
        ("q", Some("org/beta")),
        ("p", Some("org/beta")),
        ("r", None),
    ] {
        let answer = client.post(CHAT, &asked_of(model, program)).await.ok();
        assert_eq!(answer["model"], model.unwrap_or("alpha"));
    }
    let answer = client.post(CHAT, &asked_of(Some("gamma"), "s")).await;
    let message = answer.refused(404, "model_not_found");
    assert!(
        message.contains("alpha") && message.contains("org/beta"),
        "{message}"
    );
    let programs = client.get("/programs").await.ok();
    assert!(programs["s"].is_null(), "nothing is left of it");

    let models = client.get("/v1/models").await.ok();
    let models = models["data"].as_array().expect("a list");
    let ids: Vec<&Value> = models.iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["alpha", "org/beta"]);
    for path in ["/v1/models/org/beta", "/v1/models/org%2Fbeta"] {
        let model = client.get(path).await.ok();
        assert_eq!(model["id"], "org/beta", "{path}");
        assert_eq!(&model, &models[1]);
    }
    let unknown = client.get("/v1/models/gamma").await;
    unknown.refused(404, "model_not_found");
    for (model, status) in [("alpha", 200), ("gamma", 404)] {
        let body = json!({"model": model, "prompt": "abcdefgh"});
        assert_eq!(client.post("/tokenize", &body).await.status, status);
    }
    let released = client
        .post("/programs/release", &json!({"program_id": "p"}))
        .await
        .ok();
    assert_eq!(released["released"], true);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_for_an_adapter_go_only_to_engines_that_have_it() {
    let engines = vec![
        engine_of("base").await,
        engine_with("base", &["pirate"]).await,
        engine_with("base", &["parrot", "pirate"]).await,
    ];
    let fixture = Fixture::around(engines, |_| ()).await;
    let client = &fixture.client;
    let models = client.get("/v1/models").await.ok();
    let models = models["data"].as_array().expect("a list");
    let ids: Vec<&Value> = models.iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["base", "pirate", "parrot"]);
    let pirate = client.get("/v1/models/pirate").await.ok();
    assert_eq!(pirate["parent"], "base");

    let finished = async || {
        let mut finished = Vec::new();
        for engine in &fixture.engines {
            finished.push(engine.snapshot().await.counters.finished_requests);
        }
        finished
    };
    let ask = async |model: &str, program: &str| {
        let asked = asked_of(Some(model), program);
        let answer = client.post(CHAT, &asked).await.ok();
        assert_eq!(answer["model"], model);
    };
    // An engine without the adapter has the most room, and would refuse it.
    for number in 0..6 {
        ask("parrot", &format!("parrot-{number}")).await;
    }
    assert_eq!(finished().await, [0, 0, 6]);
    for number in 0..6 {
        ask("pirate", &format!("pirate-{number}")).await;
    }
    let after = finished().await;
    assert_eq!((after[0], after[1] + after[2]), (0, 12), "{after:?}");
    // A program may go back and forth between the model and an adapter.
    for model in ["base", "parrot", "base", "parrot"] {
        ask(model, "mixed").await;
    }
    let release = json!({"program_id": "mixed"});
    let released = client.post("/programs/release", &release).await.ok();
    assert_eq!(released["released"], true);
    let unknown = client.post(CHAT, &asked_of(Some("monkey"), "s")).await;
    let message = unknown.refused(404, "model_not_found");
    assert!(
        message.contains("parrot") && message.contains("pirate"),
        "{message}"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_by_an_engine_or_its_tokenizer() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await;
    let body = json!({
        "model": "m",
        "system": [{"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "hello"}],
    });
    let headers = [
        ("anthropic-version", "2023-06-01"),
        ("x-claude-code-session-id", "s"),
    ];
    let ask = async |path: &str| {
        let client = fixture.client.clone();
        client
            .send(Method::POST, path, &headers, body.to_string())
            .await
    };
    for (path, line) in [
        (
            format!("{COUNT_TOKENS}?beta=true"),
            format!("{COUNT_TOKENS}?beta=true"),
        ),
        (
            format!("/sessions/x{COUNT_TOKENS}"),
            COUNT_TOKENS.to_owned(),
        ),
    ] {
        let answering = async {
            let request = engine.request().await;
            assert_eq!(request.line, format!("POST {line} HTTP/1.1"));
            let passes = |name: &str| request.headers.iter().any(|line| line.starts_with(name));
            assert!(passes("anthropic-version") && !passes("x-claude"));
            assert_eq!(request.body, body.to_string().as_bytes());
            request
                .answer("200 OK", "application/json", r#"{"input_tokens":42}"#)
                .await;
        };
        let (answer, ()) = tokio::join!(ask(&path), answering);
        assert_eq!(answer.ok(), json!({"input_tokens": 42}));
    }
    let answering = async {
        let request = engine.request().await;
        request
            .answer("404 Not Found", "application/json", "{}")
            .await;
        let request = engine.request().await;
        assert_eq!(request.line, "POST /tokenize HTTP/1.1");
        let asked: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(asked["model"], "m");
        assert_eq!(asked["prompt"], asked["content"]);
        let text = asked["prompt"].as_str().expect("a text");
        assert!(text.contains("brief") && text.contains("hello"), "{text}");
        request
            .answer("200 OK", "application/json", r#"{"tokens":[1,2,3]}"#)
            .await;
    };
    let (answer, ()) = tokio::join!(ask(COUNT_TOKENS), answering);
    assert_eq!(answer.ok(), json!({"input_tokens": 3}));
    let steering = json!({"model": "m", "messages": [], "kv_transfer_params": {}});
    let answer = fixture.client.post(COUNT_TOKENS, &steering).await;
    answer.refused(400, "invalid_field");
    fixture.finish().await;
}

/// It lists the folder of the weights that it loaded last, and was started as something else.
#[tokio::test(flavor = "multi_thread")]
async fn sglang_keeps_its_name_when_its_weights_change() {
    let engine = engine_of("alpha").await;
    let itself = Client::new(engine.url());
    let load = json!({"model_path": "/weights/9", "weight_version": "0.9"});
    itself.post("/update_weights_from_disk", &load).await.ok();
    let listed = itself.get("/v1/models").await.ok();
    assert_eq!(listed["data"][0]["id"], "/weights/9");
    let fixture = Fixture::around(vec![engine], |config| {
        config.engines.endpoints[0].kind = Some(EngineChoice::Sglang);
    })
    .await;
    let asked = asked_of(Some("alpha"), "p");
    fixture.client.post(CHAT, &asked).await.ok();
    let workers = fixture.client.get("/api/v1/workers").await.ok();
    assert_eq!(workers["workers"][0]["model"], "alpha", "{workers}");
    fixture.finish().await;
}
