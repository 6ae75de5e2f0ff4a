//! Steps that are preempted by the engines' own abort or by a closed connection: the joined pieces
//! equal an uninterrupted answer, token for token.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use treadle_config::{Endpoint, EngineChoice};
use treadle_engine_sim::EngineSimHandle;
use treadle_tests::support::client::{Client, Ended, TIMEOUT};
use treadle_tests::support::fixture::{
    CHAT, COMPLETIONS, Fixture, MODEL, endpoint, engine_at, streamed,
};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

use crate::offload::stage;
use crate::rollouts::{one_slot, text_of, until_begun};

const GENERATE: &str = "/generate";
const VLLM_GENERATE: &str = "/inference/v1/generate";
/// Tokens of an answer: some hundred milliseconds at the engine.
const TOKENS: u32 = 80;
/// Minimum number of generated tokens at the preemption.
const BEFORE: u64 = 10;

fn engine(url: &str, kind: EngineChoice) -> Endpoint {
    Endpoint {
        kind: Some(kind),
        capacity_tokens: Some(100_000),
        ..endpoint(url)
    }
}

/// A request in one piece of a program.
fn body(path: &str, program: &str, tokens: u32, logprobs: bool) -> Value {
    let prompt: Vec<u32> = (1..200).collect();
    let mut body = match path {
        GENERATE => json!({
            "input_ids": prompt, "sampling_params": {"max_new_tokens": tokens},
            "return_logprob": logprobs,
        }),
        VLLM_GENERATE => json!({"token_ids": prompt, "sampling_params": {"max_tokens": tokens}}),
        CHAT => json!({
            "messages": [{"role": "user", "content": "word ".repeat(100)}], "max_tokens": tokens,
            "logprobs": logprobs,
        }),
        _ => json!({"prompt": prompt, "max_tokens": tokens, "return_token_ids": true}),
    };
    match path {
        VLLM_GENERATE if logprobs => body["sampling_params"]["logprobs"] = json!(1),
        COMPLETIONS if logprobs => body["logprobs"] = json!(1),
        _ => {}
    }
    body["program_id"] = json!(program);
    if path != GENERATE {
        body["model"] = json!(MODEL);
    }
    body
}

/// Waits until the engine has generated [`BEFORE`] tokens more than `before`.
async fn until_generated(engine: &EngineSimHandle, before: u64) {
    let generated = async || engine.snapshot().await.counters.generation_tokens;
    let until = async {
        while generated().await < before + BEFORE {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let in_time = tokio::time::timeout(TIMEOUT, until).await;
    in_time.expect("tokens in time");
}

/// An uninterrupted answer, and the same answer interrupted. `body` makes the request of a program
/// for a number of tokens; `begun` gets the time of the whole first answer and waits until some
/// tokens of the second are generated.
pub(crate) async fn both(
    client: &Client,
    path: &'static str,
    body: impl Fn(&str, u32) -> Value,
    tokens: u32,
    begun: impl AsyncFn(Duration),
) -> (Value, Value) {
    let sent = Instant::now();
    let whole = client.post(path, &body("whole", tokens)).await.ok();
    let took = sent.elapsed();
    let (other, calm) = (client.clone(), body("calm", tokens));
    let calm = tokio::spawn(async move { other.post(path, &calm).await.ok() });
    begun(took).await;
    // This program has generated tokens, so it is more urgent.
    client.post(path, &body("whole", 5)).await.ok();
    assert!(!calm.is_finished(), "{path}: it gave way");
    (whole, calm.await.expect("no step fails"))
}

/// [`both`] at a simulated engine.
async fn both_simulated(
    fixture: &Fixture,
    engine: &EngineSimHandle,
    path: &'static str,
    logprobs: bool,
) -> (Value, Value) {
    let body = |program: &str, tokens| body(path, program, tokens, logprobs);
    let begun = async |_| until_generated(engine, TOKENS.into()).await;
    both(&fixture.client, path, body, TOKENS, begun).await
}

/// The answer without its ids and measured times.
fn without_names(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().expect("an object");
    for name in ["id", "request_id", "created"] {
        fields.remove(name);
    }
    if let Some(Value::Object(meta)) = fields.get_mut("meta_info") {
        meta.remove("id");
        meta.remove("cached_tokens");
    }
    if let Some(Value::Object(usage)) = fields.get_mut("usage") {
        usage.remove("prompt_tokens_details");
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_one_piece_are_interrupted_by_the_engines_own_abort() {
    for (path, kind) in [
        (GENERATE, EngineChoice::Sglang),
        (VLLM_GENERATE, EngineChoice::Vllm),
    ] {
        for logprobs in [false, true] {
            let simulated = engine_at("127.0.0.1:0", 100_000, 4.0).await;
            let fixture = one_slot(engine(&simulated.url(), kind)).await;
            let (whole, calm) = both_simulated(&fixture, &simulated, path, logprobs).await;
            assert_eq!(
                without_names(calm),
                without_names(whole),
                "{path}, {logprobs}"
            );
            let metrics = fixture.client.metrics().await;
            assert_eq!(metrics.count("treadle_interruptions_total"), 1, "{path}");
            assert_eq!(metrics.count("treadle_preemptions_total"), 1, "{path}");
            fixture.finish().await;
            simulated.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_of_a_stream_in_parts_are_those_of_one() {
    for path in [COMPLETIONS, CHAT] {
        let simulated = engine_at("127.0.0.1:0", 100_000, 4.0).await;
        let fixture = one_slot(engine(&simulated.url(), EngineChoice::Vllm)).await;
        let (whole, calm) = both_simulated(&fixture, &simulated, path, true).await;
        let (all, joined) = (&whole["choices"][0], &calm["choices"][0]);
        for part in ["text", "token_ids", "logprobs"] {
            assert_eq!(joined[part], all[part], "{path}: {part}");
        }
        assert_eq!(joined["message"]["content"], all["message"]["content"]);
        let tokens = |answer: &Value| answer["usage"]["completion_tokens"].clone();
        assert_eq!(tokens(&calm), tokens(&whole), "{path}");
        let metrics = fixture.client.metrics().await;
        assert_eq!(metrics.count("treadle_interruptions_total"), 1, "{path}");
        fixture.finish().await;
        simulated.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_cannot_be_interrupted_is_not_asked_to_be() {
    for (path, field, value) in [
        (GENERATE, "rid", json!("own")),
        (CHAT, "n", json!(1)),
        (CHAT, "response_format", json!({"type": "json_object"})),
    ] {
        let is_interruptible = field == "n";
        let simulated = engine_at("127.0.0.1:0", 100_000, 4.0).await;
        let kind = if path == GENERATE {
            EngineChoice::Sglang
        } else {
            EngineChoice::Vllm
        };
        let fixture = one_slot(engine(&simulated.url(), kind)).await;
        let first = body(path, "whole", 1, false);
        fixture.client.post(path, &first).await.ok();
        let mut calm = body(path, "calm", TOKENS, false);
        calm[field] = value;
        let client = fixture.client.clone();
        let calm = tokio::spawn(async move { client.post(path, &calm).await.ok() });
        until_generated(&simulated, 1).await;
        let urgent = body(path, "whole", 5, false);
        fixture.client.post(path, &urgent).await.ok();
        calm.await.expect("no step fails");
        let metrics = fixture.client.metrics().await;
        let preemptions = u64::from(is_interruptible);
        assert_eq!(
            metrics.count("treadle_preemptions_total"),
            preemptions,
            "{field}"
        );
        assert_eq!(
            metrics.count("treadle_interruptions_total"),
            preemptions,
            "{field}"
        );
        fixture.finish().await;
        simulated.shutdown().await;
    }
}

/// The text and the log-probabilities of a chat's stream.
fn content(ended: &Ended) -> (String, Vec<Value>) {
    let events = ended.objects();
    let logprobs = events.iter().filter_map(|event| {
        let content = &event["choices"][0]["logprobs"]["content"];
        content.as_array().cloned()
    });
    (text_of(ended), logprobs.flatten().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_with_tools_is_interrupted_while_it_is_text() {
    for logprobs in [false, true] {
        let simulated = engine_at("127.0.0.1:0", 100_000, 4.0).await;
        let fixture = one_slot(engine(&simulated.url(), EngineChoice::Vllm)).await;
        let tools = json!([{"type": "function", "function": {"name": "look"}}]);
        let body = |program: &str, tokens: u32| {
            let mut body = streamed(body(CHAT, program, tokens, logprobs));
            body["tools"] = tools.clone();
            body["tool_choice"] = json!("none");
            body
        };
        let whole = body("whole", TOKENS);
        let whole = fixture.client.stream(CHAT, &whole).await.finish().await;
        let (client, calm) = (fixture.client.clone(), body("calm", TOKENS));
        let calm = tokio::spawn(async move { client.stream(CHAT, &calm).await.finish().await });
        until_begun(&fixture.client, "calm").await;
        let urgent = body("whole", 5);
        fixture.client.stream(CHAT, &urgent).await.finish().await;
        let calm = calm.await.expect("no step fails");
        assert!(calm.is_done() && !calm.broken, "{:?}", calm.payloads());
        assert_eq!(content(&calm), content(&whole), "{logprobs}");
        assert_eq!(content(&whole).1.is_empty(), !logprobs);
        let tokens = |ended: &Ended| ended.usage().expect("usage")["completion_tokens"].clone();
        assert_eq!(tokens(&calm), tokens(&whole));
        let metrics = fixture.client.metrics().await;
        assert_eq!(metrics.count("treadle_interruptions_total"), 1);
        fixture.finish().await;
        simulated.shutdown().await;
    }
}

/// A continuation request, and the engine's answer.
fn piece(ids: &[u32], prompt: usize, end: &Value) -> String {
    let logprobs: Vec<Value> = ids.iter().map(|id| json!([-0.5, id, null])).collect();
    json!({
        "text": "ab".repeat(ids.len()), "output_ids": ids,
        "meta_info": {
            "id": "r", "finish_reason": end, "prompt_tokens": prompt, "cached_tokens": 0,
            "completion_tokens": ids.len(), "output_token_logprobs": logprobs,
        },
    })
    .to_string()
}

async fn answer(request: RawRequest, status: &str, body: &str) {
    request.answer(status, "application/json", body).await;
}

fn read(request: &RawRequest) -> Value {
    serde_json::from_slice(&request.body).expect("JSON")
}

/// An engine written by hand, at which a step runs that is to give way: the daemon, the engine, the
/// step's request, the engine's request to abort it, and both clients.
async fn giving_way() -> (Fixture, RawEngine, [RawRequest; 2], [JoinHandle<Value>; 2]) {
    let mut raw = RawEngine::start().await;
    let fixture = one_slot(engine(raw.url(), EngineChoice::Sglang)).await;
    let post = |body: Value| {
        let client = fixture.client.clone();
        tokio::spawn(async move { client.post(GENERATE, &body).await.ok() })
    };
    let first = post(body(GENERATE, "urgent", 1, false));
    let length = json!({"type": "length", "length": 1});
    answer(raw.request().await, "200 OK", &piece(&[7], 199, &length)).await;
    first.await.expect("no step fails");
    let calm = post(body(GENERATE, "calm", 4, true));
    let running = raw.request().await;
    let urgent = post(body(GENERATE, "urgent", 1, false));
    let abort = raw.request().await;
    assert!(
        abort.line.starts_with("POST /abort_request"),
        "{}",
        abort.line
    );
    assert_eq!(read(&abort)["rid"], read(&running)["rid"]);
    (fixture, raw, [running, abort], [calm, urgent])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_generated_is_kept_though_an_engine_fails_with_the_rest() {
    let (fixture, mut raw, [running, abort], [calm, urgent]) = giving_way().await;
    answer(abort, "200 OK", "").await;
    let aborted = json!({"type": "abort", "message": "Aborted"});
    answer(running, "200 OK", &piece(&[7, 8], 199, &aborted)).await;
    let length = json!({"type": "length", "length": 1});
    answer(raw.request().await, "200 OK", &piece(&[7], 199, &length)).await;
    urgent.await.expect("no step fails");
    let prompt: Vec<u32> = (1..200).chain([7, 8]).collect();
    let rest = raw.request().await;
    assert_eq!(read(&rest)["input_ids"], json!(prompt));
    assert_eq!(read(&rest)["sampling_params"]["max_new_tokens"], 2);
    answer(rest, "503 Service Unavailable", "{}").await;
    let again = raw.request().await;
    assert_eq!(read(&again)["input_ids"], json!(prompt), "nothing is lost");
    let length = json!({"type": "length", "length": 2});
    answer(again, "200 OK", &piece(&[9, 10], 201, &length)).await;
    let mut calm = calm.await.expect("no step fails");
    calm["meta_info"]["id"] = json!("r");
    let whole = piece(&[7, 8, 9, 10], 199, &json!({"type": "length", "length": 4}));
    let whole: Value = serde_json::from_str(&whole).expect("JSON");
    assert_eq!(calm, whole);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_engine_does_not_abort_it_runs_on_beside_none() {
    let (fixture, mut raw, [running, abort], [calm, urgent]) = giving_way().await;
    answer(abort, "404 Not Found", "{}").await;
    let client = &fixture.client;
    let runs_on = "/api/v1/events?kind=step_runs_on&program=calm";
    let is_told = async || client.get(runs_on).await.ok()["events"] != json!([]);
    stage::until("the step runs on", is_told).await;
    // The other still waits.
    assert_eq!(client.metrics().await.count("treadle_steps_running"), 1);
    let length = json!({"type": "length", "length": 4});
    answer(running, "200 OK", &piece(&[7, 8, 9, 10], 199, &length)).await;
    assert_eq!(
        calm.await.expect("no step fails")["output_ids"],
        json!([7, 8, 9, 10])
    );
    answer(raw.request().await, "200 OK", &piece(&[7], 199, &length)).await;
    urgent.await.expect("no step fails");
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_preemptions_total"), 1);
    assert_eq!(metrics.count("treadle_interruptions_total"), 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_aborts_between_two_pieces_gets_what_there_is() {
    let (fixture, mut raw, [running, abort], [calm, urgent]) = giving_way().await;
    answer(abort, "200 OK", "").await;
    let aborted = json!({"type": "abort", "message": "Aborted"});
    answer(running, "200 OK", &piece(&[7, 8], 199, &aborted)).await;
    let other = raw.request().await;
    let client = fixture.client.clone();
    let all = json!({"abort_all": true});
    let all = tokio::spawn(async move { client.post("/abort_request", &all).await.ok() });
    let told = raw.request().await;
    assert!(
        told.line.starts_with("POST /abort_request"),
        "{}",
        told.line
    );
    answer(told, "200 OK", "").await;
    all.await.expect("it is aborted");
    let calm = calm.await.expect("an answer");
    assert_eq!(calm["output_ids"], json!([7, 8]));
    assert_eq!(calm["meta_info"]["finish_reason"], aborted);
    answer(other, "200 OK", &piece(&[], 199, &aborted)).await;
    urgent.await.expect("an answer");
    fixture.finish().await;
}
