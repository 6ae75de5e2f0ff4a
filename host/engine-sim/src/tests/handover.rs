//! The cache of a prompt goes from the engine that computes it to the one that generates.

use super::*;

/// Tokens of the prompt: whole blocks, and one token that is always computed.
const TOKENS: u32 = 641;

fn body(max_tokens: u32, handover: &Value) -> Value {
    let ids: Vec<u32> = (1_000..1_000 + TOKENS).collect();
    json!({
        "model": "treadle-sim", "prompt": ids, "max_tokens": max_tokens, "kv_transfer_params": handover,
    })
}

fn keep() -> Value {
    json!({
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
        "remote_block_ids": null, "remote_host": null, "remote_port": null,
    })
}

fn cached(answer: &Value) -> u64 {
    let details = &answer["usage"]["prompt_tokens_details"];
    details["cached_tokens"].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn a_prompt_is_computed_by_one_engine_and_answered_by_another() {
    let (prefill, decode) = (Bench::quick().await, Bench::quick().await);
    let first = prefill
        .post_json("/v1/completions", &body(1, &keep()))
        .await;
    assert_eq!(first["usage"]["completion_tokens"], 1);
    let place = &first["kv_transfer_params"];
    assert_eq!(place["do_remote_prefill"], true, "{first}");
    assert_eq!(place["remote_block_ids"].as_array().map(Vec::len), Some(40));
    let answer = decode.post_json("/v1/completions", &body(7, place)).await;
    assert_eq!((cached(&first), cached(&answer)), (0, 640));
    assert_eq!(answer["usage"]["completion_tokens"], 7);
    assert!(answer.get("kv_transfer_params").is_none(), "{answer}");
    // What was fetched once is let go.
    decode.post("/reset_prefix_cache", &json!({})).await;
    let again = decode.post_json("/v1/completions", &body(7, place)).await;
    assert_eq!(cached(&again), 0, "it is computed instead");
}

#[tokio::test]
async fn a_prompt_whose_engine_is_gone_is_computed() {
    let decode = Bench::quick().await;
    for place in [
        json!({"do_remote_prefill": true}),
        json!({
            "do_remote_prefill": true, "remote_request_id": "x", "remote_host": "127.0.0.1",
            "remote_port": 1,
        }),
    ] {
        let answer = decode.post_json("/v1/completions", &body(3, &place)).await;
        assert_eq!(answer["usage"]["completion_tokens"], 3);
    }
}

#[tokio::test]
async fn a_transfer_takes_its_time() {
    let prefill = Bench::quick().await;
    let first = prefill
        .post_json("/v1/completions", &body(1, &keep()))
        .await;
    // Half a terabyte for each token: hours at any speed of a link.
    let decode = Bench::start(EngineSimOptions {
        profile: EngineProfile::instant(),
        kv_bytes_per_token: 1 << 39,
        ..EngineSimOptions::default()
    })
    .await;
    let request = body(1, &first["kv_transfer_params"]);
    let answer = decode.post_json("/v1/completions", &request);
    let waited = tokio::time::timeout(Duration::from_millis(200), answer).await;
    assert!(waited.is_err(), "it has nothing to generate from yet");
}
