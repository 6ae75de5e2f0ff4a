//! Roles of engines: a long prompt is computed by a prefill engine, and the decode engine that has the
//! program fetches its cache and answers.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{
    CHAT, COMPLETIONS, Fixture, MODEL, chat, endpoint, engine, streamed,
};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

/// Tokens of the long prompt.
const LONG: u64 = 8_000;

/// An engine of a role, whose speeds are declared.
fn of_role(url: &str, role: &str) -> Endpoint {
    Endpoint {
        capacity_tokens: Some(100_000),
        role: Some(role.into()),
        profile: Some("qwen3-32b-h100".into()),
        ..endpoint(url)
    }
}

fn prompt(program: &str, tokens: u64, max_tokens: u64) -> Value {
    let ids: Vec<u64> = (1_000..1_000 + tokens).collect();
    json!({"model": MODEL, "program_id": program, "prompt": ids, "max_tokens": max_tokens})
}

fn ask(client: &Client, path: &'static str, body: Value) -> JoinHandle<Answer> {
    let client = client.clone();
    tokio::spawn(async move { client.post(path, &body).await })
}

fn body_of(request: &RawRequest) -> Value {
    serde_json::from_slice(&request.body).expect("it is JSON")
}

/// An answer of vLLM with a prompt of this many tokens.
fn completion(tokens: u64, cached: u64, handover: &Value) -> String {
    let answer = json!({
        "id": "c", "object": "text_completion", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "text": "yes", "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
        "kv_transfer_params": handover,
    });
    answer.to_string()
}

async fn answer(request: RawRequest, body: &str) {
    request.answer("200 OK", "application/json", body).await;
}

fn handover() -> Value {
    json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[3, 1, 2]],
        "remote_engine_id": "e", "remote_host": "10.0.0.7", "remote_port": 5600, "tp_size": 1,
    })
}

/// A prefill engine and a decode engine, both written by hand, and a step that the latter answers.
struct Pair {
    fixture: Fixture,
    prefill: RawEngine,
    decode: RawEngine,
    busy: RawRequest,
    asked: JoinHandle<Answer>,
}

impl Pair {
    async fn start() -> Self {
        let [prefill, mut decode] = [RawEngine::start().await, RawEngine::start().await];
        let endpoints = vec![
            of_role(prefill.url(), "prefill"),
            of_role(decode.url(), "decode"),
        ];
        let fixture = Fixture::around(Vec::new(), |config| config.engines.endpoints = endpoints);
        let fixture = fixture.await;
        let asked = ask(&fixture.client, COMPLETIONS, prompt("busy", 10, 5));
        let busy = decode.request().await;
        Self {
            fixture,
            prefill,
            decode,
            busy,
            asked,
        }
    }

    async fn finish(self) {
        answer(self.busy, &completion(10, 0, &Value::Null)).await;
        self.asked.await.expect("it is answered").ok();
        assert!(self.prefill.is_idle() && self.decode.is_idle());
        self.fixture.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_prompt_is_computed_first_and_its_place_passed_on() {
    let mut pair = Pair::start().await;
    let client = pair.fixture.client.clone();
    let asked = ask(&client, COMPLETIONS, prompt("long", LONG, 50));
    let first = pair.prefill.request().await;
    let body = body_of(&first);
    assert_eq!(
        (&body["max_tokens"], &body["stream"]),
        (&json!(1), &json!(false))
    );
    let kept = &body["kv_transfer_params"];
    assert_eq!(kept["do_remote_decode"], true, "{kept}");
    assert_eq!(kept["do_remote_prefill"], false, "{kept}");
    assert!(pair.decode.is_idle(), "it has nothing to fetch yet");
    answer(first, &completion(LONG, 0, &handover())).await;
    let second = pair.decode.request().await;
    let body = body_of(&second);
    assert_eq!(body["kv_transfer_params"], handover());
    assert_eq!(
        (&body["max_tokens"], body.get("stream")),
        (&json!(50), None)
    );
    // To the second engine, all that it fetched was cached.
    answer(second, &completion(LONG, LONG - 1, &Value::Null)).await;
    let told = asked.await.expect("it is answered").ok();
    assert_eq!(told["choices"][0]["text"], "yes");
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_prefills_total"), 1);
    assert_eq!(metrics.count("treadle_prefills_failed_total"), 0);
    assert_eq!(metrics.count("treadle_prompt_tokens_total"), LONG);
    assert_eq!(
        metrics.count("treadle_cached_tokens_total"),
        0,
        "computed once"
    );
    let role = |role: &str| format!("role=\"{role}\"");
    let takes = "treadle_worker_takes_programs";
    assert_eq!(metrics.count_with(takes, &role("prefill")), 0);
    assert_eq!(metrics.count_with(takes, &role("decode")), 1);
    let listed = client.get("/workers").await.ok();
    for (worker, role) in [(0, "prefill"), (1, "decode")] {
        let worker = &listed["workers"][worker];
        assert_eq!(
            (&worker["role"], &worker["worker_type"]),
            (&json!(role), &json!(role))
        );
    }
    pair.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_prefill_is_made_up_for_by_the_decode_engine() {
    let mut pair = Pair::start().await;
    let client = pair.fixture.client.clone();
    let without = completion(LONG, 0, &Value::Null);
    for (round, (status, told)) in [("500 Oops", "{}"), ("200 OK", without.as_str())]
        .into_iter()
        .enumerate()
    {
        let program = format!("long-{round}");
        let mut body = prompt(&program, LONG, 50);
        // It shares no prefix with the one before.
        body["prompt"][0] = json!(round);
        let asked = ask(&client, COMPLETIONS, body);
        let first = pair.prefill.request().await;
        first.answer(status, "application/json", told).await;
        let second = pair.decode.request().await;
        assert_eq!(body_of(&second).get("kv_transfer_params"), None);
        answer(second, &completion(LONG, 0, &Value::Null)).await;
        asked.await.expect("it is answered").ok();
        let failed = client
            .metrics()
            .await
            .count("treadle_prefills_failed_total");
        assert_eq!(failed, round as u64 + 1);
    }
    pair.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_the_part_of_the_prefill_engine() {
    let mut pair = Pair::start().await;
    let client = pair.fixture.client.clone();
    let asked = ask(&client, COMPLETIONS, prompt("long", LONG, 50));
    let first = pair.prefill.request().await;
    asked.abort();
    first.until_given_up().await;
    let running = |metrics: &treadle_tests::support::metrics::Metrics| {
        metrics.count("treadle_worker_prefills_running") == 0
            && metrics.count("treadle_steps_running") == 1
    };
    client.until("without the step", running).await;
    pair.finish().await;
}

/// Waits until engines have reported their roles.
async fn reported(client: &Client) {
    for _ in 0..600 {
        let listed = client.get("/workers").await.ok();
        let mut workers = listed["workers"].as_array().expect("a list").iter();
        if workers.all(|worker| worker["role"].is_string()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no role was reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_of_sglang_report_their_roles_and_meet() {
    let [mut prefill, mut decode] = [RawEngine::start().await, RawEngine::start().await];
    prefill.set_info(
        r#"{"max_total_num_tokens":60000,"disaggregation_mode":"prefill","disaggregation_bootstrap_port":9001}"#,
    );
    decode.set_info(r#"{"max_total_num_tokens":60000,"disaggregation_mode":"decode"}"#);
    let urls = [prefill.url().to_owned(), decode.url().to_owned()];
    let fixture = Fixture::around(Vec::new(), |config| {
        let entry = |url: String| Endpoint {
            kind: Some(EngineChoice::Sglang),
            ..Endpoint::at(url)
        };
        config.engines.endpoints = urls.into_iter().map(entry).collect();
    })
    .await;
    reported(&fixture.client).await;
    let asked = ask(&fixture.client, CHAT, chat("p", "go on", 4));
    let [first, second] = [prefill.request().await, decode.request().await];
    let [own, other] = [body_of(&first), body_of(&second)];
    assert_eq!(own, other, "both have the same request");
    assert_eq!(own["bootstrap_host"], "127.0.0.1");
    assert_eq!(own["bootstrap_port"], 9_001);
    assert!(own["bootstrap_room"].is_u64(), "{own}");
    first.answer_chat().await;
    second.answer_chat().await;
    asked.await.expect("it is answered").ok();
    // Without the prefill engine, the other one would wait in vain.
    let asked = ask(&fixture.client, CHAT, chat("p", "go on", 4));
    let [first, second] = [prefill.request().await, decode.request().await];
    first.answer("500 Oops", "application/json", "{}").await;
    second.until_given_up().await;
    let [first, second] = [prefill.request().await, decode.request().await];
    first.answer_chat().await;
    second.answer_chat().await;
    asked.await.expect("it is answered").ok();
    // What the prefill engine refuses, any other would.
    let asked = ask(&fixture.client, CHAT, chat("p", "go on", 4));
    let [first, second] = [prefill.request().await, decode.request().await];
    let body = r#"{"error":{"message":"no such tool"}}"#;
    first
        .answer("400 Bad Request", "application/json", body)
        .await;
    second.until_given_up().await;
    let refused = asked.await.expect("it is answered");
    assert_eq!(refused.status.as_u16(), 400);
    assert!(String::from_utf8_lossy(&refused.body).contains("no such tool"));
    assert!(
        prefill.is_idle() && decode.is_idle(),
        "it is not sent again"
    );
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_prefills_failed_total"), 1);
    fixture.finish().await;
}

/// Simulated engines, which hand caches over as vLLM's do.
#[tokio::test(flavor = "multi_thread")]
async fn simulated_engines_compute_each_prompt_once() {
    let engines = vec![engine(100_000).await, engine(100_000).await];
    let endpoints = vec![
        of_role(&engines[0].url(), "prefill"),
        of_role(&engines[1].url(), "decode"),
    ];
    let fixture = Fixture::around(engines, |config| config.engines.endpoints = endpoints).await;
    let client = &fixture.client;
    let mut busy = client
        .stream(CHAT, &streamed(chat("busy", "go on", 40_000)))
        .await;
    busy.piece().await.expect("it begins").expect("a piece");
    let told = client
        .post(COMPLETIONS, &prompt("long", LONG, 20))
        .await
        .ok();
    assert_eq!(told["usage"]["completion_tokens"], 20);
    let cached = &told["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64() >= Some(LONG - 16), "it was fetched: {told}");
    let first = fixture.engines[0].snapshot().await.counters;
    assert_eq!(first.finished_requests, 1);
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_prefills_total"), 1);
    assert_eq!(metrics.count("treadle_prefills_failed_total"), 0);
    assert_eq!(metrics.count("treadle_cached_tokens_total"), 0);
    drop(busy);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_set_and_checked() {
    let fixture = Fixture::start(2, 10_000).await;
    let client = &fixture.client;
    let path = "/api/v1/workers/0";
    let set = async |body: Value| {
        let body = body.to_string().into_bytes();
        client.send(Method::PATCH, path, &[], body).await
    };
    let changed = set(json!({"role": "prefill"})).await.ok();
    assert_eq!(
        (&changed["role"], &changed["worker_type"]),
        (&json!("prefill"), &json!("prefill"))
    );
    client.post(CHAT, &chat("p", "go on", 4)).await.ok();
    assert_eq!(
        fixture.engines[0]
            .snapshot()
            .await
            .counters
            .finished_requests,
        0
    );
    let health = client.get("/health").await.ok();
    let of_engine = &health["per_backend"][fixture.engines[0].url()];
    assert_eq!(of_engine["role"], "prefill", "{health}");
    let refused = set(json!({"role": "half"})).await;
    let message = refused.refused(400, "invalid_field");
    assert!(message.contains("both, prefill, decode"), "{message}");
    let changed = set(json!({"role": "both"})).await.ok();
    assert!(changed.get("role").is_none(), "{changed}");
    fixture.finish().await;
}
