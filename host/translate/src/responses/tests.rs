//! Requests as chats, and chats as answers.

use super::*;
use serde_json::{Value, json};
use treadle_wire::sse::SseScanner;

fn request(body: &Value) -> ResponsesRequest {
    ResponsesRequest::parse(body.to_string().as_bytes()).expect("a request")
}

fn chat(body: &Value) -> Value {
    let chat = request(body).to_chat().expect("a chat");
    serde_json::from_slice(&chat.body).expect("JSON")
}

fn head() -> AnswerHead {
    AnswerHead {
        name: "x".into(),
        created_s: 7,
        is_stored: true,
        previous: None,
    }
}

fn builder(body: &Value) -> ResponseBuilder {
    let request = request(body);
    let chat = request.to_chat().expect("a chat");
    ResponseBuilder::new(&request, &chat, head())
}

/// The events of an answer, checked for their numbers.
fn events(body: &Value, chunks: &[Value]) -> Vec<Value> {
    let mut builder = builder(body);
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend(builder.take(chunk.to_string().as_bytes()));
    }
    out.extend(builder.finish());
    let (mut scanner, mut events) = (SseScanner::default(), Vec::<Value>::new());
    scanner
        .feed(&out, &mut |event| {
            events.push(serde_json::from_slice(event).expect("JSON"));
        })
        .expect("events");
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().filter_map(|event| event["type"].as_str());
    kinds
        .map(|kind| kind.trim_start_matches("response."))
        .collect()
}

#[expect(clippy::needless_pass_by_value, reason = "made for the call")]
fn delta(delta: Value) -> Value {
    json!({"model": "served", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
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

#[test]
fn fields_become_those_of_a_chat() {
    let body = json!({
        "model": "m", "input": "hi", "instructions": "be brief", "stream": true,
        "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3,
        "reasoning": {"effort": "low", "summary": "auto"}, "store": false, "metadata": {"a": "b"},
        "include": ["message.output_text.logprobs"], "top_logprobs": 2, "tool_choice": "auto",
        "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
            "schema": {"type": "object"}}, "verbosity": "low"},
        "parallel_tool_calls": true, "prompt_cache_key": "k", "truncation": "disabled",
    });
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [
            {"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"},
        ],
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "reasoning_effort": "low",
        "logprobs": true, "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "strict": true, "schema": {"type": "object"},
        }},
    });
    assert_eq!(
        chat(&body),
        expected,
        "without tools there is no choice of them"
    );
    let plain = json!({"input": "hi", "text": {"format": {"type": "text"}}});
    assert_eq!(
        chat(&plain),
        json!({"messages": [{"role": "user", "content": "hi"}]})
    );
    let object = json!({"input": "hi", "text": {"format": {"type": "json_object"}}});
    assert_eq!(
        chat(&object)["response_format"],
        json!({"type": "json_object"})
    );
}

#[test]
fn schemas_keep_the_order_of_their_fields() {
    let schema = r#"{"type":"object","properties":{"zeta":{},"alpha":{}}}"#;
    let body = format!(
        r#"{{"input":"hi","text":{{"format":{{"type":"json_schema","name":"n","schema":{schema}}}}},
            "tools":[{{"type":"function","name":"f","parameters":{schema}}}]}}"#
    );
    let request = ResponsesRequest::parse(body.as_bytes()).expect("a request");
    let chat = request.to_chat().expect("a chat");
    let chat = String::from_utf8(chat.body).expect("text");
    assert_eq!(chat.matches(schema).count(), 2, "{chat}");
}

#[test]
fn items_become_messages() {
    let call = |id: &str| {
        json!({"type": "function_call", "call_id": id, "name": "f",
        "arguments": "{}", "id": "fc_1", "status": "completed"})
    };
    let output = |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
    let body = json!({"instructions": "one", "input": [
        {"type": "message", "role": "developer", "content": [
            {"type": "input_text", "text": "two"}, {"type": "input_text", "text": "three"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:x", "detail": "low"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "plain:hm"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "so", "annotations": []}]},
        call("a"), call("b"), {"type": "web_search_call", "id": "ws", "status": "completed"},
        output("a", json!("1")), output("b", json!([{"type": "input_text", "text": "2"}])),
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "free"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "3"},
        {"role": "developer", "content": "later"},
    ]});
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let called = |id: &str| json!({"id": id, "type": "function", "function": function("f", "{}")});
    let free = json!({"id": "c", "type": "function",
        "function": function("patch", r#"{"input":"free"}"#)});
    let expected = json!([
        {"role": "system", "content": "one\n\ntwo\nthree"},
        {"role": "user", "content": [{"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}]},
        {"role": "assistant", "content": "so", "tool_calls": [called("a"), called("b")],
            "reasoning": "hm", "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": null, "tool_calls": [free]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "system", "content": "later"},
    ]);
    assert_eq!(chat(&body)["messages"], expected);
}

#[test]
fn tools_that_no_engine_runs_are_left_out() {
    let tools = json!([
        {"type": "function", "name": "f", "description": "d", "strict": false,
            "parameters": {"type": "object"}},
        {"type": "web_search", "external_web_access": false},
        {"type": "mcp", "server_url": "http://169.254.169.254/", "server_label": "x"},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark",
            "definition": "start: x"}},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]},
    ]);
    let body = json!({"input": "hi", "tools": tools, "tool_choice": "required"});
    let sent = chat(&body);
    let names = sent["tools"].as_array().expect("tools").iter();
    let names: Vec<&str> = names
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(names, ["f", "patch", "ns__g"]);
    assert_eq!(sent["tool_choice"], "required");
    let description = &sent["tools"][1]["function"]["description"];
    assert!(
        description
            .as_str()
            .is_some_and(|text| text.contains("start: x"))
    );

    let sent = request(&body).for_engine(None).expect("a body");
    let sent: Value = serde_json::from_slice(&sent.expect("it changes")).expect("JSON");
    assert_eq!(sent["tools"].as_array().map(Vec::len), Some(3));

    let wanted = json!({"type": "function", "name": "f"});
    let body = json!({"input": "hi", "tools": tools, "tool_choice": wanted});
    let function = json!({"type": "function", "function": {"name": "f"}});
    assert_eq!(chat(&body)["tool_choice"], function);
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [wanted]});
    let body = json!({"input": "hi", "tools": tools, "tool_choice": allowed});
    assert_eq!(chat(&body)["tools"].as_array().map(Vec::len), Some(1));
    let hosted = json!({"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": "auto"});
    assert_eq!(
        chat(&hosted),
        json!({"messages": [{"role": "user", "content": "hi"}]})
    );
}

#[test]
fn what_has_no_form_is_refused_by_name() {
    let cases = [
        (json!({"input": "x", "background": true}), "background"),
        (json!({"input": "x", "conversation": "c"}), "conversation"),
        (json!({"input": "x", "prompt": {"id": "p"}}), "prompt"),
        (json!({"input": 5}), "input"),
        (json!({"input": []}), "input"),
        (
            json!({"input": [{"type": "item_reference", "id": "i"}]}),
            "input[0]",
        ),
        (json!({"input": [{"type": "compaction"}]}), "input[0]"),
        (
            json!({"input": [{"role": "king", "content": "x"}]}),
            "input[0].role",
        ),
        (
            json!({"input": [{"type": "function_call", "name": "f"}]}),
            "input[0].call_id",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}),
            "input[0].content[0].image_url",
        ),
        (
            json!({"input": "x", "tools": [{"type": "function"}]}),
            "tools[0]",
        ),
        (
            json!({"input": "x", "tool_choice": {"type": "web_search"}}),
            "tool_choice",
        ),
        (
            json!({"input": "x", "text": {"format": {"type": "xml"}}}),
            "text.format.type",
        ),
    ];
    for (body, param) in cases {
        let text = body.to_string();
        let error = ResponsesRequest::parse(text.as_bytes()).and_then(|request| request.to_chat());
        assert_eq!(
            error.expect_err(&text).param.as_deref(),
            Some(param),
            "{text}"
        );
    }
    let off = json!({"input": "x", "background": false, "conversation": null});
    assert!(chat(&off).get("background").is_none());
}

#[test]
fn a_request_is_put_behind_what_it_continues() {
    let body = json!({"input": "more", "previous_response_id": "r", "store": false});
    let request = request(&body);
    assert_eq!(request.previous().expect("an id").as_deref(), Some("r"));
    let before = [r#"{"role":"user","content":"hi"}"#, "", r#"{"type":"x"}"#];
    let sent = request
        .for_engine(Some(&before))
        .expect("a body")
        .expect("changed");
    let sent: Value = serde_json::from_slice(&sent).expect("JSON");
    let more = json!({"type": "message", "role": "user", "content": "more"});
    let input = json!([{"role": "user", "content": "hi"}, {"type": "x"}, more]);
    assert_eq!(sent, json!({"input": input, "store": false}));
    let plain = json!({"input": "hi", "store": false});
    let plain = ResponsesRequest::parse(plain.to_string().as_bytes()).expect("a request");
    assert_eq!(plain.for_engine(None).expect("a body"), None, "as it came");
    assert!(!plain.stores());
}

#[test]
fn text_is_streamed_in_the_order_of_the_api() {
    let body = json!({"input": "x", "stream": true, "model": "m",
        "include": ["reasoning.encrypted_content"]});
    let chunks = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "h"})),
        delta(json!({"reasoning": "m"})),
        delta(json!({"content": "so "})),
        delta(json!({"content": "\"far\""})),
        last("stop"),
        usage(),
    ];
    let events = events(&body, &chunks);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&events), expected);
    let response = &events[16]["response"];
    assert_eq!(
        (&response["id"], &response["status"]),
        (&json!("resp_x"), &json!("completed"))
    );
    assert_eq!(
        (&response["model"], &response["store"]),
        (&json!("served"), &json!(true))
    );
    let expected_usage = json!({
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 13,
    });
    assert_eq!(response["usage"], expected_usage);
    let [thought, said] = [8, 15].map(|at: usize| &events[at]["item"]);
    assert_eq!(thought["content"][0]["text"], "hm");
    assert_eq!(thought["encrypted_content"], "plain:hm");
    assert_eq!(said["content"][0]["text"], "so \"far\"");
    assert_eq!(response["output"], json!([thought, said]));
    assert_eq!(events[13]["text"], "so \"far\"");
    assert_eq!(events[12]["item_id"], said["id"]);
    let answered = Answered::of_event(events[16].to_string().as_bytes()).expect("an answer");
    assert_eq!(answered.id, "resp_x");
    assert!(
        answered.items.starts_with(r#"{"content""#),
        "{}",
        answered.items
    );
    assert_eq!(Answered::of_event(events[15].to_string().as_bytes()), None);
}

#[test]
fn calls_are_streamed_and_lead_back_to_their_tools() {
    let body = json!({"input": "x", "stream": true, "tools": [
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]},
        {"type": "custom", "name": "patch"},
    ]});
    let call = |index: u64, id: Value, name: Value, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        delta(json!({"tool_calls": [{"index": index, "id": id, "function": function}]}))
    };
    let chunks = [
        call(0, json!("c0"), json!("ns__g"), ""),
        call(1, json!("c1"), json!("patch"), r#"{"input": "#),
        call(0, json!(null), json!(null), r#"{"a":1}"#),
        call(1, json!(null), json!(null), r#""free"}"#),
        last("tool_calls"),
        usage(),
    ];
    let events = events(&body, &chunks);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&events), expected);
    let output = &events[10]["response"]["output"];
    let function = json!({
        "type": "function_call", "id": "fc_x_0", "call_id": "c0", "name": "g", "namespace": "ns",
        "arguments": r#"{"a":1}"#, "status": "completed",
    });
    let custom = json!({
        "type": "custom_tool_call", "id": "ctc_x_1", "call_id": "c1", "name": "patch",
        "input": "free", "status": "completed",
    });
    assert_eq!(*output, json!([function, custom]));
    assert_eq!(events[5]["arguments"], r#"{"a":1}"#);
    assert_eq!(events[8]["input"], "free");
    // What the client sends back names the same functions.
    let back = json!({"input": [function, custom]});
    let message = &chat(&back)["messages"][0]["tool_calls"];
    assert_eq!(message[0]["function"]["name"], "ns__g");
    assert_eq!(message[1]["function"]["arguments"], r#"{"input":"free"}"#);
}

#[test]
fn an_answer_that_is_cut_says_so() {
    let body = json!({"input": "x", "stream": true});
    let cut = events(
        &body,
        &[delta(json!({"content": "so"})), last("length"), usage()],
    );
    let end = cut.last().expect("an event");
    assert_eq!(end["type"], "response.incomplete");
    let details = json!({"reason": "max_output_tokens"});
    assert_eq!(end["response"]["incomplete_details"], details);
    assert_eq!(end["response"]["output"][0]["status"], "incomplete");

    let broken = [
        delta(json!({"content": "so"})),
        json!({"error": {"message": "the engine is gone"}}),
        delta(json!({"content": "more"})),
    ];
    for (chunks, message) in [
        (&broken[..], "the engine is gone"),
        (&broken[..1], "the engine ended its stream in the middle"),
        (&[], "the engine ended its stream in the middle"),
    ] {
        let events = events(&body, chunks);
        let end = events.last().expect("an event");
        assert_eq!(end["type"], "response.failed");
        assert_eq!(end["response"]["error"]["message"], message);
        assert!(
            events
                .iter()
                .all(|event| event["type"] != "response.completed")
        );
        assert_eq!(Answered::of_event(end.to_string().as_bytes()), None);
    }
}

#[test]
fn an_answer_in_one_piece_is_that_of_the_stream() {
    let body = json!({"input": "x"});
    let chat = json!({"id": "c", "model": "served", "choices": [{"index": 0, "message": {
        "role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]}, "finish_reason": "tool_calls"}], "usage": usage()["usage"]});
    let whole = builder(&body)
        .whole(chat.to_string().as_bytes())
        .expect("an answer");
    let whole: Value = serde_json::from_slice(&whole).expect("JSON");
    let kinds = whole["output"].as_array().expect("items").iter();
    let kinds: Vec<&str> = kinds.filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(
        kinds,
        ["reasoning", "message", "function_call", "function_call"]
    );
    assert_eq!(whole["usage"]["total_tokens"], 13);
    for wrong in [
        "{}",
        "nope",
        r#"{"choices":[]}"#,
        r#"{"error":{"message":"m"}}"#,
    ] {
        assert_eq!(builder(&body).whole(wrong.as_bytes()), None, "{wrong}");
    }
}
