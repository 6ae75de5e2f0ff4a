//! Requests for tokens, and answers with them, of each kind of engine.

use super::*;
use crate::Endpoint;
use serde_json::{Value, json};
use treadle_model::EngineKind;

fn ask(endpoint: Endpoint, engine: EngineKind, body: &Value) -> Result<TokenRequest, NotCaptured> {
    let streams = body["stream"] == true;
    TokenRequest::ask(endpoint, engine, body.to_string().as_bytes(), streams)
}

fn chat(engine: EngineKind, body: &Value) -> TokenRequest {
    ask(Endpoint::ChatCompletions, engine, body).expect("it can be captured")
}

fn asked(request: &TokenRequest) -> Value {
    serde_json::from_slice(&request.body).expect("a request is JSON")
}

/// An answer that a later request continues by its tokens is needed whole.
#[test]
fn a_chat_can_be_asked_for_in_one_piece() {
    let stream = json!({"m": 1, "stream": true, "stream_options": {"include_usage": true}});
    let stream = stream.to_string();
    for engine in [EngineKind::Vllm, EngineKind::Sglang] {
        let request = TokenRequest::ask_whole(engine, stream.as_bytes(), true);
        let request = request.expect("it can be captured");
        let expected = json!({"m": 1, "stream": false, "logprobs": true, "return_token_ids": true});
        assert_eq!((asked(&request), request.is_played), (expected, true));
    }
    let request = TokenRequest::ask_whole(EngineKind::Vllm, b"{}", false);
    assert!(!request.expect("it can be captured").is_played);
    let other = TokenRequest::ask_whole(EngineKind::Openai, b"{}", false);
    assert_eq!(other.err(), Some(NotCaptured::Engine("openai")));
}

#[test]
fn each_kind_of_engine_is_asked_in_its_own_way() {
    let usage = json!({"include_usage": true});
    let whole = json!({"m": 1});
    let stream = json!({"m": 1, "stream": true});
    for (engine, body, expected) in [
        (
            EngineKind::Vllm,
            &whole,
            json!({"m": 1, "logprobs": true, "return_token_ids": true}),
        ),
        (
            EngineKind::Vllm,
            &stream,
            json!({"m": 1, "stream": true, "logprobs": true, "return_token_ids": true,
                   "stream_options": usage}),
        ),
        (
            EngineKind::Sglang,
            &stream,
            json!({"m": 1, "stream": false, "logprobs": true, "return_token_ids": true}),
        ),
        (
            EngineKind::Llamacpp,
            &whole,
            json!({"m": 1, "logprobs": true, "top_logprobs": 1, "verbose": true,
                   "return_tokens": true}),
        ),
        (
            EngineKind::Llamacpp,
            &json!({"logprobs": true, "top_logprobs": 5}),
            json!({"logprobs": true, "top_logprobs": 5, "verbose": true, "return_tokens": true}),
        ),
    ] {
        assert_eq!(asked(&chat(engine, body)), expected);
    }
    let stream = json!({"stream": true, "stream_options": usage, "logprobs": false});
    let played = chat(EngineKind::Llamacpp, &stream);
    let expected = json!({"stream": false, "logprobs": true, "top_logprobs": 1, "verbose": true,
                          "return_tokens": true});
    assert_eq!(asked(&played), expected);
    assert!(played.is_played);
    let completions = ask(Endpoint::Completions, EngineKind::Vllm, &whole);
    let expected = json!({"m": 1, "logprobs": 0, "return_token_ids": true});
    assert_eq!(asked(&completions.expect("it can be captured")), expected);
    let stream = json!({"logprobs": 0, "stream": true});
    let completions = ask(Endpoint::Completions, EngineKind::Llamacpp, &stream);
    let completions = completions.expect("it can be captured");
    let expected = json!({"logprobs": 1, "stream": false, "verbose": true, "return_tokens": true});
    assert_eq!(asked(&completions), expected);
    assert!(completions.is_played);
}

#[test]
fn what_hides_or_changes_tokens_is_named() {
    let chat = Endpoint::ChatCompletions;
    for (endpoint, engine, body, cause) in [
        (
            Endpoint::Messages,
            EngineKind::Vllm,
            json!({}),
            "/v1/messages",
        ),
        (
            Endpoint::Completions,
            EngineKind::Vllm,
            json!({"prompt": [[1, 2], [3]]}),
            "several prompts",
        ),
        (
            Endpoint::SglangGenerate,
            EngineKind::Vllm,
            json!({}),
            "vllm have no /generate",
        ),
        (
            Endpoint::SglangGenerate,
            EngineKind::Sglang,
            json!({"text": ["a", "b"]}),
            "several prompts",
        ),
        (
            Endpoint::SglangGenerate,
            EngineKind::Sglang,
            json!({"input_embeds": [[0.5]]}),
            "input_embeds",
        ),
        (
            Endpoint::VllmGenerate,
            EngineKind::Vllm,
            json!({"sampling_params": []}),
            "JSON object",
        ),
        (chat, EngineKind::Openai, json!({}), "openai"),
        (
            chat,
            EngineKind::Vllm,
            json!({"include_reasoning": false}),
            "include_reasoning",
        ),
        (chat, EngineKind::Vllm, json!({"echo": true}), "echo"),
        (chat, EngineKind::Vllm, json!({"best_of": 2}), "best_of"),
        (chat, EngineKind::Vllm, json!([]), "JSON object"),
    ] {
        let error = ask(endpoint, engine, &body).expect_err("it can't be captured");
        assert!(error.to_string().contains(cause), "{error}");
    }
}

fn tokens(prompt: &[i32], ids: &[i32], logprobs: &[f32], text: &str) -> AnswerTokens {
    let choice = ChoiceTokens {
        text: text.to_owned(),
        ids: ids.to_vec(),
        logprobs: logprobs.to_vec(),
        versions: Vec::new(),
    };
    AnswerTokens {
        prompt: prompt.to_vec(),
        prompt_text: None,
        choices: [(0, choice)].into(),
        prompt_tokens: Some(prompt.len() as u64),
        output_tokens: Some(ids.len() as u64),
    }
}

#[test]
fn whole_answers_are_read_and_shown_as_the_client_asked() {
    let usage = r#""usage":{"prompt_tokens":2,"completion_tokens":1}"#;
    let vllm = format!(
        r#"{{"id":"x", "prompt_token_ids" : [1,2],"choices":[{{"index":0,"message":{{"content":"a"}},"logprobs":{{"content":[{{"token":"a","logprob":-0.5,"top_logprobs":[]}}]}},"token_ids":[7]}}],{usage}}}"#
    );
    let shown = format!(
        r#"{{"id":"x", "prompt_token_ids" : null,"choices":[{{"index":0,"message":{{"content":"a"}},"logprobs":null,"token_ids":null}}],{usage}}}"#
    );
    let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
    let part = reader.whole(vllm.as_bytes()).expect("ids are hidden");
    assert_eq!(String::from_utf8_lossy(&part), shown);
    assert_eq!(reader.finish(), Ok(tokens(&[1, 2], &[7], &[-0.5], "a")));
    let both = json!({"logprobs": true, "return_token_ids": true});
    let mut reader = chat(EngineKind::Vllm, &both).reader;
    assert_eq!(reader.whole(vllm.as_bytes()), None, "it asked for all");

    let sglang = format!(
        r#"{{"choices":[{{"index":0,"prompt_token_ids":[1,2],"response_token_ids":[7],"logprobs":{{"content":[{{"logprob":-0.5}}]}}}}],{usage}}}"#
    );
    let shown = format!(r#"{{"choices":[{{"index":0,"logprobs":null}}],{usage}}}"#);
    let mut reader = chat(EngineKind::Sglang, &json!({})).reader;
    let part = reader.whole(sglang.as_bytes()).expect("ids are hidden");
    assert_eq!(String::from_utf8_lossy(&part), shown);
    assert_eq!(reader.finish(), Ok(tokens(&[1, 2], &[7], &[-0.5], "")));

    let llama = format!(
        r#"{{"choices":[{{"index":0,"logprobs":{{"content":[{{"id":7,"logprob":-0.5}}]}}}}],{usage},"__verbose":{{"prompt":"ab","tokens":[7]}}}}"#
    );
    let mut reader = chat(EngineKind::Llamacpp, &json!({})).reader;
    let part = reader.whole(llama.as_bytes()).expect("ids are hidden");
    let shown = format!(r#"{{"choices":[{{"index":0}}],{usage}}}"#);
    assert_eq!(String::from_utf8_lossy(&part), shown);
    let mut expected = tokens(&[], &[7], &[-0.5], "");
    (expected.prompt_tokens, expected.prompt_text) = (Some(2), Some("ab".to_owned()));
    assert_eq!(reader.finish(), Ok(expected));
}

/// The client's part of a stream.
fn streamed(reader: &mut TokenReader, events: &[Value]) -> Vec<Value> {
    let shown = events.iter().filter_map(|event| {
        let event = event.to_string();
        match reader.event(event.as_bytes()) {
            Shown::All => serde_json::from_str(&event).ok(),
            Shown::Part(part) => serde_json::from_slice(&part).ok(),
            Shown::Nothing => None,
        }
    });
    shown.collect()
}

#[test]
fn streams_are_read_piece_by_piece() {
    let score = |p: f32| json!({"content": [{"logprob": p}]});
    let delta = json!({"content": "a"});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 2}});
    let vllm = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "prompt_token_ids": [1, 2]}),
        json!({"choices": [{"index": 0, "delta": delta, "token_ids": [7], "logprobs": score(-0.5)}]}),
        json!({"choices": [{"index": 0, "delta": {}, "token_ids": [8], "logprobs": score(-0.25)}]}),
        usage,
    ];
    let body = json!({"stream": true});
    let mut reader = chat(EngineKind::Vllm, &body).reader;
    let shown = streamed(&mut reader, &vllm);
    assert_eq!(
        shown.len(),
        2,
        "neither usage nor a token without text was asked for"
    );
    let expected =
        json!({"choices": [{"index": 0, "delta": delta, "token_ids": null, "logprobs": null}]});
    assert_eq!(shown[1], expected);
    let expected = tokens(&[1, 2], &[7, 8], &[-0.5, -0.25], "a");
    assert_eq!(reader.finish(), Ok(expected));
}

#[test]
fn what_is_wrong_with_tokens_is_told() {
    for (answer, cause) in [
        (json!({"prompt_token_ids": ["a"]}), "prompt"),
        (json!({"choices": [{"token_ids": [1.5]}]}), "output"),
        (
            json!({"choices": [{"logprobs": {"content": [{"logprob": "x"}]}}]}),
            "log-prob",
        ),
        (json!({"choices": 1}), "no chat completion"),
        (
            json!({"choices": [{"index": 0, "prompt_token_ids": [1]}, {"index": 1, "prompt_token_ids": [2]}]}),
            "different prompts",
        ),
    ] {
        let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
        reader.whole(answer.to_string().as_bytes());
        let fault = reader.finish().expect_err(cause);
        assert!(fault.contains(cause), "{fault}");
    }
    let none =
        json!({"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": null}]}}]});
    let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
    reader.whole(none.to_string().as_bytes());
    let read = reader.finish().expect("it can be read");
    assert_eq!(
        read.choices[&0].logprobs,
        [f32::NEG_INFINITY],
        "a check refuses it later"
    );
}

#[test]
fn lists_of_ids_are_read_as_they_are_written() {
    for (list, expected) in [
        ("[]", Some(vec![])),
        ("[ ]", Some(vec![])),
        ("[0, 12 ,2147483647]", Some(vec![0, 12, i32::MAX])),
        ("[2147483648]", None),
        ("[-1]", None),
        ("[1.0]", None),
        ("[1,[2]]", None),
        ("{}", None),
    ] {
        let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
        reader.whole(format!(r#"{{"prompt_token_ids":{list}}}"#).as_bytes());
        let read = reader.finish().ok().map(|tokens| tokens.prompt);
        assert_eq!(read, expected, "{list}");
    }
}

/// What can't be read is no reason to show what was not asked for.
#[test]
fn ids_are_hidden_from_odd_answers_too() {
    for odd in [r#""usage":{"prompt_tokens":-1}"#, r#""usage":7"#] {
        let body = format!(r#"{{"prompt_token_ids":[1,2],"choices":null,{odd}}}"#);
        let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
        let shown = reader.whole(body.as_bytes()).expect("ids are hidden");
        assert!(!String::from_utf8_lossy(&shown).contains("[1,2]"), "{odd}");
    }
    let choice = r#"{"choices":[{"index":-1,"message":"x","token_ids":[7]}]}"#;
    let mut reader = chat(EngineKind::Vllm, &json!({})).reader;
    let shown = reader.whole(choice.as_bytes()).expect("ids are hidden");
    assert!(!String::from_utf8_lossy(&shown).contains("[7]"));
    assert!(reader.finish().is_err());
}
