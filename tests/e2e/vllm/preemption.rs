//! Steps that are preempted by a real server's abort or by a closed connection are continued.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::fixture::{COMPLETIONS, endpoint};

use super::{TIMEOUT, model_of, pair};
use crate::conversation::ids;
use crate::offload::moves::strangers;
use crate::offload::stage;
use crate::preemption::both;
use crate::rollouts::one_slot;

const GENERATE: &str = "/inference/v1/generate";
const TOKENS: u32 = 1_000;
/// How far log-probabilities may be apart if part of the prompt was in a cache.
const LOGPROB_OFF_MAX: f64 = 1e-3;

fn logprobs(choice: &Value) -> Vec<f64> {
    let logprobs = &choice["logprobs"];
    let content = logprobs["content"].as_array().into_iter().flatten();
    let of_content = content.map(|each| each["logprob"].clone());
    let of_tokens = logprobs["token_logprobs"].as_array().into_iter().flatten();
    let all = of_content.chain(of_tokens.cloned());
    all.filter_map(|each| each.as_f64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers at TREADLE_TEST_VLLM_URL"]
async fn vllm_goes_on_where_it_was_interrupted() {
    let [server, _] = pair();
    let model = model_of(&server).await;
    for path in [GENERATE, COMPLETIONS] {
        let endpoint = Endpoint {
            kind: Some(EngineChoice::Auto),
            ..endpoint(&server)
        };
        let mut fixture = one_slot(endpoint).await;
        fixture.client = fixture.client.with_timeout(TIMEOUT);
        let prompt = ids(strangers(1), 0, 120);
        let body = |program: &str, tokens: u32| {
            let sampling = json!({
                "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "logprobs": 1,
            });
            let mut body = if path == GENERATE {
                json!({"token_ids": prompt, "sampling_params": sampling})
            } else {
                sampling
            };
            if path == COMPLETIONS {
                body["prompt"] = json!(prompt);
                body["return_token_ids"] = json!(true);
            }
            body["model"] = json!(model);
            body["program_id"] = json!(program);
            body
        };
        // The server counts an answer in one piece only at its end.
        let begun = async |took: Duration| {
            let sent = Instant::now();
            let some = async || sent.elapsed() > took / 8;
            stage::until("some of it is generated", some).await;
        };
        // A server's first answer takes longer than the next ones, so it doesn't tell when those are
        // part done.
        let first = body("whole", TOKENS);
        fixture.client.post(path, &first).await.ok();
        let (whole, calm) = both(&fixture.client, path, body, TOKENS, begun).await;
        let (all, joined) = (&whole["choices"][0], &calm["choices"][0]);
        for part in [
            "token_ids",
            "text",
            "finish_reason",
            "stop_reason",
            "weight_versions",
        ] {
            assert_eq!(joined[part], all[part], "{path}: {part}");
        }
        assert_eq!(logprobs(all).len(), TOKENS as usize, "{whole}");
        let pairs = logprobs(joined).into_iter().zip(logprobs(all));
        let off = pairs.map(|(one, other)| (one - other).abs());
        assert!(off.into_iter().all(|off| off < LOGPROB_OFF_MAX), "{path}");
        assert_eq!(logprobs(joined).len(), TOKENS as usize);
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(
                calm["usage"][count], whole["usage"][count],
                "{path}: {count}"
            );
        }
        let metrics = fixture.client.metrics().await;
        assert_eq!(metrics.count("treadle_interruptions_total"), 1, "{path}");
        fixture.finish().await;
    }
}
