//! Characters of several tokens at a real llama.cpp server, which reports no log-probabilities of
//! tokens within them: the sample has all tokens, each with the score that the engine gives it.

use super::tokens::release;
use super::{batch, declare, get, submit};
use http::Method;
use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::{Client, Ended};
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture};
use treadle_tests::support::llama_server::{self, LlamaServer, tiny_model};

/// Twelve tokens: each emoji has four.
const EMOJI: &str = "root ::= \"\u{1f600}\" \"a\" \"\u{1f600}\" \"b\" \"c\" \"d\"";
/// All words of the model.
const WORDS: u64 = 512;
/// An engine computes the same score in another shape.
const SCORE_OFF_MAX: f64 = 1e-4;

fn numbers(value: &Value) -> Vec<i64> {
    let numbers = value.as_array().expect("a list").iter();
    numbers.map(|n| n.as_i64().expect("a number")).collect()
}

/// The engine's score of a token after others.
async fn score(engine: &Client, context: &[i64], token: i64) -> f64 {
    let body = json!({"prompt": context, "n_predict": 1, "n_probs": WORDS, "temperature": 0,
        "logit_bias": [["b", 1e9]]});
    let answer = engine.post("/completion", &body).await.ok();
    let listed = &answer["completion_probabilities"][0]["top_logprobs"];
    let mut listed = listed.as_array().expect("a list").iter();
    let found = listed
        .find(|entry| entry["id"] == token)
        .expect("it is listed");
    found["logprob"].as_f64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emoji_is_trained_token_by_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(python) = llama_server::python() else {
        return;
    };
    let model = tiny_model(&python, folder.path());
    let server = LlamaServer::start(&python, &model, 1, 8_192).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(EngineChoice::Auto),
            ..Endpoint::at(server.url())
        }];
    })
    .await;
    let client = &fixture.client;
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(client, settings).await;
    submit(client, &["a"]).await;
    let messages = json!([{"role": "user", "content": "kimu lopa"}]);
    let chat = json!({"messages": messages, "grammar": EMOJI, "stream": true, "max_tokens": 20});
    let text = json!({"prompt": "kimu lopa", "grammar": EMOJI, "max_tokens": 20});
    let ids = json!({"prompt": [300, 301], "grammar": EMOJI, "max_tokens": 20, "stream": true,
        "stop": ["cd"]});
    let mut shown = Vec::new();
    for (path, body) in [(CHAT, &chat), (COMPLETIONS, &text), (COMPLETIONS, &ids)] {
        let headers = [
            ("x-treadle-job", "math"),
            ("x-treadle-group", "a"),
            ("x-program-id", "p"),
        ];
        let body = body.to_string().into_bytes();
        let answer = client.send(Method::POST, path, &headers, body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        shown.push(answer.body);
    }
    let streamed = Ended {
        bytes: shown[2].to_vec(),
        broken: false,
    };
    assert!(streamed.is_done());
    let texts = streamed.objects().into_iter();
    let texts = texts.filter_map(|event| Some(event["choices"][0]["text"].as_str()?.to_owned()));
    assert_eq!(texts.collect::<String>(), "\u{1f600}a\u{1f600}b");
    release(client, "p").await;
    let (view, _) = batch(client, 1).await;
    assert_eq!(view["groups"][0]["members"][0]["turns"], 3, "{view}");
    let found = get(client, "/members/p/steps").await.ok();
    let steps = found["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 3, "{found}");
    for step in steps {
        let (prompt, output) = (numbers(&step["prompt"]), numbers(&step["output"]));
        assert!(output.len() >= 12, "{step}");
        let kept = step["logprobs"].as_array().expect("a list");
        for (at, token) in output.iter().enumerate() {
            let context = [&prompt[..], &output[..at]].concat();
            let expected = score(&server.client, &context, *token).await;
            let kept = kept[at].as_f64().expect("a number");
            assert!(
                (kept - expected).abs() < SCORE_OFF_MAX,
                "{at}: {kept} {expected}"
            );
        }
    }
    let workers = client.get("/api/v1/workers").await.ok();
    assert_eq!(
        workers["workers"][0]["capabilities"]["logprobs"], "raw",
        "{workers}"
    );
    fixture.finish().await;
}
