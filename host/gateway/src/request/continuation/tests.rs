//! Continuations: the request for the rest, and the rest itself.

use super::super::counts::Counts;
use super::super::rest::Rewriter;
use super::*;
use treadle_wire::StreamUsage;

fn chat_event(text: &str) -> Value {
    json!({
        "id": "c-1", "created": 5, "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
    })
}

fn of(
    endpoint: Endpoint,
    engine: EngineKind,
    request: &Value,
    events: &[Value],
) -> Result<Continuation, Obstacle> {
    let seen = events.len() as u64;
    Continuation::of(
        endpoint,
        engine,
        request.to_string().as_bytes(),
        events,
        Some(seen),
    )
}

fn body(continuation: &Continuation) -> Value {
    serde_json::from_slice(&continuation.body).expect("JSON")
}

#[test]
fn a_chat_goes_on_with_a_message_that_has_begun() {
    let request = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9,
        "min_tokens": 1, "stream": true,
    });
    let events = [chat_event("Hel"), chat_event("lo")];
    let chat = Endpoint::ChatCompletions;
    let going_on = of(chat, EngineKind::Vllm, &request, &events).expect("it can");
    let mut expected = request.clone();
    expected["messages"] = json!([
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"},
    ]);
    expected["max_tokens"] = json!(7);
    expected["min_tokens"] = json!(0);
    let llama = of(chat, EngineKind::Llamacpp, &request, &events).expect("it can");
    assert_eq!(body(&llama), expected);
    expected["continue_final_message"] = json!(true);
    expected["add_generation_prompt"] = json!(false);
    assert_eq!(body(&going_on), expected);
}

#[test]
fn prompts_of_text_and_of_ids_are_made_longer() {
    let event = |text: &str, ids: &[u64]| json!({"choices": [{"text": text, "token_ids": ids}]});
    let events = [event("a", &[7]), event("b", &[8, 9])];
    let text = json!({"prompt": "xy", "max_tokens": 9});
    let going_on = of(Endpoint::Completions, EngineKind::Vllm, &text, &events).expect("it can");
    assert_eq!(body(&going_on), json!({"prompt": "xyab", "max_tokens": 6}));
    let ids = json!({"prompt": [1, 2]});
    let going_on = of(Endpoint::Completions, EngineKind::Vllm, &ids, &events).expect("it can");
    let expected = json!({"prompt": [1, 2, 7, 8, 9], "max_tokens": 13});
    assert_eq!(body(&going_on), expected, "vLLM's own bound is 16");
    let ids = json!({"token_ids": [1], "sampling_params": {"max_tokens": 5}});
    let going_on = of(Endpoint::VllmGenerate, EngineKind::Vllm, &ids, &events).expect("it can");
    let expected = json!({"token_ids": [1, 7, 8, 9], "sampling_params": {"max_tokens": 2}});
    assert_eq!(body(&going_on), expected);
}

#[test]
fn parts_that_would_be_lost_are_obstacles() {
    let chat = Endpoint::ChatCompletions;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (name, value) in [
        ("n", json!(2)),
        ("prompt_logprobs", json!(1)),
        ("presence_penalty", json!(0.5)),
        ("functions", json!([{}])),
        ("response_format", json!({"type": "json_object"})),
        ("guided_regex", json!("a+")),
        ("max_tokens", json!(1)),
    ] {
        let mut request = json!({"messages": messages});
        request[name] = value;
        let refused = of(chat, EngineKind::Vllm, &request, &[chat_event("a")]);
        assert!(refused.is_err(), "{name}");
    }
    let request = json!({"messages": messages, "n": 1, "logprobs": false, "tools": []});
    let mut ended = chat_event("a");
    ended["choices"][0]["finish_reason"] = json!("stop");
    let mut reasons = chat_event("");
    reasons["choices"][0]["delta"] = json!({"reasoning_content": "hm"});
    for event in [ended, reasons, chat_event("a ")] {
        assert!(of(chat, EngineKind::Vllm, &request, &[event]).is_err());
    }
    assert!(of(chat, EngineKind::Vllm, &request, &[chat_event("a")]).is_ok());
    let ids = json!({"prompt": [1, 2], "max_tokens": 9});
    let without_ids = [json!({"choices": [{"text": "a"}]})];
    assert!(of(Endpoint::Completions, EngineKind::Vllm, &ids, &without_ids).is_err());
    assert!(of(Endpoint::Messages, EngineKind::Vllm, &request, &[]).is_err());
}

#[test]
fn the_rest_reads_as_one_answer_and_its_usage_adds_up() {
    let request = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9});
    let events = [chat_event("Hel"), chat_event("lo")];
    let going_on = of(
        Endpoint::ChatCompletions,
        EngineKind::Vllm,
        &request,
        &events,
    );
    let mut rewriter = Rewriter::new(Some(going_on.expect("it can")), Counts::shown(), 1 << 20);
    let mut account = StreamUsage::new(Endpoint::ChatCompletions);
    let rest = concat!(
        r#"data: {"id":"c-2","created":6,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"c-2","created":6,"model":"m","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}]}"#,
        "\n\n",
        r#"data: {"id":"c-2","created":6,"model":"m","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":1,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":11}},"timings":{"cache_n":11,"prompt_n":1,"predicted_n":1}}"#,
        "\n\ndata: [DONE]\n\n",
    );
    let mut seen = Vec::new();
    // However the bytes are cut.
    for piece in rest.as_bytes().chunks(7) {
        seen.extend_from_slice(&rewriter.feed(piece, &mut account).expect("a stream"));
    }
    let seen = String::from_utf8(seen).expect("text");
    let payloads: Vec<&str> = seen
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .collect();
    assert_eq!(payloads.len(), 3, "{seen}");
    let last: Value = serde_json::from_str(payloads[0]).expect("JSON");
    let mut expected = chat_event("!");
    expected["choices"][0]["finish_reason"] = json!("stop");
    assert_eq!(last, expected);
    let usage: Value = serde_json::from_str(payloads[1]).expect("JSON");
    assert_eq!(
        usage["usage"],
        json!({
            "prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 10},
        })
    );
    assert_eq!(
        usage["timings"],
        json!({"cache_n": 9, "prompt_n": 1, "predicted_n": 3})
    );
    assert_eq!(payloads[2], "[DONE]");
    assert_eq!(account.output_tokens_reported(), Some(3));
}

#[test]
fn a_text_that_its_engine_does_not_count_is_not_interrupted() {
    let request = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9});
    let body = request.to_string();
    let of = |events: &[Value], counted| {
        let (endpoint, engine) = (Endpoint::ChatCompletions, EngineKind::Vllm);
        Continuation::of(endpoint, engine, body.as_bytes(), events, counted)
    };
    let events = [chat_event("Hello")];
    assert!(of(&events, None).is_err());
    let two_tokens = of(&events, Some(2)).expect("it can");
    assert_eq!(two_tokens.seen, 2, "one event, however many tokens");
    // Nothing has been sent of the third.
    assert_eq!(of(&[], Some(3)).expect("it can").seen, 0);
}

#[test]
fn events_that_repeat_all_go_on_repeating_it() {
    let event = |text: &str, ids: &[u64], id: &str| {
        json!({
            "text": text, "output_ids": ids,
            "meta_info": {
                "id": id, "finish_reason": null, "prompt_tokens": 2,
                "completion_tokens": ids.len(), "cached_tokens": 0,
            },
        })
    };
    let request = json!({"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 5}});
    let events = [event("a", &[7], "r"), event("ab", &[7, 8], "r")];
    let (endpoint, engine) = (Endpoint::SglangGenerate, EngineKind::Sglang);
    let going_on = of(endpoint, engine, &request, &events).expect("it can");
    let expected = json!({"input_ids": [1, 2, 7, 8], "sampling_params": {"max_new_tokens": 3}});
    assert_eq!(body(&going_on), expected);
    let mut fresh = event("c", &[9], "s");
    fresh["meta_info"]["prompt_tokens"] = json!(4);
    fresh["meta_info"]["cached_tokens"] = json!(4);
    let whole = event("abc", &[7, 8, 9], "r");
    assert_eq!(going_on.rewrite(fresh), Some(whole));
    let parts = [event("a", &[7], "r"), event("b", &[8], "r")];
    let mut partial = parts.clone();
    partial[1]["meta_info"]["completion_tokens"] = json!(2);
    assert!(of(endpoint, engine, &request, &partial).is_err());
}

#[test]
fn log_probabilities_are_those_of_all_parts() {
    let event = |text: &str, at: u64| {
        let logprobs = json!({
            "tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [{text: -0.5}],
            "text_offset": [at],
        });
        json!({"id": "c", "choices": [{"text": text, "logprobs": logprobs, "finish_reason": null}]})
    };
    let request = json!({"prompt": "x", "max_tokens": 9, "logprobs": 1});
    let events = [event("a", 0), event("\u{fc}b", 1)];
    let (endpoint, engine) = (Endpoint::Completions, EngineKind::Vllm);
    // Three events were counted, with an empty one that has no token.
    let body_of = request.to_string();
    let going_on = Continuation::of(endpoint, engine, body_of.as_bytes(), &events, Some(3));
    let going_on = going_on.expect("it can");
    let expected = json!({"prompt": "xa\u{fc}b", "max_tokens": 7, "logprobs": 1});
    assert_eq!(body(&going_on), expected);
    let rest = going_on.rewrite(event("c", 0));
    assert_eq!(rest, Some(event("c", 3)));
}

#[test]
fn a_prompt_of_text_is_gone_on_with_by_its_ids_where_they_are_given() {
    let mut first = json!({"choices": [{"text": "a", "token_ids": [7]}]});
    first["choices"][0]["prompt_token_ids"] = json!([1, 2]);
    let events = [first, json!({"choices": [{"text": "b", "token_ids": [8]}]})];
    let request = json!({"prompt": "xy", "max_tokens": 9, "return_token_ids": true});
    let going_on = of(Endpoint::Completions, EngineKind::Vllm, &request, &events);
    let expected = json!({"prompt": [1, 2, 7, 8], "max_tokens": 7, "return_token_ids": true});
    assert_eq!(body(&going_on.expect("it can")), expected);
    let mut stopping = request;
    stopping["stop"] = json!("end");
    let refused = of(Endpoint::Completions, EngineKind::Vllm, &stopping, &events);
    assert_eq!(
        refused,
        Err("stop"),
        "the engine holds back the text of ids that were given"
    );
}

#[test]
fn text_that_an_engine_holds_back_is_waited_for() {
    let events = [
        json!({"choices": [{"text": "a", "token_ids": [7]}]}),
        json!({"choices": [{"text": "", "token_ids": [8]}]}),
    ];
    let request = json!({"prompt": [1, 2], "max_tokens": 9, "return_token_ids": true});
    let held_back = of(Endpoint::Completions, EngineKind::Vllm, &request, &events);
    assert_eq!(held_back, Err(HELD_BACK));
    let event = |text: &str, ids: &[u64]| {
        let meta = json!({"completion_tokens": ids.len(), "finish_reason": null});
        json!({"text": text, "output_ids": ids, "meta_info": meta})
    };
    let request = json!({"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 9}});
    let sglang = |texts: [&str; 2]| {
        let events = [event(texts[0], &[7]), event(texts[1], &[7, 8])];
        let of = of(
            Endpoint::SglangGenerate,
            EngineKind::Sglang,
            &request,
            &events,
        );
        of.map(|_| ())
    };
    assert_eq!(sglang(["a", "ab"]), Ok(()));
    for texts in [["a", "a"], ["a", "a "], ["a", "a\u{4e2d}"]] {
        assert_eq!(sglang(texts), Err(HELD_BACK), "{texts:?}");
    }
}

#[test]
fn a_chat_with_tools_is_gone_on_with_until_a_call_may_have_begun() {
    let mut request = json!({
        "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}],
    });
    let chat = Endpoint::ChatCompletions;
    let of = |request: &Value, engine, text: &str| {
        let going_on = of(chat, engine, request, &[chat_event(text)]);
        going_on.map(|going_on| body(&going_on)["tools"].clone())
    };
    let tools = request["tools"].clone();
    assert_eq!(of(&request, EngineKind::Vllm, "Let me look"), Ok(tools));
    for text in ["I <tool", "{\"name", "as `x", "see [1"] {
        assert!(of(&request, EngineKind::Sglang, text).is_err(), "{text}");
    }
    assert!(of(&request, EngineKind::Llamacpp, "Let me look").is_err());
    request["tool_choice"] = json!("required");
    assert!(of(&request, EngineKind::Vllm, "Let me look").is_err());
}

#[test]
fn what_does_not_change_goes_on_as_it_came() {
    let tools = r#"[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2.50}}}]"#;
    let request = format!(
        r#"{{"tools": {tools}, "messages": [{{"role": "user", "content": "hi"}}], "max_tokens": 9, "stream": true}}"#
    );
    let (endpoint, engine) = (Endpoint::ChatCompletions, EngineKind::Vllm);
    let events = [chat_event("Hello")];
    let going_on = Continuation::of(endpoint, engine, request.as_bytes(), &events, Some(2));
    let body = going_on.expect("it can").body;
    let body = std::str::from_utf8(&body).expect("text");
    assert!(body.contains(&format!("\"tools\":{tools}")), "{body}");
    assert!(body.contains("\"max_tokens\":7"), "{body}");
}

#[test]
fn a_text_with_stops_is_not_interrupted() {
    let request = json!({"messages": [], "max_tokens": 9, "stop": ["\nObservation:"]});
    let chat = Endpoint::ChatCompletions;
    assert!(of(chat, EngineKind::Vllm, &request, &[chat_event("a")]).is_err());
    let held_back = [chat_event("a"), chat_event("")];
    let request = json!({"messages": [], "max_tokens": 9});
    let waits = of(chat, EngineKind::Vllm, &request, &held_back);
    assert_eq!(waits.expect_err("not now"), HELD_BACK);
}
