//! Requests for tokens at the engines' own APIs, and answers there.

use super::*;
use crate::Endpoint;
use serde_json::{Value, json};
use treadle_model::EngineKind;

fn ask(engine: EngineKind, body: &Value) -> TokenRequest {
    let endpoint = match engine {
        EngineKind::Sglang => Endpoint::SglangGenerate,
        _ => Endpoint::VllmGenerate,
    };
    let body = body.to_string();
    let request = TokenRequest::ask(endpoint, engine, body.as_bytes(), false);
    request.expect("it can be captured")
}

fn asked(request: &TokenRequest) -> Value {
    serde_json::from_slice(&request.body).expect("a request is JSON")
}

/// What the client gets of an answer.
fn shown(reader: &mut TokenReader, answer: &Value) -> Value {
    let part = reader.whole(answer.to_string().as_bytes());
    part.map_or_else(
        || answer.clone(),
        |part| serde_json::from_slice(&part).expect("JSON"),
    )
}

#[test]
fn own_apis_are_asked_in_their_own_way() {
    for (engine, body, expected) in [
        (
            EngineKind::Vllm,
            json!({"token_ids": [1, 2], "sampling_params": {"n": 2, "logprobs": null}}),
            json!({"token_ids": [1, 2], "sampling_params": {"n": 2, "logprobs": 0}}),
        ),
        (
            EngineKind::Vllm,
            json!({"token_ids": [1], "features": {}, "sampling_params": {"logprobs": 3}}),
            json!({"token_ids": [1], "features": {}, "sampling_params": {"logprobs": 3},
                   "return_token_ids": true}),
        ),
        (
            EngineKind::Sglang,
            json!({"input_ids": [1, 2], "return_logprob": false}),
            json!({"input_ids": [1, 2], "return_logprob": true}),
        ),
        (
            EngineKind::Sglang,
            json!({"text": ["a"], "stream": true}),
            json!({"text": ["a"], "stream": true, "return_logprob": true,
                   "return_prompt_token_ids": true}),
        ),
    ] {
        assert_eq!(asked(&ask(engine, &body)), expected);
    }
}

#[test]
fn answers_of_vllm_name_the_versions_of_their_tokens() {
    let mut answer = json!({"request_id": "r", "prompt_token_ids": null, "choices": [{
        "index": 0, "token_ids": [7, 8], "finish_reason": "stop",
        "logprobs": {"content": [{"token_id": 7, "logprob": -0.5, "rank": 1},
                                 {"token_id": 8, "logprob": -1.5, "rank": 1}]},
        "weight_versions": [{"version": "0.1", "start": 0, "end": 1},
                            {"version": 2, "start": 1, "end": 2}]}]});
    let mut reader = ask(EngineKind::Vllm, &json!({"token_ids": [1, 2]})).reader;
    let seen = shown(&mut reader, &answer);
    let tokens = reader.finish().expect("they can be read");
    assert_eq!(tokens.prompt, [1, 2], "its client sent them");
    let choice = &tokens.choices[&0];
    assert_eq!(
        (&*choice.ids, &*choice.logprobs),
        (&[7, 8][..], &[-0.5, -1.5][..])
    );
    let named = choice
        .versions
        .iter()
        .map(|span| (span.start, span.end, &*span.version));
    assert_eq!(named.collect::<Vec<_>>(), [(0, 1, "0.1"), (1, 2, "2")]);
    answer["choices"][0]["logprobs"] = Value::Null;
    assert_eq!(
        seen, answer,
        "ids are what this API answers; the scores were not asked for"
    );
}

/// A span that is missing says nothing of the others.
#[test]
fn versions_that_leave_tokens_out_are_none() {
    let answer = json!({"choices": [{"index": 0, "token_ids": [7, 8],
        "weight_versions": [{"version": "a", "start": 0, "end": 1}]}]});
    let mut reader = ask(EngineKind::Vllm, &json!({"token_ids": [1]})).reader;
    shown(&mut reader, &answer);
    let tokens = reader.finish().expect("they can be read");
    assert!(tokens.choices[&0].versions.is_empty());
}

fn generated(ids: &[i32], total: usize, end: &Value) -> Value {
    let scores: Vec<Value> = ids.iter().map(|id| json!([-0.25, id, null])).collect();
    json!({"text": "x".repeat(ids.len()), "output_ids": ids, "prompt_token_ids": [1, 2],
        "meta_info": {"id": "r", "finish_reason": end, "prompt_tokens": 2,
            "completion_tokens": total, "output_token_logprobs": scores,
            "input_token_logprobs": [], "output_token_logprobs_length": total,
            "weight_versions": [{"version": "v", "start": 0, "end": total}]}})
}

#[test]
fn answers_of_sglang_are_read_and_shown_as_the_client_asked() {
    let end = json!({"type": "stop"});
    let answer = generated(&[7, 8], 2, &end);
    let mut reader = ask(EngineKind::Sglang, &json!({"text": "a"})).reader;
    let seen = shown(&mut reader, &answer);
    let expected = json!({"text": "xx", "output_ids": [7, 8], "meta_info": {"id": "r",
        "finish_reason": end, "prompt_tokens": 2, "completion_tokens": 2,
        "weight_versions": [{"version": "v", "start": 0, "end": 2}]}});
    assert_eq!(seen, expected);
    let tokens = reader.finish().expect("they can be read");
    assert_eq!(
        (&*tokens.prompt, tokens.prompt_tokens),
        (&[1, 2][..], Some(2))
    );
    assert_eq!(tokens.output_tokens, Some(2));
    let choice = &tokens.choices[&0];
    assert_eq!((&*choice.ids, &*choice.text), (&[7, 8][..], "xx"));
    assert_eq!(choice.versions[0].version, "v");

    let both = [generated(&[7], 1, &end), generated(&[8, 9], 2, &end)];
    let several = json!({"input_ids": [1, 2], "sampling_params": {"n": 2}, "return_logprob": true,
        "return_prompt_token_ids": true});
    let mut reader = ask(EngineKind::Sglang, &several).reader;
    assert_eq!(
        shown(&mut reader, &json!(both)),
        json!(both),
        "it asked for all"
    );
    let tokens = reader.finish().expect("they can be read");
    assert_eq!(tokens.choices[&1].ids, [8, 9]);
    assert_eq!(tokens.output_tokens, Some(3));

    let mut odd = generated(&[7, 8], 2, &end);
    odd["output_ids"] = json!([7, 9]);
    let mut reader = ask(EngineKind::Sglang, &json!({"text": "a"})).reader;
    shown(&mut reader, &odd);
    assert!(reader.finish().is_err_and(|fault| fault.contains("differ")));
}

/// A server repeats all so far in each event, or with `--incremental-streaming-output` only what is
/// new.
#[test]
fn streams_of_sglang_are_read_whether_they_repeat_or_not() {
    let (open, end) = (Value::Null, json!({"type": "length", "length": 3}));
    let repeated = [generated(&[7], 1, &open), generated(&[7, 8, 9], 3, &end)];
    let fresh = [
        generated(&[7], 1, &open),
        generated(&[8], 2, &open),
        generated(&[9], 3, &end),
    ];
    for events in [&repeated[..], &fresh] {
        let body = json!({"input_ids": [1, 2], "stream": true});
        let mut reader = ask(EngineKind::Sglang, &body).reader;
        for event in events {
            let Shown::Part(part) = reader.event(event.to_string().as_bytes()) else {
                panic!("its scores were not asked for");
            };
            assert!(!String::from_utf8_lossy(&part).contains("logprobs"));
        }
        assert_eq!(reader.event(b"[DONE]"), Shown::All);
        let tokens = reader.finish().expect("they can be read");
        assert_eq!(tokens.choices[&0].ids, [7, 8, 9]);
        assert_eq!(tokens.choices[&0].logprobs, [-0.25; 3]);
        assert_eq!(tokens.output_tokens, Some(3));
    }
}

/// As llama.cpp answers if an emoji ends the text: only its last token is listed.
#[test]
fn tokens_within_a_character_have_no_score() {
    let request = TokenRequest::ask(
        Endpoint::Completions,
        EngineKind::Llamacpp,
        br#"{"prompt": "ab"}"#,
        false,
    );
    let mut reader = request.expect("it can be captured").reader;
    let answer = json!({"choices": [{"index": 0, "text": "\u{1f600}",
            "logprobs": {"content": [{"id": 225, "logprob": -6.5}]}}],
        "__verbose": {"prompt": "ab", "tokens": [175, 256, 249, 225]}});
    shown(&mut reader, &answer);
    let tokens = reader.finish().expect("they can be read");
    let choice = &tokens.choices[&0];
    assert_eq!(choice.ids, [175, 256, 249, 225]);
    assert!((choice.logprobs[3] + 6.5).abs() < f32::EPSILON);
    assert!(choice.logprobs[..3].iter().all(|p| p.is_nan()));
}
