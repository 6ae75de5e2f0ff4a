//! Requests as chats.

use super::*;
use proptest::prelude::*;
use treadle_wire::request::RequestHead;
use treadle_wire::{Endpoint, ErrorCode};

#[test]
fn fields_become_those_of_a_chat() {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"}, "strict": true});
    let function = json!({"type": "function", "function": {"name": "f", "description": "d",
        "parameters": {"type": "object"}, "strict": true}});
    let bare = json!({"type": "custom", "name": "g"});
    let bare_function = json!({"type": "function", "function": {"name": "g",
        "parameters": {"type": "object", "properties": {}}}});
    let named = json!({"type": "function", "function": {"name": "f"}});
    for (given, expected) in [
        (
            json!({"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3}),
            json!({"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3}),
        ),
        (
            json!({"stop_sequences": ["a", "b"]}),
            json!({"stop": ["a", "b"]}),
        ),
        (
            json!({"stream": true, "stream_options": {"x": 1}}),
            json!({"stream": true, "stream_options": {"include_usage": true}}),
        ),
        (json!({"stream": false}), json!({"stream": false})),
        (
            json!({"metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["b"],
                "thinking": {"type": "enabled", "budget_tokens": 1024}, "system": null,
                "context_management": {"edits": []}, "container": null, "mcp_servers": []}),
            json!({}),
        ),
        (
            json!({"output_config": {"effort": "low", "format": {"type": "json_schema",
                "schema": {"type": "object"}}}}),
            json!({"reasoning_effort": "low", "response_format": {"type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}}}}),
        ),
        (
            json!({"tools": [tool, bare], "tool_choice": {"type": "auto"}}),
            json!({"tools": [function, bare_function], "tool_choice": "auto"}),
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}}),
            json!({"tools": [function], "tool_choice": "required", "parallel_tool_calls": false}),
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "tool", "name": "f",
                "disable_parallel_tool_use": false}}),
            json!({"tools": [function], "tool_choice": named}),
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "none"}}),
            json!({"tools": [function], "tool_choice": "none"}),
        ),
        (json!({"tools": [tool]}), json!({"tools": [function]})),
        (
            json!({"tools": [], "tool_choice": {"type": "any"}}),
            json!({}),
        ),
    ] {
        let joined = |mut all: Value, more: &Value| {
            for (name, value) in more.as_object().expect("fields") {
                all[name] = value.clone();
            }
            all
        };
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = joined(with(messages.clone()), &given);
        assert_eq!(chat(&body), joined(with(messages), &expected), "{body}");
    }
}

/// A request as Claude Code writes them; `turns` of its conversation.
fn claude_code(turns: usize) -> Value {
    let cached = json!({"type": "ephemeral"});
    let image = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
    let header = format!("x-anthropic-billing-header: cc_version=2.1; cch={turns:05x};");
    let turns_of_it = [
        json!({"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>now</system-reminder>"},
            {"type": "text", "text": "fix it", "cache_control": cached},
        ]}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "t2", "name": "Bash", "input": {}},
        ]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "1"}, image, {"type": "text", "text": "2"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "gone", "is_error": true,
                "cache_control": cached},
        ]}),
        json!({"role": "system", "content": "be quick"}),
        json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "t3", "name": "Bash", "input": null}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t3"}, {"type": "text", "text": "and?"}]}),
        json!({"role": "assistant", "content": "Done."}),
    ];
    json!({
        "model": "m", "max_tokens": 32_000, "stream": true, "temperature": 1,
        "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"},
        "system": [
            {"type": "text", "text": header},
            {"type": "text", "text": "You are Claude Code.", "cache_control": cached},
            {"type": "text", "text": "\nBe brief.", "cache_control": cached},
        ],
        "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
        "messages": turns_of_it[..turns],
    })
}

#[test]
fn a_conversation_of_claude_code_becomes_a_chat() {
    let call = |id: &str, name: &str, arguments: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    let expected = json!([
        {"role": "system", "content": "You are Claude Code.\nBe brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>now</system-reminder>"},
            {"type": "text", "text": "fix it"},
        ]},
        {"role": "assistant", "content": "I look.", "reasoning": "hm", "reasoning_content": "hm",
            "tool_calls": [call("t1", "Read", r#"{"path":"a"}"#), call("t2", "Bash", "{}")]},
        {"role": "tool", "tool_call_id": "t1", "content": "1\n2"},
        {"role": "tool", "tool_call_id": "t2", "content": "gone"},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"role": "system", "content": "be quick"},
        {"role": "assistant", "content": null, "tool_calls": [call("t3", "Bash", "{}")]},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "Done."},
    ]);
    assert_eq!(chat(&claude_code(7))["messages"], expected);
    for turns in 1..7 {
        let before = chat(&claude_code(turns));
        let before = before["messages"].as_array().expect("messages");
        let all = expected.as_array().expect("messages");
        assert!(all.starts_with(before), "{before:?}");
    }
}

#[test]
fn content_has_one_form_per_message() {
    for (message, expected) in [
        (
            json!({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
            json!([{"role": "user", "content": "hi"}]),
        ),
        (
            json!({"role": "user", "content": []}),
            json!([{"role": "user", "content": ""}]),
        ),
        (
            json!({"role": "assistant", "content": []}),
            json!([{"role": "assistant", "content": ""}]),
        ),
        (
            json!({"role": "assistant", "content": [{"type": "text", "text": "a"},
                {"type": "text", "text": "b"}]}),
            json!([{"role": "assistant", "content": "ab"}]),
        ),
        (
            json!({"role": "system", "content": [
                {"type": "text", "text": "x-anthropic-billing-header: 1"}]}),
            json!([]),
        ),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image",
                "source": {"type": "url", "url": "https://a/b.png"}}]}),
            json!([{"role": "user", "content": [{"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]),
        ),
        (
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                "content": [{"type": "tool_reference", "tool_name": "Bash"}]}]}),
            json!([{"role": "tool", "tool_call_id": "t", "content": "Bash"}]),
        ),
    ] {
        assert_eq!(
            chat(&with(json!([message])))["messages"],
            expected,
            "{message}"
        );
    }
    let mut body = with(json!([{"role": "user", "content": "hi"}]));
    body["system"] = "be brief".into();
    assert_eq!(chat(&body)["messages"][0]["content"], "be brief");
}

#[test]
fn schemas_and_arguments_stay_as_they_are_written() {
    let written = r#"{"zeta": {"b":1.0, "a":"\u00e9"},"alpha":1e2}"#;
    let body = format!(
        r#"{{"tools":[{{"name":"f","input_schema":{written}}}],"messages":[{{"role":"assistant",
            "content":[{{"type":"tool_use","id":"t","name":"f","input": {written} }}]}}]}}"#
    );
    let request = MessagesRequest::parse(body.as_bytes()).expect("a request");
    let chat = request.to_chat().expect("a chat");
    let text = std::str::from_utf8(&chat).expect("text");
    assert!(
        text.contains(&format!("\"parameters\":{written}")),
        "{text}"
    );
    let chat: Value = serde_json::from_slice(&chat).expect("JSON");
    let call = &chat["messages"][0]["tool_calls"][0]["function"];
    assert_eq!(call["arguments"], written);
}

/// The field for which this body is refused.
fn refused_field(body: &Value) -> String {
    let text = body.to_string();
    let chat = MessagesRequest::parse(text.as_bytes()).and_then(|request| request.to_chat());
    let error = chat.expect_err(&text);
    assert_eq!(error.code, ErrorCode::InvalidField, "{text}");
    error.param.expect("a field")
}

#[test]
fn blocks_without_a_form_are_refused_by_name() {
    let nested = json!({"type": "tool_result", "tool_use_id": "t",
        "content": [{"type": "document"}]});
    let file = json!({"type": "image", "source": {"type": "file", "file_id": "f"}});
    let hosted = json!({"type": "server_tool_use", "id": "t", "name": "web_search"});
    for (role, block, field) in [
        ("user", json!("x"), ""),
        ("user", json!({"type": "document"}), ".type"),
        ("user", json!({"type": "tool_use"}), ".type"),
        ("user", json!({"type": "thinking"}), ".type"),
        ("user", json!({"type": "image"}), ".source"),
        ("user", file, ".source.type"),
        ("user", nested, ".content[0].type"),
        ("user", json!({"type": "tool_result"}), ".tool_use_id"),
        ("assistant", json!({"type": "tool_use", "name": "f"}), ".id"),
        ("assistant", json!({"type": "tool_use", "id": "t"}), ".name"),
        (
            "assistant",
            json!({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}),
            ".input",
        ),
        ("assistant", hosted, ".type"),
        ("system", json!({"type": "image"}), ".type"),
    ] {
        let body = with(json!([{"role": role, "content": [block]}]));
        let expected = format!("messages[0].content[0]{field}");
        assert_eq!(refused_field(&body), expected, "{body}");
    }
}

#[test]
fn fields_without_a_form_are_refused_by_name() {
    for (name, value, expected) in [
        ("messages", json!(null), "messages"),
        ("messages", json!([]), "messages"),
        ("messages", json!("hi"), "messages"),
        ("messages", json!([5]), "messages[0]"),
        ("messages", json!([{"role": "user"}]), "messages[0]"),
        (
            "messages",
            json!([{"role": "king", "content": "x"}]),
            "messages[0].role",
        ),
        (
            "messages",
            json!([{"role": "user", "content": 5}]),
            "messages[0].content",
        ),
        ("system", json!([{"type": "image"}]), "system[0].type"),
        ("container", json!("c"), "container"),
        ("mcp_servers", json!([{}]), "mcp_servers"),
        ("output_format", json!({}), "output_format"),
        (
            "output_config",
            json!({"format": {"type": "xml"}}),
            "output_config.format.type",
        ),
        ("tools", json!({}), "tools"),
        ("tools", json!([{}]), "tools[0]"),
        ("tool_choice", json!({"type": "tool"}), "tool_choice.name"),
        ("tool_choice", json!({"type": "all"}), "tool_choice.type"),
        ("tool_choice", json!("auto"), "tool_choice"),
    ] {
        let mut body = with(json!([{"role": "user", "content": "hi"}]));
        body[name] = value;
        assert_eq!(refused_field(&body), expected, "{body}");
    }
    let mut body = with(json!([{"role": "user", "content": "hi"}]));
    body["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let error = request(&body).to_chat().expect_err("hosted").message;
    assert!(error.contains("`web_search`") && error.contains("`web_search_20250305`"));
    let error = MessagesRequest::parse(b"[]").expect_err("a list");
    assert_eq!(error.code, ErrorCode::InvalidJson);
}

/// URLs are checked in the body as it was sent, so it must have no other place for them.
#[test]
fn every_url_of_the_chat_is_one_that_was_checked() {
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://hidden/x"}});
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [image]});
    for block in [image, result] {
        let body = with(json!([{"role": "user", "content": [block]}]));
        assert!(chat(&body).to_string().contains("https://hidden/x"));
        let head = RequestHead::parse(Endpoint::Messages, body.to_string().as_bytes());
        let checked = head.expect("a request").media;
        let checked = checked.check(&[], true, |_| Err("no host is public"));
        assert!(checked.is_err(), "{body}");
    }
}

fn any_block(role: &'static str) -> BoxedStrategy<Value> {
    let text = ".{0,6}".prop_map(|text| json!({"type": "text", "text": text}));
    let image = Just(json!({"type": "image", "source": {"type": "url", "url": "https://a/b"}}));
    let call = "[a-c]{1,3}".prop_map(
        |id| json!({"type": "tool_use", "id": id, "name": "f", "input": {"b": id, "a": 1}}),
    );
    let thinking = ".{0,6}".prop_map(|text| json!({"type": "thinking", "thinking": text}));
    let result = (text.clone(), image.clone()).prop_map(|(text, image)| {
        json!({"type": "tool_result", "tool_use_id": "t", "content": [text, image]})
    });
    match role {
        "user" => prop_oneof![text, image, result].boxed(),
        "assistant" => prop_oneof![text, thinking, call].boxed(),
        _ => text.boxed(),
    }
}

fn any_turn() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["user", "assistant", "system"]);
    role.prop_flat_map(|role| {
        let blocks = prop::collection::vec(any_block(role), 0..4).prop_map(Value::from);
        let text = ".{0,6}".prop_map(Value::from);
        let content = prop_oneof![blocks, text];
        content.prop_map(move |content| json!({"role": role, "content": content}))
    })
}

/// The list of messages as it is written in the chat, without its brackets.
fn written(turns: &[Value]) -> String {
    let chat = request(&with(turns.into())).to_chat().expect("a chat");
    let fields: Fields = serde_json::from_slice(&chat).expect("fields");
    let list = fields["messages"].get();
    list[1..list.len() - 1].to_owned()
}

proptest! {
    #[test]
    fn a_conversation_that_goes_on_keeps_its_beginning(
        turns in prop::collection::vec(any_turn(), 1..6),
        so_far in 1_usize..6,
    ) {
        let before = written(&turns[..so_far.min(turns.len())]);
        let all = written(&turns);
        prop_assert!(all.starts_with(&before), "{before}\n{all}");
        let rest = &all[before.len()..];
        prop_assert!(rest.is_empty() || before.is_empty() || rest.starts_with(','));
    }

    #[test]
    fn no_request_makes_it_panic(body in r#"(\{|\}|\[|\]|,|:|1|null|"(messages|system|role|user|assistant|content|type|text|tools|name|tool_use|input|source)"){0,40}"#) {
        let _ = MessagesRequest::parse(body.as_bytes()).map(|request| request.to_chat());
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{{{body}}}]}}]}}"#);
        let _ = MessagesRequest::parse(body.as_bytes()).map(|request| request.to_chat());
    }
}
