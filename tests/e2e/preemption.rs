//! Steps that are preempted by the engines' own abort or by a break: the pieces joined are, token
//! for token, what an uninterrupted answer is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_engine_sim::EngineSimHandle;
use treadle_tests::support::client::{Client, Ended, TIMEOUT};
use treadle_tests::support::fixture::{
    CHAT, COMPLETIONS, Fixture, MODEL, endpoint, engine_at, streamed,
};

use crate::rollouts::{one_slot, text_of, until_begun};

const GENERATE: &str = "/generate";
const VLLM_GENERATE: &str = "/inference/v1/generate";
/// Tokens of an answer: some hundred milliseconds at the engine.
const TOKENS: u32 = 80;
/// Tokens that it has generated when it is preempted, at least.
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

/// Waits until the engine has generated so many tokens more.
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

/// An answer that is interrupted, and the same uninterrupted. `body` makes the request of a program
/// for so many tokens, `begun` waits until some of the second are generated, and knows how long all
/// of them take.
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
    // It has generated, so this is the more urgent.
    client.post(path, &body("whole", 5)).await.ok();
    assert!(!calm.is_finished(), "{path}: it gave way");
    (whole, calm.await.expect("no step fails"))
}

/// The same at a simulated engine.
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

/// What names an answer, and what is measured.
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
