//! Members that speak the engines' own APIs, with tokens in and out: captured like chats. The engines
//! are scripted by hand after vLLM's and SGLang's answers.

use crate::offload::stage::until;

use super::tokens::{answer, asked, gateway, release};
use super::{batch, declare, get, member, post, submit};
use http::Method;
use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

const SGLANG: &str = "/generate";
const VLLM: &str = "/inference/v1/generate";

/// Sends a step of the member `p` of group `a`.
fn step(client: &Client, path: &'static str, body: &Value) -> tokio::task::JoinHandle<Answer> {
    let (client, body) = (client.clone(), body.to_string().into_bytes());
    tokio::spawn(async move {
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", "a"),
            ("x-program-id", "p"),
        ];
        client.send(Method::POST, path, &headers, body).await
    })
}

/// SGLang's answer; `versions` are ends of ranges and names.
fn generated(prompt: usize, output: &[i32], versions: &[(usize, &str)]) -> Value {
    let scores: Vec<Value> = output.iter().map(|id| json!([-0.5, id, null])).collect();
    let mut start = 0;
    let spans = versions.iter().map(|(end, name)| {
        json!({"version": name, "start": std::mem::replace(&mut start, *end), "end": end})
    });
    json!({"text": "yes", "output_ids": output, "meta_info": {"id": "r",
        "finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": prompt,
        "completion_tokens": output.len(), "cached_tokens": 0, "weight_version": "default",
        "weight_versions": spans.collect::<Vec<_>>(), "output_token_logprobs": scores,
        "input_token_logprobs": [], "output_token_logprobs_length": output.len()}})
}

/// Cuts the next batch, whose group is this one.
async fn cut(client: &Client, number: u64, group: &str) {
    submit(client, &[group]).await;
    member(client, group, group, 1.0).await;
    batch(client, number).await;
}

/// Engines have this version of the weights from now on.
async fn told(client: &Client, version: u64) {
    post(client, "/versions", json!({"version": version}))
        .await
        .ok();
}

/// The versions of a step's ranges: start, end, oldest, newest.
pub(super) fn spans(step: &Value) -> Vec<[u64; 4]> {
    let spans = step["versions"].as_array().expect("a list").iter();
    let number = |span: &Value, name: &str| span[name].as_u64().expect("a number");
    let rows = spans.map(|span| ["start", "end", "version", "newest"].map(|n| number(span, n)));
    rows.collect()
}

/// What `meta` of a payload says of its only member.
fn member_in(payload: &[u8]) -> Value {
    let file = safetensors::SafeTensors::deserialize(payload).expect("a payload");
    let meta = file.tensor("meta").expect("it is there").data();
    let meta: Value = serde_json::from_slice(meta).expect("JSON");
    meta["members"][0].clone()
}

/// Weights change during each step but the first; only the second answer says where.
#[tokio::test(flavor = "multi_thread")]
async fn sglang_is_captured_with_the_versions_that_it_names() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Sglang).await;
    let client = &fixture.client;
    let settings = json!({"group_size": 1, "batch_groups": 1, "capture": "tokens",
        "rewarded": false, "lag_max": 5});
    declare(client, settings).await;
    let sent = step(client, SGLANG, &json!({"input_ids": [1, 2]}));
    let request = engine.request().await;
    assert_eq!(
        asked(&request),
        json!({"input_ids": [1, 2], "return_logprob": true})
    );
    answer(request, &generated(2, &[3, 4], &[(2, "default")])).await;
    let shown = sent.await.expect("it ends").ok();
    assert_eq!(shown["output_ids"], json!([3, 4]), "this API answers ids");
    assert_eq!(
        shown["meta_info"].get("output_token_logprobs"),
        None,
        "{shown}"
    );

    cut(client, 1, "b").await;
    let body = json!({"input_ids": [1, 2, 3, 4, 5], "return_logprob": true});
    let sent = step(client, SGLANG, &body);
    let request = engine.request().await;
    told(client, 1).await;
    let named = generated(5, &[6, 7, 8], &[(1, "0"), (3, "1")]);
    answer(request, &named).await;
    assert_eq!(sent.await.expect("it ends").ok(), named, "it asked for all");

    cut(client, 2, "c").await;
    let body = json!({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]});
    let sent = step(client, SGLANG, &body);
    let request = engine.request().await;
    told(client, 2).await;
    answer(request, &generated(9, &[2], &[(1, "default")])).await;
    sent.await.expect("it ends").ok();

    let steps = get(client, "/members/p/steps").await.ok();
    let of = |number: usize| spans(&steps["steps"][number]);
    assert_eq!(of(0), [[0, 2, 0, 0]]);
    assert_eq!(of(1), [[0, 1, 0, 0], [1, 3, 1, 1]]);
    assert_eq!(of(2), [[0, 1, 1, 2]], "it is not known where");
    assert_eq!(steps["steps"][1]["logprobs"], json!([-0.5, -0.5, -0.5]));
    release(client, "p").await;
    let (view, payload) = batch(client, 3).await;
    assert_eq!(
        view["groups"][0]["members"][0]["version"], 0,
        "the oldest counts"
    );
    let member = member_in(&payload);
    assert_eq!(member["mixed"], json!([[0, 9, 10, 2]]));
    assert_eq!(member["logprobs"], "unknown", "{member}");
    fixture.finish().await;
}

async fn events(mut request: RawRequest, events: &[Value]) {
    request.begin_events().await;
    for event in events {
        request.chunk(format!("data: {event}\n\n").as_bytes()).await;
    }
    request.chunk(b"data: [DONE]\n\n").await;
    request.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_own_apis_are_captured() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Sglang).await;
    let client = &fixture.client;
    let body = json!({"text": "a", "stream": true});
    let sent = step(client, SGLANG, &body);
    let request = engine.request().await;
    assert_eq!(asked(&request)["return_prompt_token_ids"], true);
    let repeated = [[7].as_slice(), &[7, 8]].map(|ids| {
        let mut event = generated(2, ids, &[]);
        event["prompt_token_ids"] = json!([1, 2]);
        event
    });
    events(request, &repeated).await;
    let shown = sent.await.expect("it ends");
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    for hidden in ["logprobs", "prompt_token_ids"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert!(shown.ends_with("data: [DONE]\n\n"), "{shown}");
    let steps = get(client, "/members/p/steps").await.ok();
    let kept = &steps["steps"][0];
    assert_eq!(
        (&kept["prompt"], &kept["output"]),
        (&json!([1, 2]), &json!([7, 8]))
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vllm_is_captured_at_its_own_api() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let body = json!({"token_ids": [1, 2], "sampling_params": {"n": 2}, "stream": true});
    let sent = step(client, VLLM, &body);
    let request = engine.request().await;
    let expected =
        json!({"token_ids": [1, 2], "sampling_params": {"n": 2, "logprobs": 0}, "stream": true});
    assert_eq!(asked(&request), expected);
    let choice = |index: u64, id: u64, end: Value| {
        json!({"request_id": "r", "choices": [{"index": index, "token_ids": [id],
            "logprobs": {"content": [{"token_id": id, "logprob": -0.5, "rank": 1}]},
            "finish_reason": end}]})
    };
    let open = Value::Null;
    let sampled = [
        choice(0, 7, open.clone()),
        choice(1, 8, open),
        choice(1, 9, json!("stop")),
        choice(0, 2, json!("stop")),
    ];
    events(request, &sampled).await;
    let shown = sent.await.expect("it ends");
    assert!(!String::from_utf8_lossy(&shown.body).contains("logprob\""));
    release(client, "p").await;
    batch(client, 1).await;
    let steps = get(client, "/members/p/steps").await.ok();
    let outputs = [&steps["steps"][0]["output"], &steps["steps"][1]["output"]];
    assert_eq!(outputs, [&json!([7, 2]), &json!([8, 9])], "{steps}");
    fixture.finish().await;
}

/// A path of another kind of engine, and several prompts at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_captured_is_answered_and_spoils_its_member() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Sglang).await;
    let client = &fixture.client;
    let several = json!({"input_ids": [[1], [2]]});
    let sent = step(client, SGLANG, &several);
    let request = engine.request().await;
    assert_eq!(asked(&request), several);
    let both = json!([generated(1, &[3], &[]), generated(1, &[4], &[])]);
    answer(request, &both).await;
    assert_eq!(sent.await.expect("it ends").ok(), both);
    let failed = client
        .get("/api/v1/events?kind=capture_failed&limit=10")
        .await
        .ok();
    let cause = failed["events"][0]["event"]["cause"].as_str();
    assert!(
        cause.is_some_and(|text| text.contains("several prompts")),
        "{failed}"
    );
    fixture.finish().await;
}

/// What an engine does to its scores shows in its answers at other settings.
#[tokio::test(flavor = "multi_thread")]
async fn the_kind_of_the_log_probabilities_comes_with_the_sample() {
    let mut engine = RawEngine::start().await;
    engine.tell_kind();
    let fixture = gateway(&engine, EngineChoice::Sglang).await;
    let client = &fixture.client;
    let sent = step(client, SGLANG, &json!({"input_ids": [1, 2]}));
    let mut own = None;
    for _ in 0..4 {
        let request = engine.request().await;
        if !request.asks_for_kind() {
            own = Some(request);
            continue;
        }
        let settings = asked(&request);
        let score = if settings["temperature"] == 0.5 {
            -0.5
        } else {
            -1.25
        };
        let top = json!([{" a": score, " b": score - 1.0}]);
        answer(
            request,
            &json!({"choices": [{"logprobs": {"top_logprobs": top}}]}),
        )
        .await;
    }
    let is_known = async || {
        let workers = client.get("/api/v1/workers").await.ok();
        workers["workers"][0]["capabilities"]["logprobs"] == "temperature"
    };
    until("the kind of its log-probabilities", is_known).await;
    answer(own.expect("the step"), &generated(2, &[3], &[])).await;
    sent.await.expect("it ends").ok();
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(steps["logprobs"], "temperature");
    release(client, "p").await;
    let (_, payload) = batch(client, 1).await;
    assert_eq!(member_in(&payload)["logprobs"], "temperature");
    fixture.finish().await;
}
