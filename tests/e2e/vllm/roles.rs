//! Roles of two real servers: one computes long prompts, and the other one, which has the program,
//! fetches their caches and answers.

use std::path::Path;

use serde_json::{Value, json};
use treadle_config::Endpoint;
use treadle_engine_sim::EngineSimOptions;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, endpoint, streamed};

use super::copies::{Pair, fresh, undisturbed_chat};
use super::{TIMEOUT, block_tokens, fetched, pair, undisturbed};
use crate::conversation::{answer_ids, usage};
use crate::rollouts::text_of;

/// Tokens of the long prompt.
const LONG: usize = 4_000;
/// Tokens by which the program's context grows.
const SMALL: usize = 16;
/// Declared time of a token, and declared speeds of prefill. By these the decode server takes 40 s
/// for the long prompt and less than a second for the small part; the prefill server 5 s and more than
/// one second. What the test learns of the servers can't reverse either.
const TOKEN_US: u64 = 1_000_000;
const PREFILL_TOKENS_PER_S: u64 = 1_000;
const DECODE_TOKENS_PER_S: u64 = 100;

/// A server of a role, whose speeds are declared by a profile in this folder.
fn of_role(url: &str, role: &str, prefill_tokens_per_s: u64, folder: &Path) -> Endpoint {
    let mut profile = EngineSimOptions::default().profile;
    profile.prefill_tokens_per_s = prefill_tokens_per_s;
    profile.decode_base_us = TOKEN_US;
    let path = folder.join(format!("{role}.json"));
    let document = profile.to_json(Value::Null).to_string();
    std::fs::write(&path, document).expect("it is written");
    Endpoint {
        role: Some(role.to_owned()),
        profile: Some(path.to_string_lossy().into_owned()),
        ..endpoint(url)
    }
}

/// A step of the program.
async fn step(client: &Client, request: &Value) -> Value {
    let mut named = request.clone();
    named["program_id"] = json!("long");
    client.post(COMPLETIONS, &named).await.ok()
}

/// Prompts that the prefill server computed; it failed none.
async fn prefills(client: &Client) -> u64 {
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_prefills_failed_total"), 0);
    metrics.count("treadle_prefills_total")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_computes_long_prompts_for_the_other_server() {
    let [first, second] = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let endpoints = vec![
        of_role(&first, "prefill", PREFILL_TOKENS_PER_S, folder.path()),
        of_role(&second, "decode", DECODE_TOKENS_PER_S, folder.path()),
    ];
    let fixture = Fixture::tuned(0, 0, |config| config.engines.endpoints = endpoints).await;
    let client = fixture.client.with_timeout(TIMEOUT);
    let pair = Pair::of(&first, &second).await;
    let block = block_tokens(&second).await;
    let least = |prompt: u64| (prompt / block - 1) * block;
    let long = LONG as u64;

    let before = fetched(&second).await;
    let prompt = fresh(LONG);
    let request = pair.request(&prompt);
    let answer = step(&client, &request).await;
    let tokens = answer_ids(&answer["choices"][0]);
    let came = fetched(&second).await - before;
    assert!((least(long)..=long).contains(&came), "{came} tokens");
    assert_eq!(prefills(&client).await, 1);
    assert_eq!(tokens, undisturbed(&first, &request).await);
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_prompt_tokens_total"), long);
    let cached = metrics.count("treadle_cached_tokens_total");
    assert_eq!(cached, 0, "it was computed, once");

    let longer = [&prompt[..], &tokens, &fresh(SMALL)].concat();
    let request = pair.request(&longer);
    let answer = step(&client, &request).await;
    let cached = usage(std::slice::from_ref(&answer)).cached;
    assert!(cached >= least(long), "{cached} tokens");
    assert_eq!(prefills(&client).await, 1, "the small part is its own");
    assert_eq!(fetched(&second).await, before + came);
    let tokens = answer_ids(&answer["choices"][0]);
    assert_eq!(tokens, undisturbed(&first, &request).await);

    let words: Vec<String> = fresh(LONG / 4).iter().map(u32::to_string).collect();
    let chat = json!({
        "model": pair.model, "max_tokens": 8, "temperature": 0, "ignore_eos": true,
        "messages": [{"role": "user", "content": words.join(" ")}],
    });
    let mut named = streamed(chat.clone());
    named["program_id"] = json!("chat");
    let ended = client.stream(CHAT, &named).await.finish().await;
    assert!(ended.is_done() && !ended.broken);
    let counted = usage(&ended.objects());
    let came = fetched(&second).await - before - came;
    assert!(came >= least(counted.prompt), "{came} of {counted:?}");
    assert_eq!(prefills(&client).await, 2);
    assert_eq!(text_of(&ended), undisturbed_chat(&first, &chat).await);
    fixture.finish().await;
}
