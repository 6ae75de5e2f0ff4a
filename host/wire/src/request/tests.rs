//! Whole bodies, well-formed and not.

use super::*;
use Endpoint::{ChatCompletions, Completions, Messages, SglangGenerate, VllmGenerate};
use proptest::prelude::*;

fn parse(endpoint: Endpoint, body: &str) -> Result<RequestHead, RequestError> {
    RequestHead::parse(endpoint, body.as_bytes())
}

fn code(endpoint: Endpoint, body: &str) -> (ErrorCode, Option<String>) {
    let error = parse(endpoint, body).expect_err(body);
    assert!(!error.message.is_empty() && error.message.len() < 2_000);
    (error.code, error.param)
}

#[test]
fn a_chat_request_is_understood() {
    let head = parse(
        ChatCompletions,
        r#" {"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,
            "stream_options":{"include_usage":true},"max_tokens":5,"max_completion_tokens":7,
            "temperature":0.5,"program_id":"p"} "#,
    )
    .unwrap();
    assert_eq!(head.require_model().unwrap(), "m");
    assert!(head.stream && head.include_usage);
    assert_eq!(head.max_output_tokens, Some(7));
    assert_eq!(head.named.map(|named| named.program).as_deref(), Some("p"));
    assert_eq!(
        head.prompt,
        PromptSize {
            tokens: None,
            bytes: 6,
            messages: 1,
        }
    );
    assert_eq!((head.prefix.len(), head.chain.len()), (1, 1));
}

#[test]
fn engine_native_requests_are_understood() {
    let vllm =
        r#"{"model":"m","token_ids":[1,2,3],"sampling_params":{"max_tokens":9},"stream":null}"#;
    let head = parse(VllmGenerate, vllm).unwrap();
    assert_eq!(
        (head.prompt.tokens, head.max_output_tokens),
        (Some(3), Some(9))
    );
    let sglang = r#"{"input_ids":[[1,2],[3]],"sampling_params":[{"max_new_tokens":4},{"max_new_tokens":6},null]}"#;
    let head = parse(SglangGenerate, sglang).unwrap();
    assert_eq!(
        (head.prompt.tokens, head.max_output_tokens),
        (Some(3), Some(6))
    );
    assert_eq!(
        head.require_model().unwrap_err().param.as_deref(),
        Some("model")
    );
    let text = parse(SglangGenerate, r#"{"text":["ab","c"],"input_ids":null}"#).unwrap();
    assert_eq!(
        text.prompt,
        PromptSize {
            tokens: None,
            bytes: 3,
            messages: 0,
        }
    );
}

#[test]
fn fields_before_the_messages_count_for_the_prefix_only() {
    let messages = r#""messages":[{"role":"user","content":"hi"}]"#;
    let plain = parse(Messages, &format!("{{{messages}}}")).unwrap();
    let system = parse(Messages, &format!(r#"{{{messages},"system":"brief"}}"#)).unwrap();
    let blocks = format!(r#"{{"system":[{{"type":"text","text":"brief"}}],{messages}}}"#);
    let blocks = parse(Messages, &blocks).unwrap();
    let tools = parse(
        Messages,
        &format!(r#"{{{messages},"tools":[{{"name":"ls"}}]}}"#),
    )
    .unwrap();
    assert_eq!(plain.chain, tools.chain);
    assert_eq!(plain.chain, system.chain);
    assert_ne!(plain.prefix[0].hash, system.prefix[0].hash);
    assert_ne!(plain.prefix[0].hash, tools.prefix[0].hash);
    assert_eq!(system.prefix[0].hash, blocks.prefix[0].hash);
    assert_eq!(system.prompt.bytes, plain.prompt.bytes + 5);
    assert_eq!(system.prefix[0].bytes, system.prompt.bytes);
}

#[test]
fn what_is_no_json_object_is_refused() {
    for body in [
        "",
        "  ",
        "{",
        "{]",
        r#"{"a":}"#,
        "{} {}",
        "nul",
        "[1",
        r#"{"messages":[{"#,
        "{\"a\":1}x",
    ] {
        assert_eq!(
            code(ChatCompletions, body),
            (ErrorCode::InvalidJson, None),
            "{body}"
        );
    }
    for body in ["[]", " [{}]", "1", "null", "\"{}\"", "true"] {
        assert_eq!(
            code(ChatCompletions, body),
            (ErrorCode::BodyNotObject, None),
            "{body}"
        );
    }
    let error = RequestHead::parse(Completions, b"{\"prompt\":\"\xff\"}").unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidJson);
    let lone_surrogate = r#"{"prompt":"\ud800"}"#;
    assert_eq!(code(Completions, lone_surrogate).0, ErrorCode::InvalidJson);
}

#[test]
fn fields_of_the_wrong_type_are_named() {
    let ok = r#""messages":[{"role":"user","content":"hi"}]"#;
    let wrong = [
        (r#"{"messages":"hi"}"#.to_owned(), "messages"),
        (r#"{"messages":{"role":"user"}}"#.to_owned(), "messages"),
        (r#"{"messages":[]}"#.to_owned(), "messages"),
        (
            r#"{"messages":[{"role":"user"},"hi"]}"#.to_owned(),
            "messages[1]",
        ),
        (format!(r#"{{{ok},"stream":"yes"}}"#), "stream"),
        (format!(r#"{{{ok},"stream":1}}"#), "stream"),
        (format!(r#"{{{ok},"model":7}}"#), "model"),
        (
            format!(r#"{{{ok},"stream_options":true}}"#),
            "stream_options",
        ),
        (
            format!(r#"{{{ok},"stream_options":{{"include_usage":0}}}}"#),
            "stream_options.include_usage",
        ),
        (format!(r#"{{{ok},"max_tokens":"7"}}"#), "max_tokens"),
        (format!(r#"{{{ok},"max_tokens":-7}}"#), "max_tokens"),
        (
            format!(r#"{{{ok},"sampling_params":1}}"#),
            "sampling_params",
        ),
        (
            format!(r#"{{{ok},"sampling_params":[1]}}"#),
            "sampling_params",
        ),
    ];
    for (body, param) in wrong {
        assert_eq!(
            code(ChatCompletions, &body),
            (ErrorCode::InvalidField, Some(param.to_owned()))
        );
    }
    let huge = format!(r#"{{"messages":"{}"}}"#, "x".repeat(100_000));
    assert_eq!(code(ChatCompletions, &huge).1.as_deref(), Some("messages"));
}

#[test]
fn a_prompt_is_needed() {
    let cases = [
        (ChatCompletions, "messages"),
        (Messages, "messages"),
        (Completions, "prompt"),
        (VllmGenerate, "token_ids"),
        (SglangGenerate, "input_ids"),
    ];
    for (endpoint, param) in cases {
        let expected = (ErrorCode::MissingField, Some(param.to_owned()));
        assert_eq!(code(endpoint, "{}"), expected);
        assert_eq!(code(endpoint, &format!(r#"{{"{param}":null}}"#)), expected);
        assert_eq!(code(endpoint, r#"{"other":[1]}"#), expected);
    }
}

#[test]
fn fields_that_are_not_read_may_hold_anything() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let body = format!(r#"{{"x":{deep},"y":1e999,"z":-0,"messages":7,"prompt":[1,2]}}"#);
    assert_eq!(parse(Completions, &body).unwrap().prompt.tokens, Some(2));
    let hostile = format!(r#"{{"messages":{deep}}}"#);
    assert_eq!(code(ChatCompletions, &hostile).0, ErrorCode::InvalidField);
    let hostile = format!(r#"{{"messages":[{{"content":{deep}}}]}}"#);
    assert_eq!(code(ChatCompletions, &hostile).0, ErrorCode::InvalidJson);
    let hostile = format!(r#"{{"prompt":"x","sampling_params":{deep}}}"#);
    assert_eq!(code(Completions, &hostile).0, ErrorCode::InvalidField);
}

#[test]
fn escaped_and_repeated_keys_are_fields_too() {
    let body = r#"{"pro\u006dpt":[1],"prompt":"four","mod\u0065l":"a","model":"b"}"#;
    let head = parse(Completions, body).unwrap();
    assert_eq!(
        head.prompt,
        PromptSize {
            tokens: None,
            bytes: 4,
            messages: 0,
        }
    );
    assert_eq!(head.model.as_deref(), Some("b"));
}

proptest! {
    #[test]
    fn white_space_and_order_change_nothing(
        texts in proptest::collection::vec("[a-z\u{e9}\"\\\\\n]{0,12}", 1..8),
        stream: bool,
        limit in 0_u64..1_000,
    ) {
        let messages: Vec<_> = texts.iter()
            .map(|text| serde_json::json!({"role": "user", "content": text}))
            .collect();
        let value = serde_json::json!({"messages": messages, "stream": stream, "max_tokens": limit, "model": "m"});
        let compact = serde_json::to_string(&value).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let head = parse(ChatCompletions, &compact).unwrap();
        prop_assert_eq!(&head, &parse(ChatCompletions, &pretty).unwrap());
        prop_assert_eq!(head.chain.len(), texts.len());
        prop_assert_eq!(head.prompt.bytes, texts.iter().map(|text| text.len() as u64 + 4).sum::<u64>());
        prop_assert_eq!((head.stream, head.max_output_tokens), (stream, Some(limit)));
        let covered: u64 = head.prefix.iter().map(|segment| segment.bytes).sum();
        let expected: u64 = texts.iter().take(4).map(|text| text.len() as u64 + 4).sum();
        prop_assert_eq!(covered, expected);
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..64), cut in 0_usize..120) {
        let valid = br#"{"model":"m","prompt":[[1,2],[3]],"sampling_params":[{"max_tokens":1}],"vllm_xargs":{"agentic_context":"{}"}}"#;
        let mut spoiled = valid[..cut.min(valid.len())].to_vec();
        spoiled.extend_from_slice(&body);
        for endpoint in Endpoint::ALL {
            let _ = RequestHead::parse(endpoint, &body);
            let _ = RequestHead::parse(endpoint, &spoiled);
        }
    }
}
