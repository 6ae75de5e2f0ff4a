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
    assert_eq!(head.model.as_deref(), Some("m"));
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
    assert_eq!(head.model, None);
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
fn fields_that_are_not_read_may_hold_anything_within_the_levels() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep = nested(LEVELS_MAX - 1);
    let body = format!(r#"{{"x":{deep},"y":1e999,"z":-0,"messages":7,"prompt":[1,2]}}"#);
    assert_eq!(parse(Completions, &body).unwrap().prompt.tokens, Some(2));
    for levels in [LEVELS_MAX, 200_000] {
        let deep = nested(levels);
        let open = "[".repeat(levels);
        for body in [
            format!(r#"{{"prompt":"x","metadata":{deep}}}"#),
            format!(r#"{{"prompt":"x","metadata":{open}"#),
            format!(r#"{{"prompt":"x","sampling_params":{deep}}}"#),
            format!(r#"{{"messages":[{{"content":{deep}}}]}}"#),
            format!(r#"{{"tools":{deep},"messages":[]}}"#),
        ] {
            for endpoint in Endpoint::ALL {
                assert_eq!(code(endpoint, &body).0, ErrorCode::InvalidJson);
            }
        }
    }
}

#[test]
fn a_name_that_is_there_twice_is_refused_at_every_level() {
    for (body, name) in [
        (r#"{"model":"a","prompt":"x","model":"b"}"#, "model"),
        (r#"{"pro\u006dpt":[1],"prompt":"four"}"#, "prompt"),
        (
            r#"{"prompt":"x","sampling_params":{"extra_args":1},"sampling_params":{}}"#,
            "sampling_params",
        ),
        (r#"{"prompt":"x","sampling_params":{"n":1,"n":1}}"#, "n"),
        (
            r#"{"prompt":"x","metadata":{"a":[1,{"b":{"c":1,"d":2,"c":3}}]}}"#,
            "c",
        ),
        (r#"{"prompt":"x","metadata":{"":1,"":2}}"#, ""),
    ] {
        let error = parse(Completions, body).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidField);
        assert_eq!(error.param.as_deref(), Some(name), "{body}");
    }
    let many: Vec<String> = (0..500).map(|n| format!("\"n{n}\":{n}")).collect();
    let many = many.join(",");
    let once = format!(r#"{{"prompt":"x","metadata":{{{many}}}}}"#);
    assert!(parse(Completions, &once).is_ok());
    let twice = format!(r#"{{"prompt":"x","metadata":{{{many},"n77":0}}}}"#);
    let error = parse(Completions, &twice).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("n77"));
    // Apart from each other, names may be equal; so may texts and names.
    let apart = r#"{"prompt":"x","a":{"b":"c","c":"b"},"d":[{"b":1},{"b":2},"b","b"],"b":"a"}"#;
    assert!(parse(Completions, apart).is_ok());
}

#[test]
fn settings_are_objects_and_outputs_have_a_bound() {
    for (fields, param) in [
        (
            r#""chat_template_kwargs" : "{\"chat_template\":\"x\"}""#,
            "chat_template_kwargs",
        ),
        (
            r#""extra_body":{"chat_template_kwargs":["x"]}"#,
            "extra_body.chat_template_kwargs",
        ),
        (r#""media_io_kwargs":"{}""#, "media_io_kwargs"),
        (r#""mm_processor_kwargs":true"#, "mm_processor_kwargs"),
        (r#""n":-1"#, "n"),
        (r#""n":0"#, "n"),
        (r#""n" : 1000000000"#, "n"),
        (r#""n":129"#, "n"),
        (r#""n":"2""#, "n"),
        (r#""n":{}"#, "n"),
        (r#""best_of":1000"#, "best_of"),
        (r#""extra_body":{"n":129}"#, "extra_body.n"),
        (
            r#""sampling_params":[{"n":1},{"n":1e9}]"#,
            "sampling_params.n",
        ),
    ] {
        let body = format!(r#"{{"text":"x",{fields}}}"#);
        let error = parse(SglangGenerate, &body).expect_err(fields);
        assert_eq!(error.code, ErrorCode::InvalidField);
        assert_eq!(error.param.as_deref(), Some(param), "{fields}");
    }
    for fields in [
        r#""n":128"#,
        r#""n" : null"#,
        r#""chat_template_kwargs":null"#,
        r#""stop":["n"]"#,
    ] {
        let body = format!(r#"{{"text":"x",{fields}}}"#);
        parse(SglangGenerate, &body).expect(fields);
    }
}

/// The field whose media an engine may not fetch.
fn unfetched(endpoint: Endpoint, body: &str) -> Option<String> {
    let head = parse(endpoint, body).expect(body);
    let is_public = |host: &str| {
        let is_public = host.ends_with(".example");
        is_public.then_some(()).ok_or("it is not public")
    };
    head.media.check(&[], true, is_public).err()?.param
}

#[test]
fn parts_of_messages_that_an_engine_would_fetch_are_found() {
    for (part, param) in [
        (
            r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#,
            "image_url",
        ),
        (
            r#"{"image_url":{"url":"http://169.254.169.254/latest"}}"#,
            "image_url",
        ),
        (r#"{"image_url":"http://localhost:8000/"}"#, "image_url"),
        (
            r#"{"image\u005furl":{"u\u0072l":"fi\u006ce:///x"}}"#,
            "image_url",
        ),
        (
            r#"{"type":"video_url","video_url":{"url":"/dev/zero"}}"#,
            "video_url",
        ),
        (
            r#"{"type":"audio_url","audio_url":{"url":"http://10.0.0.1/"}}"#,
            "audio_url",
        ),
        (
            r#"{"type":"input_audio","input_audio":{"data":"file:///x","format":"wav"}}"#,
            "input_audio",
        ),
        (
            r#"{"type":"input_audio","input_audio":{"url":"http://h/"}}"#,
            "input_audio",
        ),
        (
            r#"{"type":"image","source":{"type":"url","url":"http://127.0.0.1/"}}"#,
            "source.url",
        ),
        (
            r#"{"type":"input_file","file_url":"http://[::1]/"}"#,
            "file_url",
        ),
        (
            r#"{"type":"tool_result","content":[{"type":"image","source":{"url":"file:/x"}}]}"#,
            "source.url",
        ),
        (r#"{"type":"image","url":"file:///etc/passwd"}"#, "url"),
        (r#"{"type":"video","url":"http://169.254.169.254/"}"#, "url"),
        (r#"{"type":"image","path":"/etc/passwd"}"#, "path"),
        (r#"{"type":"image","path":"https://a.example/x"}"#, "path"),
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
        for endpoint in [ChatCompletions, Messages] {
            assert_eq!(unfetched(endpoint, &body).as_deref(), Some(param), "{part}");
        }
    }
}

#[test]
fn what_a_request_contains_or_only_speaks_of_is_not_fetched() {
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://a.example/x.png","detail":"auto"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO\/Rw0"}}"#,
        r#"{"type":"text","text":"see http://127.0.0.1/ and file:///etc/passwd"}"#,
        r#"{"type":"tool_use","id":"1","name":"get","input":{"image_url":"http://127.0.0.1/"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}"#,
        r#"{"type":"document","source":{"type":"text","data":"http://127.0.0.1/"}}"#,
        r#"{"type":"image","url":"https://a.example/x.png"}"#,
        r#"{"type":"apply_patch_call","operation":{"type":"delete_file","path":"src/a.rs"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"/9j/"}}"#,
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
        assert_eq!(unfetched(ChatCompletions, &body), None, "{part}");
    }
}

#[test]
fn fields_that_an_engine_would_fetch_are_found() {
    for (fields, param) in [
        (
            r#""image_data":["https://a.example/x",["/etc/x.png"]]"#,
            Some("image_data"),
        ),
        (r#""video_data":"http://127.0.0.1/""#, Some("video_data")),
        (r#""image_data":[{"url":"file:///x"}]"#, Some("image_data")),
        (
            r#""mcp_servers":[{"type":"url","url":"http://10.0.0.1"}]"#,
            Some("server_url"),
        ),
        (r#""image_data":"iVBORw0KGgoAAAA=""#, None),
    ] {
        let body = format!(r#"{{"text":"x",{fields}}}"#);
        assert_eq!(
            unfetched(SglangGenerate, &body).as_deref(),
            param,
            "{fields}"
        );
    }
    let own = parse(SglangGenerate, r#"{"text":"x","image_data":"/x.png"}"#).unwrap();
    let passed = ["image_data".to_owned()];
    let never = |_: &str| Err("never");
    assert!(
        own.media.check(&passed, true, never).is_ok(),
        "its operator says so"
    );
    assert!(
        own.media.check(&passed, false, never).is_err(),
        "there are other tenants"
    );
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
