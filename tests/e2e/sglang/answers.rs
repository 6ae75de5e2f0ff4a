//! Answers equal the servers' own answers.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, streamed};

use super::{
    ENDLESS, GENERATE, client_of, fresh, gateway, generation, output, pair, until_running,
};
use crate::rollouts::text_of;

/// How far log probabilities may be apart if part of the prompt was in a cache.
const LOGPROB_OFF_MAX: f64 = 1e-3;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_chats_the_same_through_the_daemon() {
    let fixture = gateway().await;
    let client = &fixture.client;
    let [first, _] = pair();
    let model = client_of(&first).get("/v1/models").await.ok();
    let chat = json!({
        "model": model["data"][0]["id"], "max_tokens": 40, "temperature": 0,
        "messages": [
            {"role": "system", "content": "bado fego kimu lopa"},
            {"role": "user", "content": "nizu rate sova, dagi mene?"},
        ],
    });
    let own = client_of(&first).post(CHAT, &chat).await.ok();
    let text = own["choices"][0]["message"]["content"].as_str();
    assert!(text.is_some_and(|text| !text.is_empty()), "{own}");

    let mut whole = chat.clone();
    whole["program_id"] = json!("whole");
    let whole = client.post(CHAT, &whole).await.ok();
    for field in ["message", "finish_reason", "matched_stop"] {
        assert_eq!(whole["choices"][0][field], own["choices"][0][field]);
    }
    same_usage(&whole["usage"], &own["usage"]);

    let mut pieces = streamed(chat);
    pieces["program_id"] = json!("pieces");
    let pieces = client.stream(CHAT, &pieces).await.finish().await;
    assert!(pieces.is_done() && !pieces.broken);
    assert_eq!(Some(&*text_of(&pieces)), text);
    same_usage(&pieces.usage().expect("usage"), &own["usage"]);
    for program in ["whole", "pieces"] {
        recorded(client, program, &own["usage"]).await;
    }
    fixture.finish().await;
}

fn same_usage(usage: &Value, own: &Value) {
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert!(own[field].as_u64() > Some(0), "{own}");
        assert_eq!(usage[field], own[field], "{usage} {own}");
    }
}

/// Compares the daemon's record with the server's counts.
async fn recorded(client: &Client, program: &str, usage: &Value) {
    let path = format!("/api/v1/programs/{program}/steps");
    let page = client.get(&path).await.ok();
    let step = &page["steps"][0];
    assert_eq!(step["prompt_tokens"], usage["prompt_tokens"], "{step}");
    assert_eq!(step["output_tokens"], usage["completion_tokens"], "{step}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_generates_the_same_through_the_daemon() {
    let fixture = gateway().await;
    let ids = fresh(120);
    let request = generation(&ids, 24);
    let [first, _] = pair();
    let own = client_of(&first).post(GENERATE, &request).await.ok();
    let headers = [
        ("content-type", "application/json"),
        ("x-smg-routing-key", "trajectory"),
    ];
    let body = request.to_string();
    let client = &fixture.client;
    let whole = client.send(Method::POST, GENERATE, &headers, body).await;
    let whole = whole.ok();
    same_generation(&whole, &own);
    let (meta, own_meta) = (&whole["meta_info"], &own["meta_info"]);
    assert_eq!(names(meta), names(own_meta), "nothing is lost or added");
    assert_eq!(meta["prompt_tokens"], 120);
    assert_eq!(meta["completion_tokens"], 24);
    assert_eq!(
        meta["finish_reason"],
        json!({"type": "length", "length": 24})
    );
    assert!(meta["cached_tokens"].is_u64(), "{meta}");

    let mut pieces = request;
    pieces["stream"] = json!(true);
    let pieces = client.stream(GENERATE, &pieces).await.finish().await;
    assert!(pieces.is_done() && !pieces.broken);
    same_generation(pieces.objects().last().expect("events"), &own);
    fixture.finish().await;
}

fn same_generation(answer: &Value, own: &Value) {
    assert_eq!(output(own).len(), 24, "{own}");
    assert_eq!(output(answer), output(own));
    assert_eq!(answer["text"], own["text"]);
    let (meta, own) = (&answer["meta_info"], &own["meta_info"]);
    for field in [
        "weight_version",
        "finish_reason",
        "prompt_tokens",
        "completion_tokens",
    ] {
        assert!(!own[field].is_null(), "{field}: {own}");
        assert_eq!(meta[field], own[field], "{field}");
    }
    let (mine, theirs) = (logprobs(meta), logprobs(own));
    assert_eq!(mine.len(), theirs.len());
    for (mine, theirs) in mine.iter().zip(&theirs) {
        assert_eq!(mine.1, theirs.1);
        assert!(
            (mine.0 - theirs.0).abs() < LOGPROB_OFF_MAX,
            "{mine:?} {theirs:?}"
        );
    }
    assert!(
        theirs.iter().all(|(logprob, _)| *logprob < 0.0),
        "{theirs:?}"
    );
    let tokens: Vec<_> = theirs.iter().map(|(_, id)| *id).collect();
    assert_eq!(tokens, output(answer));
}

/// The log probability and the id of each token.
fn logprobs(meta: &Value) -> Vec<(f64, u32)> {
    let rows = meta["output_token_logprobs"].as_array().expect("a list");
    let row = |row: &Value| Some((row[0].as_f64()?, row[1].as_u64()? as u32));
    rows.iter().map(|each| row(each).expect("a pair")).collect()
}

fn names(meta: &Value) -> BTreeSet<&String> {
    meta.as_object().expect("an object").keys().collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_answers_an_abort_with_what_it_has() {
    let fixture = gateway().await;
    let ids = fresh(50);
    let mut request = generation(&ids, ENDLESS);
    request["rid"] = json!(format!("rollout-{}", std::process::id()));
    let abort = json!({"rid": request["rid"]});
    let client = fixture.client.clone();
    let asked = tokio::spawn(async move { client.post(GENERATE, &request).await.ok() });
    until_running(1).await;
    let aborted = fixture.client.post("/abort_request", &abort).await.ok();
    assert_eq!(aborted["aborted_here"], 1, "{aborted}");
    assert_eq!(aborted["engines_told"], 2, "{aborted}");
    let answer = asked.await.expect("an answer");
    let meta = &answer["meta_info"];
    assert_eq!(meta["finish_reason"]["type"], "abort", "{meta}");
    let tokens = output(&answer);
    assert_eq!(
        meta["completion_tokens"].as_u64(),
        Some(tokens.len() as u64)
    );
    assert!(tokens.len() < ENDLESS as usize);
    until_running(0).await;
    // A partial answer is the beginning of the whole one.
    let begun = tokens.len().min(24);
    let [first, _] = pair();
    let undisturbed = client_of(&first)
        .post(GENERATE, &generation(&ids, 24))
        .await;
    assert_eq!(tokens[..begun], output(&undisturbed.ok())[..begun]);
    fixture.finish().await;
}
