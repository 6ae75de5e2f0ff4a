//! Chats as answers.

use super::*;
use crate::chat::ChatTranslator;
use proptest::prelude::*;
use treadle_wire::sse::SseScanner;

fn builder(body: &Value) -> Box<MessageBuilder> {
    Box::new(MessageBuilder::new(&request(body), "x".into()))
}

fn asked() -> Value {
    let mut body = with(json!([{"role": "user", "content": "hi"}]));
    body["stream"] = true.into();
    body["stop_sequences"] = json!(["END"]);
    body
}

/// The events for these events of an engine, checked for their names.
fn events_of(chunks: &[String]) -> Vec<Value> {
    let mut builder = builder(&asked());
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend(builder.take(chunk.as_bytes()));
    }
    out.extend(builder.finish());
    assert_eq!(builder.bytes(), 0);
    let (mut scanner, mut events) = (SseScanner::default(), Vec::<Value>::new());
    scanner
        .feed(&out, &mut |event| {
            events.push(serde_json::from_slice(event).expect("JSON"));
        })
        .expect("events");
    let text = String::from_utf8(out).expect("text");
    let names = text.lines().filter_map(|line| line.strip_prefix("event: "));
    assert_eq!(names.collect::<Vec<_>>(), kinds(&events), "{text}");
    events
}

fn events(chunks: &[Value]) -> Vec<Value> {
    let chunks: Vec<String> = chunks.iter().map(Value::to_string).collect();
    events_of(&chunks)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().filter_map(|event| event["type"].as_str());
    kinds.collect()
}

#[expect(clippy::needless_pass_by_value, reason = "made for the call")]
fn delta(delta: Value) -> Value {
    json!({"model": "served", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn call(index: usize, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    delta(json!({"tool_calls": [{"index": index, "id": id, "function": function}]}))
}

fn last(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn usage() -> Value {
    json!({"choices": [], "usage": {
        "prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 8},
    }})
}

fn used() -> Value {
    json!({"input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8,
        "output_tokens": 3})
}

/// The message that a client assembles from events.
fn assembled(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut input = String::new();
    for event in &events[1..] {
        let at = event["index"].as_u64().unwrap_or(0) as usize;
        let content = message["content"].as_array_mut().expect("blocks");
        match event["type"].as_str().expect("a type") {
            "content_block_start" => {
                assert_eq!(at, content.len(), "blocks follow each other");
                content.push(event["content_block"].clone());
                input.clear();
            }
            "content_block_delta" => {
                assert_eq!(at + 1, content.len(), "it is open");
                let delta = event["delta"].as_object().expect("a delta");
                for (name, more) in delta.iter().filter(|(name, _)| *name != "type") {
                    let more = more.as_str().expect("text");
                    if name == "partial_json" {
                        input.push_str(more);
                    } else {
                        let so_far = content[at][name].as_str().unwrap_or_default();
                        content[at][name] = [so_far, more].concat().into();
                    }
                }
            }
            "content_block_stop" if content[at]["type"] == "tool_use" => {
                content[at]["input"] = serde_json::from_str(&input).unwrap_or_else(|_| json!({}));
            }
            "message_delta" => {
                message["usage"] = event["usage"].clone();
                for (name, value) in event["delta"].as_object().expect("fields") {
                    message[name] = value.clone();
                }
            }
            _ => {}
        }
    }
    message
}

#[test]
fn an_answer_is_streamed_in_the_order_of_the_api() {
    let events = events(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "h"})),
        delta(json!({"reasoning": "m"})),
        delta(json!({"content": "so "})),
        delta(json!({"content": "\"far\""})),
        call(0, Some("c0"), Some("f"), ""),
        call(0, None, None, r#"{"a":"#),
        call(0, None, None, "1}"),
        call(1, None, Some("g"), "{}"),
        call(0, None, None, ""),
        last("tool_calls"),
        usage(),
    ]);
    let [start, add, stop] = ["start", "delta", "stop"].map(|at| format!("content_block_{at}"));
    let mut expected = vec!["message_start"];
    for adds in [3, 2, 2, 1] {
        expected.push(&start);
        expected.extend(vec![add.as_str(); adds]);
        expected.push(&stop);
    }
    expected.extend(["message_delta", "message_stop"]);
    assert_eq!(kinds(&events), expected);
    let begun = json!({"id": "msg_x", "type": "message", "role": "assistant", "model": "served",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": {
            "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 0}});
    assert_eq!(events[0]["message"], begun);
    assert_eq!(
        events[4]["delta"],
        json!({"type": "signature_delta", "signature": "unsigned"})
    );
    assert_eq!(
        events[12]["delta"],
        json!({"type": "input_json_delta", "partial_json": "1}"})
    );
    assert_eq!(events[18], json!({"type": "message_stop"}));
    let message = assembled(&events);
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
        {"type": "text", "text": "so \"far\""},
        {"type": "tool_use", "id": "c0", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_x_1", "name": "g", "input": {}},
    ]);
    assert_eq!(message["content"], content);
    assert_eq!(
        (&message["stop_reason"], &message["usage"]),
        (&json!("tool_use"), &used())
    );
}

#[test]
fn the_reason_for_the_end_is_named() {
    let ended = |reason: Value, fields: Value| {
        let mut choice = json!({"index": 0, "delta": {"content": "so"}, "finish_reason": reason});
        choice["message"] = choice["delta"].clone();
        for (name, value) in fields.as_object().expect("fields") {
            choice[name] = value.clone();
            choice["message"][name] = value.clone();
            choice["delta"][name] = value.clone();
        }
        json!({"model": "served", "choices": [choice], "usage": usage()["usage"]})
    };
    let called = json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]);
    for (chat, reason, sequence) in [
        (ended(json!("stop"), json!({})), "end_turn", None),
        (
            ended(json!("stop"), json!({"stop_reason": "END"})),
            "stop_sequence",
            Some("END"),
        ),
        (
            ended(json!("stop"), json!({"matched_stop": "END"})),
            "stop_sequence",
            Some("END"),
        ),
        // An engine's own sequence, and a token.
        (
            ended(json!("stop"), json!({"matched_stop": "<eos>"})),
            "end_turn",
            None,
        ),
        (
            ended(json!("stop"), json!({"stop_reason": 151_645})),
            "end_turn",
            None,
        ),
        (
            ended(json!("stop"), json!({"stop_reason": null})),
            "end_turn",
            None,
        ),
        (ended(json!("length"), json!({})), "max_tokens", None),
        (ended(json!("abort"), json!({})), "max_tokens", None),
        (ended(json!("content_filter"), json!({})), "refusal", None),
        (
            ended(json!("tool_calls"), json!({"tool_calls": called})),
            "tool_use",
            None,
        ),
        (
            ended(json!("stop"), json!({"tool_calls": called})),
            "tool_use",
            None,
        ),
        (
            ended(json!("length"), json!({"tool_calls": called})),
            "max_tokens",
            None,
        ),
    ] {
        let streamed = assembled(&events(std::slice::from_ref(&chat)));
        assert_eq!(streamed["stop_reason"], reason, "{chat}");
        assert_eq!(streamed["stop_sequence"], json!(sequence), "{chat}");
        let whole = builder(&asked()).whole(chat.to_string().as_bytes());
        let whole: Value = serde_json::from_slice(&whole.expect("an answer")).expect("JSON");
        assert_eq!(whole, streamed, "{chat}");
    }
    let done = events_of(&[delta(json!({"content": "so"})).to_string(), "[DONE]".into()]);
    assert_eq!(assembled(&done)["stop_reason"], "end_turn");
}

#[test]
fn a_stream_that_breaks_ends_with_an_error() {
    let said = delta(json!({"content": "so"})).to_string();
    let gone = |code: Value, kind: &str| {
        json!({"error": {"message": "it is gone", "type": kind, "code": code}}).to_string()
    };
    let broken = "the engine ended its stream in the middle";
    let late = [
        call(0, Some("a"), Some("f"), "{").to_string(),
        call(1, Some("b"), Some("f"), "{").to_string(),
        call(0, None, None, "}").to_string(),
    ];
    for (chunks, kind, message) in [
        (vec![], "api_error", broken),
        (vec![said.clone()], "api_error", broken),
        (
            vec![
                said.clone(),
                gone(json!("engine_stream_broken"), "engine_error"),
                said.clone(),
            ],
            "api_error",
            "it is gone",
        ),
        (
            vec![gone(json!(503), "ServiceUnavailable")],
            "overloaded_error",
            "it is gone",
        ),
        (
            vec![gone(json!("queue_full"), "overloaded_error")],
            "overloaded_error",
            "it is gone",
        ),
        (
            vec![said.clone(), r#"{"error":"plain"}"#.into()],
            "api_error",
            "plain",
        ),
        (
            vec!["nope".into()],
            "api_error",
            "the engine's answer is no chat",
        ),
        (
            late.to_vec(),
            "api_error",
            "the engine continued a tool call behind the next one",
        ),
    ] {
        let events = events_of(&chunks);
        let end = events.last().expect("an event");
        assert_eq!(
            (&end["type"], &end["error"]["type"]),
            (&json!("error"), &json!(kind))
        );
        let told = end["error"]["message"].as_str().expect("a message");
        assert!(told.starts_with(message), "{told}");
        let errors = kinds(&events).into_iter().filter(|kind| *kind == "error");
        assert_eq!(errors.count(), 1, "{chunks:?}");
        assert!(!kinds(&events).contains(&"message_stop"), "{chunks:?}");
    }
}

#[test]
fn a_whole_answer_keeps_its_arguments_as_they_are_written() {
    let chat = |arguments: &str| {
        let function = json!({"name": "f", "arguments": arguments});
        json!({"model": "served", "choices": [{"index": 0, "finish_reason": "length",
            "message": {"content": null, "tool_calls": [{"id": "c", "function": function}]}}]})
    };
    for (arguments, input) in [
        (r#"{"z": 1.0, "a":"\u00e9"}"#, r#"{"z": 1.0, "a":"\u00e9"}"#),
        ("", "{}"),
        ("[1]", "{}"),
        (r#"{"cut": "#, "{}"),
        (r#"{"a":1}},"stop_reason":{}"#, "{}"),
    ] {
        let whole = builder(&asked()).whole(chat(arguments).to_string().as_bytes());
        let whole = String::from_utf8(whole.expect("an answer")).expect("text");
        let call = format!(r#"{{"type":"tool_use","id":"c","name":"f","input":{input}}}"#);
        assert!(whole.contains(&format!("\"content\":[{call}]")), "{whole}");
    }
    for wrong in [
        "{}",
        "nope",
        r#"{"choices":[]}"#,
        r#"{"error":{"message":"m"}}"#,
        r#"{"error":{"message":"m"},"choices":[{"index":0}]}"#,
    ] {
        assert_eq!(builder(&asked()).whole(wrong.as_bytes()), None, "{wrong}");
    }
}

/// What an engine generates, in pieces.
fn any_pieces() -> impl Strategy<Value = Vec<Value>> {
    let text = ".{1,4}".prop_map(|text| delta(json!({"content": text})));
    let thinking = ".{1,4}".prop_map(|text| delta(json!({"reasoning_content": text})));
    let called = ".{0,4}".prop_map(|text| json!({"b": text, "a": 1}).to_string());
    let called = called.prop_map(|arguments| call(0, Some("c"), Some("f"), &arguments));
    let piece = prop_oneof![text, thinking, called];
    prop::collection::vec(piece, 0..8).prop_map(|mut pieces| {
        for (at, piece) in pieces.iter_mut().enumerate() {
            if let Some(index) = piece.pointer_mut("/choices/0/delta/tool_calls/0/index") {
                *index = at.into();
            }
        }
        pieces
    })
}

proptest! {
    /// The client sends back what the engine has generated.
    #[test]
    fn an_answer_that_is_sent_back_is_the_engines_message(pieces in any_pieces()) {
        let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for piece in &pieces {
            let delta = &piece["choices"][0]["delta"];
            content.push_str(delta["content"].as_str().unwrap_or_default());
            reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let function = call["function"].clone();
                calls.push(json!({"id": call["id"], "type": "function", "function": function}));
            }
        }
        let mut chunks = pieces;
        chunks.extend([last("stop"), usage()]);
        let message = assembled(&events(&chunks));
        let back = json!({"role": "assistant", "content": message["content"]});
        let back = chat(&with(json!([back])))["messages"][0].take();
        let mut expected = json!({"role": "assistant", "content": content});
        if !reasoning.is_empty() {
            expected["reasoning"] = json!(reasoning);
            expected["reasoning_content"] = json!(reasoning);
        }
        if !calls.is_empty() {
            expected["tool_calls"] = calls.into();
            if content.is_empty() {
                expected["content"] = Value::Null;
            }
        }
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn no_answer_makes_it_panic(pieces in prop::collection::vec(
        r#"(\{|\}|\[|\]|,|:|1|null|"(choices|delta|message|content|tool_calls|index|error|usage)"){0,20}"#, 0..4,
    )) {
        let mut builder = builder(&asked());
        for piece in &pieces {
            builder.take(piece.as_bytes());
            builder.take(format!(r#"{{"choices":[{{"delta":{{{piece}}}}}]}}"#).as_bytes());
        }
        builder.finish();
    }
}
