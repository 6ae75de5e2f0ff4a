//! The parts of a request that reach engines, and the isolation of tenants there.

use http::Method;
use serde_json::{Value, json};
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::raw_engine::RawEngine;

use super::{client_of, make_tenant};

const GENERATE: &str = "/generate";
const TOKENIZE: &str = "/tokenize";

/// A daemon in front of an engine of this kind that the test plays.
async fn in_front_of(
    engine: &RawEngine,
    kind: EngineChoice,
    tune: impl FnOnce(&mut Config),
) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(kind),
            capacity_tokens: Some(1_000_000),
            ..Endpoint::at(url)
        }];
        tune(config);
    })
    .await
}

/// The body that the engine receives for this one.
async fn passed(engine: &mut RawEngine, client: &Client, path: &str, body: &Value) -> Value {
    let headers = [
        ("x-data-parallel-rank", "1"),
        ("x-smg-target-worker", "0"),
        ("x-treadle-job", "j"),
        ("cookie", "a=b"),
        ("x-request-id", "y"),
    ];
    let asking = client.send(Method::POST, path, &headers, body.to_string());
    let answering = async {
        let request = engine.request().await;
        let starts = ["x-data", "x-smg", "x-treadle", "cookie"];
        let steers = |line: &String| starts.iter().any(|start| line.starts_with(start));
        assert!(!request.headers.iter().any(steers), "{:?}", request.headers);
        assert!(request.headers.contains(&"x-request-id: y".to_owned()));
        let body = serde_json::from_slice(&request.body).expect("JSON");
        request.answer_chat().await;
        body
    };
    let (answer, body) = tokio::join!(asking, answering);
    answer.ok();
    body
}

fn with(mut body: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn what_steers_an_engine_is_refused_by_name() {
    let fixture = Fixture::start(1, 100_000).await;
    for (path, fields, param) in [
        (
            CHAT,
            json!({"kv_transfer_params": {"do_remote_prefill": true}}),
            "kv_transfer_params",
        ),
        (CHAT, json!({"id_slot": 0}), "id_slot"),
        (CHAT, json!({"lora": [{"id": 0, "scale": 1}]}), "lora"),
        (
            CHAT,
            json!({"vllm_xargs": {"kv_transfer_params": "x"}}),
            "vllm_xargs.kv_transfer_params",
        ),
        (GENERATE, json!({"bootstrap_host": "h"}), "bootstrap_host"),
        (
            GENERATE,
            json!({"session_params": {"id": "s"}}),
            "session_params",
        ),
        (GENERATE, json!({"lora_path": "/etc"}), "lora_path"),
        (
            GENERATE,
            json!({"sampling_params": {"extra_args": {}}}),
            "sampling_params.extra_args",
        ),
        (GENERATE, json!({"never_heard_of": 1}), "never_heard_of"),
        (
            CHAT,
            json!({"chat_template_kwargs": {"chat_template": "{{ x }}", "tokenize": true}}),
            "chat_template_kwargs.chat_template",
        ),
        (
            TOKENIZE,
            json!({"chat_template": "{{ x }}"}),
            "chat_template",
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
            ]}]}),
            "image_url",
        ),
        (
            GENERATE,
            json!({"image_data": "http://2852039166/latest/meta-data"}),
            "image_data",
        ),
    ] {
        let plain = match path {
            GENERATE => json!({"input_ids": [1, 2, 3]}),
            TOKENIZE => json!({"prompt": "x"}),
            _ => chat("p", "x", 4),
        };
        let answer = fixture.client.post(path, &with(plain, &fields)).await;
        let message = answer.refused(400, "invalid_field");
        assert_eq!(answer.json()["error"]["param"], param);
        assert!(message.contains("engines.pass_fields"), "{message}");
    }
    assert_eq!(fixture.engine_requests().await, 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_names_and_too_many_levels_reach_no_engine() {
    let fixture = Fixture::start(1, 100_000).await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for (fields, code) in [
        (
            r#""sampling_params":{"extra_args":1},"sampling_params":{}"#.to_owned(),
            "invalid_field",
        ),
        (format!(r#""metadata":{deep}"#), "invalid_json"),
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"x"}}],{fields}}}"#);
        let answer = fixture.client.send(Method::POST, CHAT, &[], body).await;
        answer.refused(400, code);
    }
    assert_eq!(fixture.engine_requests().await, 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_names_passes_while_there_is_one_tenant() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine, EngineChoice::Vllm, |config| {
        config.engines.pass_fields = vec!["kv_transfer_params".into(), "new_sampler".into()];
    })
    .await;
    let fields = json!({"kv_transfer_params": {"a": 1}, "cache_salt": "v1", "priority": 3});
    let body = with(chat("p", "x", 4), &fields);
    let client = &fixture.client;
    assert_eq!(passed(&mut engine, client, CHAT, &body).await, body);
    make_tenant(&fixture, "acme", json!({})).await;
    let answer = client.post(CHAT, &body).await;
    answer.refused(400, "invalid_field");
    assert_eq!(answer.json()["error"]["param"], "kv_transfer_params");
    let harmless = with(chat("p", "x", 4), &json!({"new_sampler": 0.5}));
    let sent = passed(&mut engine, client, CHAT, &harmless).await;
    assert_eq!(sent["new_sampler"], 0.5);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_that_share_an_engine_have_salts_of_their_own() {
    for (kind, field) in [
        (EngineChoice::Vllm, "cache_salt"),
        (EngineChoice::Sglang, "extra_key"),
    ] {
        let mut engine = RawEngine::start().await;
        let fixture = in_front_of(&engine, kind, |_| {}).await;
        let plain = chat("p", "x", 4);
        let client = &fixture.client;
        let alone = passed(&mut engine, client, CHAT, &plain).await;
        assert_eq!(alone, plain, "one tenant needs no salt");
        make_tenant(&fixture, "acme", json!({})).await;
        let acme = client_of(&fixture, "acme", "job").await;
        let ours = passed(&mut engine, client, CHAT, &plain).await[field].take();
        let theirs = passed(&mut engine, &acme, CHAT, &plain).await[field].take();
        assert!(ours.is_string() && theirs.is_string() && ours != theirs);
        let again = passed(&mut engine, &acme, CHAT, &plain).await;
        assert_eq!(again[field], theirs);
        // A client's own salt is part of its salt, and never equals that of another tenant.
        let wishes = json!({"cache_salt": ours, "extra_key": ours, "priority": -9});
        let forged = passed(&mut engine, &acme, CHAT, &with(plain.clone(), &wishes)).await;
        assert!(forged[field] != ours && forged[field] != theirs, "{forged}");
        let mut rest = forged;
        rest.as_object_mut().expect("an object").remove(field);
        assert_eq!(rest, plain, "nothing else of it is left");
        fixture.finish_all(&[&acme]).await;
    }
}
