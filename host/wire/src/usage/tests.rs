//! Replies as the engines send them.

use super::*;
use Endpoint::{ChatCompletions, Completions, Messages, Responses, SglangGenerate, VllmGenerate};
use proptest::prelude::*;
use treadle_model::TOKENS_MAX;

/// Prompt, output, cached.
type Counts = (Option<u64>, Option<u64>, Option<u64>);

fn counts(usage: StepUsage) -> Counts {
    (
        usage.prompt_tokens,
        usage.output_tokens,
        usage.cached_tokens,
    )
}

fn body(endpoint: Endpoint, body: &str) -> (Counts, Option<Finish>) {
    let usage = usage_of_body(endpoint, body.as_bytes()).unwrap();
    (counts(usage), usage.finish)
}

fn stream(endpoint: Endpoint, events: &[&str]) -> StreamUsage {
    let mut stream = StreamUsage::new(endpoint);
    for event in events {
        stream.observe(event.as_bytes());
    }
    stream
}

#[test]
fn whole_replies_are_read() {
    let openai = r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"},
        {"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":4,
        "total_tokens":14,"prompt_tokens_details":{"cached_tokens":8}}}"#;
    let expected = ((Some(10), Some(4), Some(8)), Some(Finish::Length));
    assert_eq!(body(ChatCompletions, openai), expected);

    let no_details = r#"{"choices":[{"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":10,"completion_tokens":4.0,"prompt_tokens_details":null}}"#;
    let expected = ((Some(10), Some(4), None), Some(Finish::ToolCalls));
    assert_eq!(body(ChatCompletions, no_details), expected);

    let llama = r#"{"choices":[{"finish_reason":"stop"}],
        "timings":{"cache_n":6,"prompt_n":4,"predicted_n":3,"prompt_ms":1.5}}"#;
    let expected = ((Some(10), Some(3), Some(6)), Some(Finish::Stop));
    assert_eq!(body(Completions, llama), expected);

    let anthropic = r#"{"type":"message","content":[{"type":"text","text":"hi"}],
        "stop_reason":"max_tokens","usage":{"input_tokens":3,"cache_read_input_tokens":7,
        "cache_creation_input_tokens":null,"output_tokens":5}}"#;
    let expected = ((Some(10), Some(5), Some(7)), Some(Finish::Length));
    assert_eq!(body(Messages, anthropic), expected);
}

#[test]
fn engine_native_replies_are_read() {
    let sglang = r#"{"text":"hi","output_ids":[1,2],"meta_info":{"id":"x","prompt_tokens":10,
        "completion_tokens":2,"cached_tokens":8,"finish_reason":{"type":"abort","message":"m"}}}"#;
    let expected = ((Some(10), Some(2), Some(8)), Some(Finish::Abort));
    assert_eq!(body(SglangGenerate, sglang), expected);

    let batch = format!("[{sglang},{sglang}]");
    let expected = ((Some(20), Some(4), Some(16)), Some(Finish::Abort));
    assert_eq!(body(SglangGenerate, &batch), expected);

    let metas =
        r#"{"meta_info":[{"completion_tokens":2,"finish_reason":null},{"completion_tokens":3}]}"#;
    assert_eq!(body(SglangGenerate, metas), ((None, Some(5), None), None));

    let vllm = r#"{"choices":[{"token_ids":[1,2,3],"finish_reason":"stop"},{"token_ids":[4]}]}"#;
    assert_eq!(
        body(VllmGenerate, vllm),
        ((None, Some(4), None), Some(Finish::Stop))
    );
}

#[test]
fn an_empty_reply_gives_nothing() {
    let replies = [
        "",
        "{}",
        "[]",
        "[1]",
        "nope",
        r#"{"usage":null,"choices":[]}"#,
        r#"{"error":{"message":"m"}}"#,
        r#"{"usage":[1],"timings":"x","choices":{"finish_reason":5},"meta_info":7}"#,
        r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"4"}}"#,
        r#"{"choices":[{"message":{"content":"hi"},"text":"hi"}]}"#,
    ];
    for reply in replies {
        assert_eq!(
            usage_of_body(ChatCompletions, reply.as_bytes()),
            None,
            "{reply}"
        );
    }
    assert_eq!(
        usage_of_body(ChatCompletions, b"{\"a\":\"\xff\", \"usage\":"),
        None
    );
    let timings = |count: u64| format!(r#"{{"timings":{{"cache_n":{count},"prompt_n":{count}}}}}"#);
    for absurd in [TOKENS_MAX + 1, u64::MAX] {
        let told = usage_of_body(Completions, timings(absurd).as_bytes());
        assert_eq!(told, None, "{absurd}");
        let usage = format!(r#"{{"usage":{{"prompt_tokens":{absurd},"completion_tokens":7}}}}"#);
        let told = usage_of_body(ChatCompletions, usage.as_bytes()).unwrap();
        assert_eq!((told.prompt_tokens, told.output_tokens), (None, Some(7)));
    }
    let most = body(Completions, &timings(TOKENS_MAX));
    assert_eq!(most.0.0, Some(TOKENS_MAX));
}

#[test]
fn an_openai_stream_is_followed() {
    let mut seen = stream(
        ChatCompletions,
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a \"usage\": {} b"},"finish_reason":null}]}"#,
            r#"{"choices": [{"delta": {"reasoning_content": "hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[ ],"content":null}}]}"#,
            "[DONE]",
            "not json \"at all",
        ],
    );
    assert_eq!(seen.output_tokens_seen(), 3);
    let expected = StepUsage {
        output_tokens: Some(3),
        ..StepUsage::default()
    };
    assert_eq!(seen.usage(), expected);
    seen.observe(br#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#);
    seen.observe(br#"{"choices":[],"usage": {"prompt_tokens":9,"completion_tokens":5}}"#);
    assert_eq!(counts(seen.usage()), (Some(9), Some(5), None));
    assert_eq!(seen.usage().finish, Some(Finish::ToolCalls));
    assert_eq!((seen.output_tokens_seen(), seen.error()), (5, None));
}

#[test]
fn other_streams_are_followed() {
    let llama = stream(
        Completions,
        &[
            r#"{"choices":[{"text":"a","finish_reason":null}]}"#,
            r#"{"choices":[{"text":"","finish_reason":"length"}],"timings":{"cache_n":0,"prompt_n":7,"predicted_n":2}}"#,
        ],
    );
    assert_eq!(counts(llama.usage()), (Some(7), Some(2), Some(0)));
    assert_eq!(llama.usage().finish, Some(Finish::Length));

    let vllm = stream(
        VllmGenerate,
        &[
            r#"{"choices":[{"token_ids":[1,2],"finish_reason":null}]}"#,
            r#"{"choices":[{"token_ids":[3],"finish_reason":"abort"}]}"#,
        ],
    );
    assert_eq!(counts(vllm.usage()), (None, Some(3), None));
    assert_eq!(vllm.usage().finish, Some(Finish::Abort));

    let sglang = stream(
        SglangGenerate,
        &[
            r#"{"index":0,"text":"a","meta_info":{"prompt_tokens":4,"completion_tokens":1,"cached_tokens":2,"finish_reason":null}}"#,
            r#"{"index":1,"text":"a","meta_info":{"prompt_tokens":5,"completion_tokens":1,"cached_tokens":0,"finish_reason":null}}"#,
            r#"{"index":0,"text":"ab","meta_info":{"prompt_tokens":4,"completion_tokens":2,"cached_tokens":2,"finish_reason":{"type":"stop"}}}"#,
        ],
    );
    assert_eq!(counts(sglang.usage()), (Some(9), Some(3), Some(2)));
    assert_eq!(sglang.output_tokens_seen(), 3);
}

#[test]
fn an_anthropic_stream_is_followed() {
    let mut seen = stream(
        Messages,
        &[
            r#"{"type":"message_start","message":{"content":[],"stop_reason":null,"usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"hi"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        ],
    );
    assert_eq!(counts(seen.usage()), (Some(7), Some(2), Some(4)));
    seen.observe(br#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":6}}"#);
    assert_eq!(counts(seen.usage()), (Some(7), Some(6), Some(4)));
    assert_eq!(seen.usage().finish, Some(Finish::ToolCalls));
}

#[test]
fn an_error_event_is_kept() {
    let error = |event: &str| stream(ChatCompletions, &[event]).error().map(str::to_owned);
    assert_eq!(
        error(r#"{"error":{"message":"out of memory","code":500}}"#).as_deref(),
        Some("out of memory")
    );
    assert_eq!(
        error(r#"{"type":"error","error":"plain"}"#).as_deref(),
        Some("plain")
    );
    assert_eq!(
        error(r#"{"error":{"code":5}}"#).as_deref(),
        Some(r#"{"code":5}"#)
    );
    assert_eq!(error(r#"{"error":null}"#), None);
    assert_eq!(
        error(r#"{"choices":[{"delta":{"content":"\"error\":{}"}}]}"#),
        None
    );
    let long = format!(r#"{{"error":"{}"}}"#, "é".repeat(1_000));
    assert_eq!(error(&long).map(|error| error.len()), Some(ERROR_BYTES_MAX));
}

fn event() -> impl Strategy<Value = serde_json::Value> {
    let text = prop_oneof![
        Just(serde_json::Value::Null),
        "[a-z\u{e9}\"\\\\:{}\n ]{0,10}".prop_map(Into::into),
        Just("\"usage\":{\"prompt_tokens\":1}".into()),
        Just("content".into()),
    ];
    let calls = prop_oneof![
        Just(serde_json::json!(null)),
        Just(serde_json::json!([])),
        Just(serde_json::json!([{"function": {"arguments": "{\"text\":1}"}}])),
    ];
    let finish = prop_oneof![Just(None), Just(Some("stop")), Just(Some("length"))];
    let usage = prop_oneof![
        3 => Just(serde_json::json!(null)),
        1 => (0_u64..9, 0_u64..9).prop_map(
            |(prompt, output)| serde_json::json!({"prompt_tokens": prompt, "completion_tokens": output})),
    ];
    let ids =
        prop_oneof![3 => Just(None), 1 => proptest::collection::vec(0_u64..9, 0..4).prop_map(Some)];
    (text.clone(), text.clone(), text, calls, finish, usage, ids).prop_map(
        |(content, reasoning, text, calls, finish, usage, ids)| {
            serde_json::json!({
                "object": "text", "usage": usage, "choices": [{
                    "delta": {"content": content, "reasoning_content": reasoning, "tool_calls": calls},
                    "logprobs": {"content": [{"token": "a", "bytes": [1]}]},
                    "text": text, "finish_reason": finish, "token_ids": ids,
                }],
            })
        },
    )
}

proptest! {
    #[test]
    fn a_look_gives_what_parsing_gives(
        events in proptest::collection::vec(event(), 0..8), pretty: bool,
    ) {
        let mut looked = StreamUsage::new(ChatCompletions);
        let mut parsed = StreamUsage::new(ChatCompletions);
        for event in events {
            let text = if pretty { serde_json::to_string_pretty(&event) } else { serde_json::to_string(&event) };
            let text = text.unwrap();
            looked.observe(text.as_bytes());
            parsed.take(&serde_json::from_str(&text).unwrap());
            prop_assert_eq!(looked.usage(), parsed.usage(), "{}", text);
            prop_assert_eq!(looked.output_tokens_seen(), parsed.output_tokens_seen());
        }
    }

    #[test]
    fn no_event_makes_it_panic(
        parts in proptest::collection::vec(
            prop_oneof![Just("\""), Just("\\"), Just("usage"), Just(":"), Just("{"), Just("content"), Just("é")], 0..20),
    ) {
        let mut stream = StreamUsage::new(Messages);
        stream.observe(parts.concat().as_bytes());
        prop_assert!(stream.output_tokens_seen() <= 1);
    }
}

#[test]
fn the_version_of_the_weights_is_the_last_that_is_named() {
    let version = |endpoint, body: &str| {
        let told = usage_of_body(endpoint, body.as_bytes()).unwrap_or_default();
        told.weights.name().map(str::to_owned)
    };
    let meta =
        |version: &str| format!(r#"{{"text":"hi","meta_info":{{"weight_version":{version}}}}}"#);
    assert_eq!(
        version(SglangGenerate, &meta(r#""v7""#)).as_deref(),
        Some("v7")
    );
    assert_eq!(version(SglangGenerate, &meta("12")).as_deref(), Some("12"));
    let batch = format!("[{},{}]", meta("1"), meta("2"));
    assert_eq!(version(SglangGenerate, &batch).as_deref(), Some("2"));
    let chat = r#"{"choices":[{"finish_reason":"stop"}],"metadata":{"weight_version":"v3"}}"#;
    assert_eq!(version(ChatCompletions, chat).as_deref(), Some("v3"));
    let spans = r#"{"choices":[{"finish_reason":"stop","weight_versions":[
        {"version":"a","start":0,"end":4},{"version":"b","start":4,"end":6}]}]}"#;
    assert_eq!(version(VllmGenerate, spans).as_deref(), Some("b"));
    let long = format!(r#""{}""#, "x".repeat(65));
    for odd in ["null", "{}", "[1]", "-1", r#""""#, &long] {
        assert_eq!(version(SglangGenerate, &meta(odd)), None, "{odd}");
    }
    let mut stream = StreamUsage::new(SglangGenerate);
    for event in [meta("1"), meta("2")] {
        stream.observe(event.as_bytes());
    }
    assert_eq!(stream.usage().weights.name(), Some("2"));
}

#[test]
fn an_answer_is_complete_with_the_end_of_each_output() {
    let stop =
        |index: u64| format!(r#"{{"choices":[{{"index":{index},"finish_reason":"stop"}}]}}"#);
    let meta = |index: u64, reason: &str| {
        format!(r#"{{"index":{index},"meta_info":{{"finish_reason":{reason}}}}}"#)
    };
    let length = r#"{"type":"length"}"#;
    for (endpoint, events, outputs, complete) in [
        (ChatCompletions, vec![stop(0)], 1, true),
        (ChatCompletions, vec![stop(0)], 0, true),
        (ChatCompletions, vec![stop(0)], 2, false),
        (ChatCompletions, vec![stop(0), stop(0)], 2, false),
        (ChatCompletions, vec![stop(1), stop(0)], 2, true),
        (
            Completions,
            vec![r#"{"choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]}"#.into()],
            2,
            true,
        ),
        (SglangGenerate, vec![meta(0, "null")], 1, false),
        (SglangGenerate, vec![meta(0, length)], 1, true),
        (
            SglangGenerate,
            vec![meta(0, length), meta(1, "null")],
            2,
            false,
        ),
        (
            SglangGenerate,
            vec![meta(0, length), meta(1, length)],
            2,
            true,
        ),
        (
            Messages,
            vec![r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.into()],
            1,
            true,
        ),
        (
            Messages,
            vec![r#"{"type":"message_stop"}"#.into()],
            1,
            false,
        ),
        (
            Messages,
            vec![r#"{"type":"message_start","message":{"stop_reason":null}}"#.into()],
            1,
            false,
        ),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let found = stream(endpoint, &events).is_complete(outputs);
        assert_eq!(found, complete, "{endpoint:?} {events:?} of {outputs}");
    }
}

/// Proxies announce the end of answers that broke off.
#[test]
fn an_announced_end_counts_if_the_engine_never_says_how_outputs_end() {
    let stop = r#"{"choices":[{"index":0,"finish_reason":"stop"}]}"#;
    let more = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let part = r#"{"type":"response.output_text.delta","delta":"a"}"#;
    let whole = r#"{"type":"response.completed","response":{"status":"completed","usage":null}}"#;
    let bare = r#"{"type":"response.completed","response":{}}"#;
    for (endpoint, events, outputs, complete) in [
        (ChatCompletions, &["[DONE]"][..], 1, false),
        (ChatCompletions, &[stop, "[DONE]"], 2, false),
        (ChatCompletions, &[more, " [DONE] "], 1, true),
        (ChatCompletions, &[more, "[DONE]"], 2, false),
        (Responses, &[part, "[DONE]"], 1, false),
        (Responses, &[part, whole], 1, true),
        (Responses, &[part, bare], 1, true),
    ] {
        let found = stream(endpoint, events).is_complete(outputs);
        assert_eq!(found, complete, "{endpoint:?} {events:?} of {outputs}");
    }
}

#[test]
fn errors_within_a_stream_are_seen() {
    for (event, error) in [
        (r#"{"error":{"message":"CUDA"}}"#, Some("CUDA")),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"full"}}"#,
            Some("full"),
        ),
        (
            r#"{"object":"error","message":"x","code":500}"#,
            Some("the engine reported an error"),
        ),
        (r#"{"error":null,"choices":[]}"#, None),
        (r#"{"choices":[{"delta":{"content":"error"}}]}"#, None),
    ] {
        assert_eq!(stream(ChatCompletions, &[event]).error(), error, "{event}");
    }
}
