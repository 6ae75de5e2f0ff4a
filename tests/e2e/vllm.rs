//! The gateway in front of real vLLM servers, whose URLs stand in `TREADLE_TEST_VLLM_URL` with
//! commas between them. `make test-vllm` runs these.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::stand::{CHAT, Stand, endpoint, streamed};

use crate::conversation::{Conversation, Form};
use crate::offload::moves::{moving, one_moves};

/// Tokens of vLLM's blocks; what is cached is whole blocks.
const BLOCK_TOKENS: u64 = 16;

async fn gateway() -> (Stand, Vec<String>, String) {
    let urls = std::env::var("TREADLE_TEST_VLLM_URL");
    let urls = urls.expect("set TREADLE_TEST_VLLM_URL to the URL of a vLLM server");
    let urls: Vec<String> = urls
        .split(',')
        .map(|url| url.trim_end_matches('/').to_owned())
        .collect();
    let endpoints = urls.iter().map(endpoint).collect();
    let stand = Stand::tuned(0, 0, |config| config.engines.endpoints = endpoints).await;
    let models = stand.client.get("/v1/models").await.ok();
    let model = models["data"][0]["id"]
        .as_str()
        .expect("a model")
        .to_owned();
    (stand, urls, model)
}

async fn running(urls: &[String]) -> u64 {
    let mut sum = 0;
    for url in urls {
        sum += Client::new(url)
            .metrics()
            .await
            .count("vllm:num_requests_running");
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL"]
async fn vllm_conversations_keep_their_caches() {
    let (stand, _, model) = gateway().await;
    let talks: Vec<_> = (0..20)
        .map(|number| {
            let talk = Conversation::plan(number);
            let held = talk.clone().hold(stand.client.clone(), model.clone());
            (talk, tokio::spawn(held))
        })
        .collect();
    for (talk, held) in talks {
        let counted = held.await.expect("no step fails");
        let path = format!("/v1/programs/{}/steps", talk.program);
        let page = stand.client.get(&path).await.ok();
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
            let least = (context / BLOCK_TOKENS * BLOCK_TOKENS).saturating_sub(BLOCK_TOKENS);
            // vLLM says so only with --enable-prompt-tokens-details.
            let told = pair[1].cached;
            assert!(told == 0 || told >= least, "{}: {pair:?}", talk.program);
        }
    }
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a vLLM server at TREADLE_TEST_VLLM_URL"]
async fn vllm_hears_of_clients_that_leave() {
    let (stand, urls, model) = gateway().await;
    let body: Value = json!({
        "model": model, "max_tokens": 2_000, "ignore_eos": true, "program_id": "p",
        "messages": [{"role": "user", "content": "Tell a long story."}],
    });
    let mut events = stand.client.stream(CHAT, &streamed(body)).await;
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
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_caches_move_to_the_other_server() {
    let (asking, urls, model) = gateway().await;
    asking.finish().await;
    let [first, second, ..] = &urls[..] else {
        panic!("name two servers, with a comma between");
    };
    let stand = Stand::tuned(0, 0, |config| {
        config.engines.endpoints = vec![endpoint(first)];
        moving(config);
    })
    .await;
    let cached = one_moves(&stand, &model, second).await;
    assert!(cached >= BLOCK_TOKENS, "nothing was there");
    stand.finish().await;
}
