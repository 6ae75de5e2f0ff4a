//! A step that is preempted by a real server's own abort is continued.

use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::fixture::endpoint;

use super::{GENERATE, TIMEOUT, count, fresh, generation, output, pair};
use crate::offload::stage;
use crate::preemption::both;
use crate::rollouts::one_slot;

const TOKENS: u32 = 400;
const PROMPT_TOKENS: u64 = 120;
/// How far log-probabilities may be apart if part of the prompt was in a cache.
const LOGPROB_OFF_MAX: f64 = 1e-3;

fn logprobs(answer: &Value) -> Vec<(f64, u64)> {
    let all = answer["meta_info"]["output_token_logprobs"].as_array();
    let pairs = all.expect("log-probabilities").iter();
    let pair = |each: &Value| Some((each[0].as_f64()?, each[1].as_u64()?));
    pairs.filter_map(pair).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_goes_on_where_it_was_interrupted() {
    let [server, _] = pair();
    let endpoint = Endpoint {
        kind: Some(EngineChoice::Auto),
        ..endpoint(&server)
    };
    let mut fixture = one_slot(endpoint).await;
    fixture.client = fixture.client.with_timeout(TIMEOUT);
    let prompt = fresh(PROMPT_TOKENS as usize);
    let body = |program: &str, tokens: u32| {
        let mut body = generation(&prompt, tokens);
        body["program_id"] = json!(program);
        body
    };
    let begun = async |_| {
        // The server updates its count only every few tokens.
        let some = async || count(&server, "sglang:num_used_tokens").await > PROMPT_TOKENS + 20;
        stage::until("some of it is generated", some).await;
    };
    let (whole, calm) = both(&fixture.client, GENERATE, body, TOKENS, begun).await;
    assert_eq!(output(&calm), output(&whole));
    assert_eq!(output(&calm).len(), TOKENS as usize);
    assert_eq!(calm["text"], whole["text"]);
    let pairs = logprobs(&calm).into_iter().zip(logprobs(&whole));
    let is_near = |(one, other): ((f64, u64), (f64, u64))| {
        one.1 == other.1 && (one.0 - other.0).abs() < LOGPROB_OFF_MAX
    };
    assert!(pairs.into_iter().all(is_near));
    assert_eq!(logprobs(&calm).len(), TOKENS as usize);
    let (meta, all) = (&calm["meta_info"], &whole["meta_info"]);
    let names = |meta: &Value| -> Vec<String> {
        let names = meta.as_object().expect("an object").keys();
        names.cloned().collect()
    };
    assert_eq!(names(meta), names(all), "nothing is lost or added");
    for field in [
        "finish_reason",
        "prompt_tokens",
        "completion_tokens",
        "weight_version",
        "weight_versions",
        "input_token_logprobs",
        "output_token_logprobs_length",
    ] {
        assert_eq!(meta[field], all[field], "{field}");
    }
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_interruptions_total"), 1);
    fixture.finish().await;
}
