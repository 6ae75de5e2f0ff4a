//! A whole answer as a stream, for an engine that gives no tokens in one.

use serde_json::{Map, Value, json};

/// Fields that all events share.
const SHARED: [&str; 4] = ["id", "created", "model", "system_fingerprint"];

/// The events of a chat completion, or of a text completion; `None` for anything else.
pub(super) fn played(whole: &[u8], shows_usage: bool) -> Option<Vec<u8>> {
    let mut answer: Map<String, Value> = serde_json::from_slice(whole).ok()?;
    let Some(Value::Array(choices)) = answer.remove("choices") else {
        return None;
    };
    let mut shared: Map<String, Value> = Map::new();
    for name in SHARED {
        shared.extend(answer.remove_entry(name));
    }
    let is_text = answer
        .get("object")
        .is_some_and(|object| object == "text_completion");
    let object = if is_text {
        "text_completion"
    } else {
        "chat.completion.chunk"
    };
    shared.insert("object".into(), object.into());
    let mut events = Vec::new();
    let mut send = |fields: Value| {
        let mut event = shared.clone();
        event.extend(fields.as_object().cloned().unwrap_or_default());
        events.extend_from_slice(format!("data: {}\n\n", Value::from(event)).as_bytes());
    };
    for choice in choices {
        let Value::Object(mut choice) = choice else {
            return None;
        };
        let (index, end) = (choice.remove("index"), choice.remove("finish_reason"));
        choice.insert("index".into(), index.clone().unwrap_or_else(|| 0.into()));
        choice.insert("finish_reason".into(), Value::Null);
        if is_text {
            send(json!({"choices": [choice]}));
            let end = json!({"index": index, "text": "", "logprobs": null, "finish_reason": end});
            send(json!({"choices": [end]}));
            continue;
        }
        let mut delta = choice.remove("message").unwrap_or_default();
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in (0..).zip(calls.into_iter().flatten()) {
            if let Some(call) = call.as_object_mut() {
                call.insert("index".into(), Value::from(index));
            }
        }
        choice.insert("delta".into(), delta);
        send(json!({"choices": [choice]}));
        send(json!({"choices": [{"index": index, "delta": {}, "finish_reason": end}]}));
    }
    if let Some(usage) = answer.remove("usage").filter(|_| shows_usage) {
        send(json!({"choices": [], "usage": usage}));
    }
    events.extend_from_slice(b"data: [DONE]\n\n");
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_answer_is_played_as_its_events() {
        let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}"}});
        let whole = json!({"id": "x", "model": "m", "usage": {"completion_tokens": 3},
            "choices": [{"index": 0, "finish_reason": "tool_calls",
                         "message": {"role": "assistant", "tool_calls": [call]}}]});
        let events = played(whole.to_string().as_bytes(), true).expect("it is an answer");
        let text = String::from_utf8(events).expect("text");
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        let event = |at: usize| -> Value {
            serde_json::from_str(events[at].strip_prefix("data: ").expect("data")).expect("JSON")
        };
        assert_eq!(event(0)["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
        assert_eq!(event(0)["id"], "x");
        assert_eq!(event(1)["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(event(2)["usage"]["completion_tokens"], 3);
        assert_eq!(events[3], "data: [DONE]");
        let quiet = played(whole.to_string().as_bytes(), false).expect("it is an answer");
        assert!(!String::from_utf8_lossy(&quiet).contains("usage"));
        assert_eq!(played(b"{}", true), None);
    }
}
