//! The gateway in front of real vLLM servers, whose URLs are in `TREADLE_TEST_VLLM_URL` with commas
//! between them. `make test-vllm` starts two and runs these.

mod copies;
mod faults;
mod figures;
mod preemption;
mod ranks;
mod roles;
mod weights;

use std::time::Duration;

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, endpoint, streamed};

use crate::conversation::{Conversation, Form, answer_ids};
use crate::offload::moves::{MORE, TOKENS, moving, one_moves};
use crate::training::real::{Engine, Kind, is_captured};

/// Metric that counts prompt tokens by the source of their KV.
const BY_SOURCE: &str = "vllm:prompt_tokens_cached_by_source_total";
/// Timeout for slow engines, such as those on a CPU.
const TIMEOUT: Duration = Duration::from_mins(3);

/// The servers.
fn servers() -> Vec<String> {
    let urls = std::env::var("TREADLE_TEST_VLLM_URL");
    let urls = urls.expect("set TREADLE_TEST_VLLM_URL to the URLs of vLLM servers");
    let urls = urls.split(',').map(|url| url.trim_end_matches('/'));
    urls.map(str::to_owned).collect()
}

/// The first two servers.
fn pair() -> [String; 2] {
    let urls = servers();
    let [first, second, ..] = &urls[..] else {
        panic!("name two servers in TREADLE_TEST_VLLM_URL, with a comma between");
    };
    [first.clone(), second.clone()]
}

/// A client of a server itself.
fn client_of(url: &str) -> Client {
    Client::new(url).with_timeout(TIMEOUT)
}

/// The name of a server's model.
async fn model_of(url: &str) -> String {
    let models = client_of(url).get("/v1/models").await.ok();
    models["data"][0]["id"]
        .as_str()
        .expect("a model")
        .to_owned()
}

/// Tokens per block of a server; only whole blocks are cached.
async fn block_tokens(url: &str) -> u64 {
    let metrics = client_of(url).metrics().await;
    let tokens = metrics.label("vllm:cache_config_info", "block_size");
    tokens.expect("its blocks").parse().expect("a number")
}

/// Prompt tokens whose KV a server got from others.
async fn fetched(url: &str) -> u64 {
    let metrics = client_of(url).metrics().await;
    metrics.count_with(BY_SOURCE, "source=\"p2p\"")
}

/// The tokens of a server's answer if no part of the prompt is cached.
async fn undisturbed(url: &str, request: &Value) -> Vec<u32> {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut request = request.clone();
    request["cache_salt"] = json!(format!("calm-{}-{number}", std::process::id()));
    let answer = client_of(url).post(COMPLETIONS, &request).await.ok();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap_or(0) == 0, "no cache has this salt");
    answer_ids(&answer["choices"][0])
}

async fn gateway() -> (Fixture, Vec<String>, String) {
    let urls = servers();
    let endpoints = urls.iter().map(endpoint).collect();
    let fixture = Fixture::tuned(0, 0, |config| config.engines.endpoints = endpoints).await;
    let model = model_of(&urls[0]).await;
    (fixture, urls, model)
}

async fn running(urls: &[String]) -> u64 {
    let mut sum = 0;
    for url in urls {
        let metrics = client_of(url).metrics().await;
        sum += metrics.count("vllm:num_requests_running");
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL"]
async fn vllm_conversations_keep_their_caches() {
    let (fixture, urls, model) = gateway().await;
    let block_tokens = block_tokens(&urls[0]).await;
    let talks: Vec<_> = (0..20)
        .map(|number| {
            let talk = Conversation::plan(number);
            let held = talk.clone().hold(fixture.client.clone(), model.clone());
            (talk, tokio::spawn(held))
        })
        .collect();
    for (talk, held) in talks {
        let counted = held.await.expect("no step fails");
        let path = format!("/api/v1/programs/{}/steps", talk.program);
        let page = fixture.client.get(&path).await.ok();
        let steps = page["steps"].as_array().expect("a list");
        assert_eq!(steps.len(), counted.len());
        for (step, usage) in steps.iter().zip(&counted) {
            assert_eq!(step["prompt_tokens"], usage.prompt);
            assert_eq!(step["output_tokens"], usage.output);
        }
        for pair in counted.windows(2) {
            let context = match talk.form {
                Form::Ids => pair[0].prompt + pair[0].output - 1,
                Form::Messages => pair[0].prompt,
            };
            let least = (context / block_tokens * block_tokens).saturating_sub(block_tokens);
            // vLLM reports it only with --enable-prompt-tokens-details.
            let told = pair[1].cached;
            assert!(told == 0 || told >= least, "{}: {pair:?}", talk.program);
        }
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL"]
async fn vllm_hears_of_clients_that_leave() {
    let (fixture, urls, model) = gateway().await;
    let body: Value = json!({
        "model": model, "max_tokens": 2_000, "ignore_eos": true, "program_id": "p",
        "messages": [{"role": "user", "content": "Tell a long story."}],
    });
    let mut events = fixture.client.stream(CHAT, &streamed(body)).await;
    events.piece().await.expect("an event").expect("no break");
    drop(events);
    let left = std::time::Instant::now();
    while running(&urls).await > 0 {
        assert!(
            left.elapsed() < Duration::from_secs(2),
            "the request still runs"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL"]
async fn vllm_tokens_are_captured() {
    let (mut fixture, urls, model) = gateway().await;
    fixture.client = fixture.client.with_timeout(TIMEOUT);
    let engine = Engine {
        client: client_of(&urls[0]),
        model,
        kind: Kind::Vllm,
    };
    is_captured(&fixture.client, &engine).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_caches_move_to_the_other_server() {
    let [first, second] = pair();
    let model = model_of(&first).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![endpoint(&first)];
        moving(config);
    })
    .await;
    let before = fetched(&second).await;
    let acted = one_moves(&fixture, &model, &second).await;
    // The last prompt's tokens are cached, in whole blocks, and came from the other server.
    let least = (u64::from(TOKENS) / block_tokens(&second).await - 1) * block_tokens(&second).await;
    assert!(acted.cached() >= least, "{} tokens", acted.cached());
    let fetched = fetched(&second).await - before;
    assert!(
        (least..u64::from(TOKENS + MORE)).contains(&fetched),
        "{fetched} tokens"
    );
    let answer = answer_ids(&acted.answer["choices"][0]);
    assert_eq!(answer, undisturbed(&second, &acted.request).await);
    assert_eq!(answer, undisturbed(&first, &acted.request).await);
    fixture.finish().await;
}
