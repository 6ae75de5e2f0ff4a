//! A toy template with the habits of real ones: it drops the thinking of earlier answers, writes an
//! empty one for the last message only, and ends each message with a stop token.

use super::*;
use serde_json::{Value, json};

const START: i32 = 1_000_001;
const STOP: i32 = 1_000_002;

fn text(ids: &mut Vec<i32>, text: &str) {
    ids.extend(text.chars().map(|letter| letter as i32));
}

/// What the toy does in another way.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    None,
    /// It writes the number of messages at the beginning.
    Counts,
    /// It closes answers without the stop token.
    NeverStops,
    /// It writes the ids of calls.
    WritesIds,
    /// It writes the system's text once more behind the last message.
    RepeatsSystem,
}

fn template(request: &[u8], habit: Habit) -> Vec<i32> {
    let request: Value = serde_json::from_slice(request).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let mut ids = Vec::new();
    if habit == Habit::Counts {
        ids.push(i32::try_from(messages.len()).expect("a few"));
    }
    if let Some(tools) = request.get("tools") {
        text(&mut ids, &tools.to_string());
    }
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().expect("a role");
        ids.push(START);
        text(&mut ids, &format!("{role}\n"));
        if role == "assistant" && at + 1 == messages.len() {
            text(&mut ids, "<think></think>");
        }
        text(&mut ids, message["content"].as_str().unwrap_or_default());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            text(&mut ids, &call["function"].to_string());
            if habit == Habit::WritesIds {
                text(&mut ids, call["id"].as_str().expect("an id"));
            }
        }
        if habit != Habit::NeverStops || role != "assistant" {
            ids.push(STOP);
        }
        text(&mut ids, "\n");
    }
    if request.get("add_generation_prompt") != Some(&json!(false)) {
        if habit == Habit::RepeatsSystem {
            let system = messages[0]["content"].as_str();
            text(&mut ids, system.unwrap_or_default());
        }
        ids.push(START);
        text(&mut ids, "assistant\n");
    }
    ids
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn parsed(body: &Value) -> Conversation {
    Conversation::parse(body.to_string().as_bytes()).expect("a chat")
}

fn answer(message: &Value, end: &str) -> AnswerMessage {
    let body = json!({"choices": [{"message": message, "finish_reason": end}]});
    AnswerMessage::parse(body.to_string().as_bytes()).expect("an answer")
}

/// The request that asks for this answer, and the one that continues it with these messages.
fn turns(answer: &Value, new: &[Value]) -> [Value; 2] {
    let first =
        json!({"model": "m", "messages": [message("system", "be brief"), message("user", "hi")]});
    let mut second = first.clone();
    let messages = second["messages"].as_array_mut().expect("messages");
    messages.push(answer.clone());
    messages.extend_from_slice(new);
    [first, second]
}

fn renderings(second: &Conversation, habit: Habit) -> Renderings {
    let stand_ins = second.stand_ins().expect("it continues an answer");
    Renderings {
        opening: template(&stand_ins.opening, habit),
        probe: template(&stand_ins.probe, habit),
        whole: template(&stand_ins.whole, habit),
        sent: template(&second.as_tokenize(), habit),
    }
}

/// The prompt and the tokens of an answer that thought.
fn context(first: &Value, said: &str) -> Vec<i32> {
    let mut ids = template(first.to_string().as_bytes(), Habit::None);
    text(&mut ids, said);
    ids.push(STOP);
    ids
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
}

#[test]
fn what_follows_an_answer_is_found_although_the_template_drops_its_thinking() {
    let calls = json!({"role": "assistant", "content": "", "tool_calls": [call("c1")]});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "xyz"});
    for (answer, new, tail) in [
        (
            message("assistant", "yes"),
            vec![message("user", "x")],
            "user\nx",
        ),
        (
            message("assistant", "yes"),
            vec![message("user", "")],
            "user\n",
        ),
        (calls.clone(), vec![result.clone()], "tool\nxyz"),
    ] {
        let [first, second] = turns(&answer, &new);
        let context = context(&first, "<think>so</think>yes");
        let prompt = renderings(&parsed(&second), Habit::None).continuing(&context);
        let mut expected = context.clone();
        text(&mut expected, "\n");
        expected.push(START);
        text(&mut expected, tail);
        expected.push(STOP);
        text(&mut expected, "\n");
        expected.push(START);
        text(&mut expected, "assistant\n");
        assert_eq!(prompt, Ok(expected), "{tail}");
    }
    // Two results: the first is the probe.
    let two = [result.clone(), result];
    let [first, second] = turns(&calls, &two);
    let context = context(&first, "f");
    assert!(
        renderings(&parsed(&second), Habit::None)
            .continuing(&context)
            .is_ok()
    );
}

#[test]
fn templates_that_could_mislead_are_told() {
    let calls = json!({"role": "assistant", "content": "", "tool_calls": [call("c1")]});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "7"});
    let [first, second] = turns(&calls, &[result]);
    let context = context(&first, "f");
    for (habit, reason) in [
        (Habit::Counts, AsSent::Prefix),
        (Habit::NeverStops, AsSent::StopToken),
        (Habit::WritesIds, AsSent::StopToken),
        (Habit::RepeatsSystem, AsSent::Context),
    ] {
        let prompt = renderings(&parsed(&second), habit).continuing(&context);
        assert_eq!(prompt, Err(reason));
    }
    // An answer that ended at a text to stop at: the last token may stand anywhere.
    let mut cut = context;
    *cut.last_mut().expect("tokens") = '\n' as i32;
    let prompt = renderings(&parsed(&second), Habit::None).continuing(&cut);
    assert_eq!(prompt, Err(AsSent::StopToken));
    assert_eq!(
        Renderings::default().continuing(&[]),
        Err(AsSent::StopToken)
    );
}

#[test]
fn an_answer_is_recognised_as_its_client_sends_it_back() {
    let said = json!({"role": "assistant", "content": "yes", "reasoning_content": "so",
        "tool_calls": [call("c1")], "refusal": null});
    let again = |change: fn(&mut Value)| {
        let mut again = said.clone();
        change(&mut again);
        let [first, second] = turns(&again, &[message("user", "x")]);
        let held = parsed(&first).answered(answer(&said, "stop"));
        parsed(&second).continued([&held].into_iter())
    };
    let changes: [fn(&mut Value); 6] = [
        |_| (),
        |m| m["reasoning_content"] = Value::Null,
        |m| m["content"] = json!([{"type": "text", "text": " yes\n"}]),
        |m| m["tool_calls"][0]["function"]["arguments"] = "{ \"a\":1 }".into(),
        |m| m["tool_calls"][0]["index"] = 0.into(),
        |m| m["name"] = Value::Null,
    ];
    for change in changes {
        assert_eq!(again(change), Ok(0));
    }
    let changes: [fn(&mut Value); 4] = [
        |m| m["content"] = "no".into(),
        |m| m["tool_calls"][0]["function"]["arguments"] = "{\"a\": 2}".into(),
        |m| m["tool_calls"][0]["id"] = "c2".into(),
        |m| m["name"] = "n".into(),
    ];
    for change in changes {
        assert_eq!(again(change), Err(AsSent::NotHeld));
    }
    assert_eq!(
        again(|m| m["reasoning_content"] = "other".into()),
        Err(AsSent::Edited)
    );
}

type Change = fn(&mut Value);

#[test]
fn a_request_that_is_not_the_continuation_is_sent_as_it_is() {
    let said = message("assistant", "yes");
    let [first, second] = turns(&said, &[message("user", "x")]);
    let held = |end: &str| parsed(&first).answered(answer(&said, end));
    let whole = held("stop");
    let asked = |change: fn(&mut Value)| {
        let mut second = second.clone();
        change(&mut second);
        parsed(&second).continued([&whole].into_iter())
    };
    let changes: [(Change, AsSent); 14] = [
        (
            |r| r["messages"][0]["content"] = "be long".into(),
            AsSent::Edited,
        ),
        (
            |r| r["tools"] = json!([{"type": "function"}]),
            AsSent::Tools,
        ),
        (
            |r| r["chat_template_kwargs"] = json!({"enable_thinking": false}),
            AsSent::Settings,
        ),
        (|r| r["model"] = "n".into(), AsSent::Settings),
        (|r| r["n"] = 2.into(), AsSent::Several),
        (|r| r["logprobs"] = true.into(), AsSent::Field),
        (|r| r["stop"] = "x".into(), AsSent::Field),
        (|r| r["tool_choice"] = "required".into(), AsSent::Field),
        (|r| r["parallel_tool_calls"] = false.into(), AsSent::Field),
        (|r| r["include_reasoning"] = false.into(), AsSent::Field),
        (|r| r["add_generation_prompt"] = false.into(), AsSent::Field),
        (
            |r| r["response_format"] = json!({"type": "json_object"}),
            AsSent::Field,
        ),
        (
            |r| r["messages"][3]["content"] = json!([{"type": "image_url"}]),
            AsSent::Media,
        ),
        (
            |r| {
                r["messages"].as_array_mut().expect("a list").pop();
            },
            AsSent::Prefill,
        ),
    ];
    for (change, reason) in changes {
        assert_eq!(asked(change), Err(reason));
    }
    let harmless: [fn(&mut Value); 2] = [
        |r| r["logprobs"] = false.into(),
        |r| r["stream"] = true.into(),
    ];
    for change in harmless {
        assert_eq!(asked(change), Ok(0));
    }
    let again = parsed(&second);
    let cut = held("length");
    assert_eq!(again.continued([&cut].into_iter()), Err(AsSent::Cut));
    let of_text =
        json!({"choices": [{"message": said, "finish_reason": "stop", "stop_reason": "x"}]});
    let of_text = AnswerMessage::parse(of_text.to_string().as_bytes()).expect("an answer");
    let stopped = parsed(&first).answered(of_text);
    assert_eq!(again.continued([&stopped].into_iter()), Err(AsSent::Cut));
    // Of equal answers the last one counts.
    assert_eq!(again.continued([&whole, &whole, &cut].into_iter()), Ok(1));
    assert!(!parsed(&first).has_answer());
}

#[test]
fn messages_of_any_shape_are_parsed() {
    for messages in [
        json!([]),
        json!([1, "x"]),
        json!([{"role": "assistant"}, 5]),
    ] {
        let asked = parsed(&json!({"messages": messages}));
        assert!(asked.continued([].into_iter()).is_err());
        let _ = asked.stand_ins();
    }
    for body in ["", "[]", "{\"messages\": 1}", "{}"] {
        assert!(Conversation::parse(body.as_bytes()).is_none());
        assert!(AnswerMessage::parse(body.as_bytes()).is_none());
        assert!(Derender::of(body.as_bytes(), &[], body.as_bytes()).is_none());
        assert!(chat_answer(body.as_bytes(), body.as_bytes(), &[]).is_none());
        assert!(Generation::parse(body.as_bytes()).is_err());
    }
}

#[test]
fn a_chat_becomes_a_request_for_tokens() {
    let rendered = json!({"request_id": "r", "token_ids": [1, 2], "features": null, "priority": 0,
        "cache_salt": null, "token_offsets": [], "stream": true, "stream_options": {},
        "sampling_params": {"max_tokens": 9, "logprobs": null}});
    let own = Generation::parse(rendered.to_string().as_bytes()).expect("a request");
    assert_eq!(own.sent, [1, 2]);
    let body = |max| -> Result<Value, AsSent> {
        own.body(&[1, 2, 3], max)
            .map(|body| serde_json::from_slice(&body).expect("JSON"))
    };
    let asked = |most: usize| {
        json!({"request_id": "r", "token_ids": [1, 2, 3], "features": null, "stream": false,
            "sampling_params": {"max_tokens": most, "logprobs": 0}})
    };
    assert_eq!(body(100), Ok(asked(9)));
    assert_eq!(body(8), Ok(asked(5)));
    assert_eq!(body(3), Err(AsSent::Length));
    let mut media = rendered;
    media["features"] = json!({"mm_hashes": {}});
    let media = Generation::parse(media.to_string().as_bytes());
    assert!(media.is_err_and(|reason| reason == AsSent::Media));
}

#[test]
fn tokens_become_a_chat_without_the_text_of_their_stop_token() {
    let generated = |ids: &[i32], end: &str| {
        json!({"request_id": "r", "created": 5, "usage": {"prompt_tokens": 3},
            "choices": [{"index": 0, "token_ids": ids, "finish_reason": end,
                "logprobs": {"content": [{"logprob": -0.5}]}}]})
    };
    let chat = json!({"model": "m", "messages": []}).to_string();
    let derender = |ids: &[i32], end: &str| {
        let generated = generated(ids, end).to_string();
        match Derender::of(chat.as_bytes(), &[7], generated.as_bytes()).expect("an answer") {
            Derender::Ask(body) => (true, serde_json::from_slice::<Value>(&body).expect("JSON")),
            Derender::Empty(body) => (false, serde_json::from_slice(&body).expect("JSON")),
        }
    };
    let ids = "/generate_response/choices/0/token_ids";
    let (asks, body) = derender(&[4, 5], "stop");
    assert_eq!((asks, body.pointer(ids)), (true, Some(&json!([4]))));
    assert_eq!(
        (&body["prompt_tokens"], &body["prompt_token_ids"]),
        (&json!(3), &json!([7]))
    );
    assert_eq!(
        derender(&[4, 5], "length").1.pointer(ids),
        Some(&json!([4, 5]))
    );
    let (asks, empty) = derender(&[5], "stop");
    assert!(!asks);
    assert_eq!(empty["choices"][0]["message"]["content"], "");

    let derendered = json!({"id": "r", "usage": {"prompt_tokens": 0}, "choices": [{"index": 0,
        "finish_reason": "stop", "logprobs": null,
        "message": {"role": "assistant", "content": null, "tool_calls": [call("c1")]}}]});
    let answer = chat_answer(
        derendered.to_string().as_bytes(),
        generated(&[4, 5], "stop").to_string().as_bytes(),
        &[1, 2, 3],
    );
    let answer: Value = serde_json::from_slice(&answer.expect("an answer")).expect("JSON");
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["token_ids"], json!([4, 5]));
    assert_eq!(choice["logprobs"]["content"][0]["logprob"], -0.5);
    assert_eq!(
        (
            &answer["prompt_token_ids"],
            &answer["usage"]["prompt_tokens"]
        ),
        (&json!([1, 2, 3]), &json!(3))
    );
}
